//! Text form of a tool result: text blocks unchanged, every other block as one line.

use linchpin::Content;
use linchpin::model::{CallToolResult, ResourceContents};
use serde_json::Value;

use crate::terminal::{Look, Style, clean, one_line};

/// Formats a result. Structured content is shown only if there is no text.
pub(super) fn text(result: &CallToolResult, look: Look) -> String {
    let has_text =
        result.content.iter().any(|content| content.as_text().is_some_and(|text| !text.is_empty()));
    let mut parts: Vec<String> = result.content.iter().map(|content| block(content, look)).collect();
    if let Some(value) = structured(result).filter(|_| !has_text) {
        parts.push(shown(&serde_json::to_string_pretty(&value).unwrap_or_default(), look));
    }
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

/// Returns the structured content as the server sent it.
pub(super) fn structured(result: &CallToolResult) -> Option<Value> {
    let structured = result.structured_content.as_ref()?;
    serde_json::from_str(structured.json.get()).ok()
}

fn block(content: &Content, look: Look) -> String {
    match content {
        Content::Text(text) => shown(&text.text, look),
        Content::Image(image) => aside(&format!("{}, {}", image.mime_type, size(&image.data)), look),
        Content::Audio(audio) => aside(&format!("{}, {}", audio.mime_type, size(&audio.data)), look),
        Content::ResourceLink(link) => {
            let kind = link.mime_type.as_ref().map(|kind| format!(", {kind}")).unwrap_or_default();
            aside(&format!("{}: {}{kind}", link.name, link.uri), look)
        }
        Content::Resource(embedded) => resource(&embedded.resource, look),
        Content::ToolUse(_) | Content::ToolResult(_) => String::new(),
    }
}

fn resource(resource: &ResourceContents, look: Look) -> String {
    let kind = resource.mime_type.as_ref().map(|kind| format!(", {kind}")).unwrap_or_default();
    match (&resource.text, &resource.blob) {
        (Some(text), _) => shown(text, look),
        (None, Some(blob)) => aside(&format!("{}{kind}, {}", resource.uri, size(blob)), look),
        (None, None) => aside(&format!("{}{kind}", resource.uri), look),
    }
}

/// Removes control characters for a terminal. Piped output stays unchanged, byte for byte.
fn shown(text: &str, look: Look) -> String {
    if look.is_terminal { clean(text) } else { text.to_owned() }
}

fn aside(text: &str, look: Look) -> String {
    look.paint(Style::Dim, &format!("[{}]", one_line(text)))
}

/// Formats the decoded size of a Base64 string.
fn size(base64: &str) -> String {
    let bytes = base64.trim_end_matches('=').len() * 3 / 4;
    match bytes {
        1 => "1 byte".into(),
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{} KB", bytes.div_ceil(1024)),
        _ => format!("{}.{} MB", bytes >> 20, ((bytes & 0xF_FFFF) * 10) >> 20),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown_of(result: Value) -> String {
        text(&serde_json::from_value(result).unwrap(), Look::plain(80))
    }

    #[test]
    fn everything_has_a_line() {
        let image = block(&Content::image([0; 12_000], "image/png"), Look::plain(80));
        assert_eq!(image, "[image/png, 12 KB]");
        let shown = shown_of(json!({ "content": [
            { "type": "text", "text": "one\u{1b}" },
            { "type": "audio", "data": "AAAA", "mimeType": "audio/wav" },
            { "type": "resource_link", "uri": "file:///a", "name": "a", "mimeType": "text/plain" },
            { "type": "resource", "resource": { "uri": "x://y", "blob": "AA==", "mimeType": "a/b" } },
            { "type": "resource", "resource": { "uri": "x://z", "text": "two" } },
        ], "structuredContent": { "a": 1 } }));
        let expected =
            "one\u{1b}\n[audio/wav, 3 bytes]\n[a: file:///a, text/plain]\n[x://y, a/b, 1 byte]\ntwo";
        assert_eq!(shown, expected);
    }

    #[test]
    fn without_text_the_structure_is_shown() {
        let shown = shown_of(json!({ "content": [], "structuredContent": { "a": [1] } }));
        assert_eq!(shown, "{\n  \"a\": [\n    1\n  ]\n}");
        assert_eq!(shown_of(json!({ "content": [] })), "");
        assert_eq!(size(&"A".repeat(4 << 20)), "3.0 MB");
    }
}
