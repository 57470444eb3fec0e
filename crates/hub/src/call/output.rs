//! Text form of a tool result: text blocks unchanged, every other block as one line.

use linchpin::Content;
use linchpin::model::{CallToolResult, ResourceContents};
use serde_json::Value;

use crate::terminal::{OutputStyle, Style, one_line, sanitize};

/// Formats the result of a tool call for the terminal. Structured content is shown only if there is no text.
pub(super) fn format_result(result: &CallToolResult, style: OutputStyle) -> String {
    let has_text =
        result.content.iter().any(|content| content.as_text().is_some_and(|text| !text.is_empty()));
    let mut parts: Vec<String> =
        result.content.iter().map(|content| format_content(content, style)).collect();
    if let Some(value) = structured_content(result).filter(|_| !has_text) {
        parts.push(clean_for_terminal(&serde_json::to_string_pretty(&value).unwrap_or_default(), style));
    }
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

/// Returns the structured content of a tool result as the server sent it.
pub(super) fn structured_content(result: &CallToolResult) -> Option<Value> {
    let structured = result.structured_content.as_ref()?;
    serde_json::from_str(structured.json.get()).ok()
}

fn format_content(content: &Content, style: OutputStyle) -> String {
    match content {
        Content::Text(text) => clean_for_terminal(&text.text, style),
        Content::Image(image) => {
            bracketed(&format!("{}, {}", image.mime_type, format_size(&image.data)), style)
        }
        Content::Audio(audio) => {
            bracketed(&format!("{}, {}", audio.mime_type, format_size(&audio.data)), style)
        }
        Content::ResourceLink(link) => {
            let kind = link.mime_type.as_ref().map(|kind| format!(", {kind}")).unwrap_or_default();
            bracketed(&format!("{}: {}{kind}", link.name, link.uri), style)
        }
        Content::Resource(embedded) => format_resource(&embedded.resource, style),
        Content::ToolUse(_) | Content::ToolResult(_) => String::new(),
    }
}

fn format_resource(resource: &ResourceContents, style: OutputStyle) -> String {
    let kind = resource.mime_type.as_ref().map(|kind| format!(", {kind}")).unwrap_or_default();
    match (&resource.text, &resource.blob) {
        (Some(text), _) => clean_for_terminal(text, style),
        (None, Some(blob)) => bracketed(&format!("{}{kind}, {}", resource.uri, format_size(blob)), style),
        (None, None) => bracketed(&format!("{}{kind}", resource.uri), style),
    }
}

/// Removes control characters from output to a terminal. Piped output stays unchanged, byte for byte.
fn clean_for_terminal(text: &str, style: OutputStyle) -> String {
    if style.is_terminal { sanitize(text) } else { text.to_owned() }
}

fn bracketed(text: &str, style: OutputStyle) -> String {
    style.paint(Style::Dim, &format!("[{}]", one_line(text)))
}

/// Formats the decoded size of a Base64 string.
fn format_size(base64: &str) -> String {
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

    fn render(result: Value) -> String {
        format_result(&serde_json::from_value(result).unwrap(), OutputStyle::plain(80))
    }

    #[test]
    fn everything_has_a_line() {
        let image = format_content(&Content::image([0; 12_000], "image/png"), OutputStyle::plain(80));
        assert_eq!(image, "[image/png, 12 KB]");
        let shown = render(json!({ "content": [
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
        let shown = render(json!({ "content": [], "structuredContent": { "a": [1] } }));
        assert_eq!(shown, "{\n  \"a\": [\n    1\n  ]\n}");
        assert_eq!(render(json!({ "content": [] })), "");
        assert_eq!(format_size(&"A".repeat(4 << 20)), "3.0 MB");
    }
}
