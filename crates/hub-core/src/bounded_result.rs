//! Bounded result: a tool result limited to a size that models can handle, with its text summary.

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

/// Default size limit of a result, in bytes of its JSON.
pub const DEFAULT_LIMIT: usize = 200_000;

/// Tool result and its text form, limited in size for models. If the result is too large, both are the truncated text.
#[derive(Debug, Clone)]
pub struct BoundedResult {
    /// Text form of the result: text blocks, placeholders of other blocks, and structured content.
    pub text: String,
    /// Result of the server; only the truncated summary if the result is too large.
    pub value: Value,
    /// JSON text of the value.
    pub json: Box<RawValue>,
    /// Whether the server returned a tool error (`isError`).
    pub is_error: bool,
    /// Warning that the result was truncated, for the caller.
    pub warning: Option<String>,
}

impl BoundedResult {
    /// Bounds a result of `tools/call`, whose JSON text is `json`, to `limit` bytes.
    pub fn new(value: Value, json: Box<RawValue>, limit: usize) -> Self {
        let is_error = value.get("isError").and_then(Value::as_bool).unwrap_or_default();
        let (summary, size) = (summary(&value), json.get().len());
        if size <= limit {
            return BoundedResult { text: summary, value, json, is_error, warning: None };
        }
        let warning = format!("the result has {size} bytes and was truncated to {limit}");
        let summary = truncate_json(summary, limit.saturating_sub(warning.len() + 1));
        let text = format!("{summary}\n{warning}");
        let mut result = Map::new();
        result.insert("content".into(), json!([{"type": "text", "text": text}]));
        if is_error {
            result.insert("isError".into(), true.into());
        }
        let (value, json) = with_json(result.into());
        BoundedResult { text, value, json, is_error, warning: Some(warning) }
    }
}

/// Returns a JSON value with its text.
pub(crate) fn with_json(value: Value) -> (Value, Box<RawValue>) {
    let json = to_raw_value(&value).expect("a JSON value has a JSON text");
    (value, json)
}

/// Returns the text blocks of a result, a placeholder for each other block, and the structured content.
pub fn summary(result: &Value) -> String {
    let blocks = result.get("content").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut parts: Vec<String> = blocks.iter().filter_map(describe_block).collect();
    if let Some(structured) = result.get("structuredContent") {
        let text = structured.to_string();
        // Many servers repeat the structured content as text.
        let is_repeated = blocks.iter().any(|block| {
            let parsed =
                block.get("text").and_then(Value::as_str).and_then(|text| serde_json::from_str(text).ok());
            parsed.as_ref() == Some(structured)
        });
        if !is_repeated {
            parts.push(text);
        }
    }
    parts.join("\n")
}

fn describe_block(block: &Value) -> Option<String> {
    let text = |name: &str| block.get(name).and_then(Value::as_str);
    let kind = text("type")?;
    Some(match kind {
        "text" => text("text")?.to_owned(),
        "resource_link" => format!("[link to {}]", text("uri")?),
        "resource" => {
            let resource = block.get("resource")?;
            let part = |name: &str| resource.get(name).and_then(Value::as_str);
            part("text").map_or_else(|| format!("[resource {}]", part("uri").unwrap_or("")), str::to_owned)
        }
        _ => format!("[{kind}, {}]", text("mimeType").unwrap_or("unknown type")),
    })
}

/// Truncates a text so that its JSON form has at most this many bytes.
fn truncate_json(mut text: String, max: usize) -> String {
    let mut bytes = 0;
    let end = text.char_indices().find(|(_, char)| {
        bytes += match char {
            '"' | '\\' | '\n' | '\r' | '\t' => 2,
            char if char.is_control() => 6,
            char => char.len_utf8(),
        };
        bytes > max
    });
    if let Some((end, _)) = end {
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(result: Value, limit: usize) -> BoundedResult {
        let (value, json) = with_json(result);
        BoundedResult::new(value, json, limit)
    }

    #[test]
    fn texts_are_joined_and_structured_content_follows() {
        let result = json!({
            "content": [
                {"type": "text", "text": "one"}, {"type": "image", "data": "AAAA", "mimeType": "image/png"},
                {"type": "resource_link", "uri": "file:///a", "name": "a"},
                {"type": "resource", "resource": {"uri": "file:///b", "text": "two"}},
                {"type": "text", "text": "three"},
            ],
            "structuredContent": {"sum": 3},
        });
        let envelope = bound(result.clone(), DEFAULT_LIMIT);
        assert_eq!(envelope.text, "one\n[image, image/png]\n[link to file:///a]\ntwo\nthree\n{\"sum\":3}");
        assert_eq!((envelope.value, envelope.is_error, envelope.warning), (result, false, None));
        let mirrored =
            json!({"content": [{"type": "text", "text": "{ \"sum\": 3 }"}], "structuredContent": {"sum": 3}});
        assert_eq!(bound(mirrored, DEFAULT_LIMIT).text, "{ \"sum\": 3 }");
        assert_eq!(bound(json!({"content": [], "isError": true}), 99).text, "");
    }

    #[test]
    fn what_is_too_large_is_cut_and_says_so() {
        for text in ["x".repeat(300_000), "ä".repeat(150_000), "\u{1}\"\n".repeat(100_000)] {
            let result = json!({"content": [{"type": "text", "text": text}], "isError": true});
            let envelope = bound(result, DEFAULT_LIMIT);
            let size = envelope.json.get().len();
            assert!((190_000..=DEFAULT_LIMIT + 100).contains(&size), "{size}");
            assert!(envelope.is_error && envelope.value["isError"] == true);
            let warning = envelope.warning.unwrap();
            assert!(
                warning.contains("truncated to 200000") && envelope.text.ends_with(&warning),
                "{warning}"
            );
        }
        let structured = json!({"content": [], "structuredContent": {"rows": vec![1; 200_000]}});
        assert!(bound(structured, 1_000).text.len() <= 1_000);
    }
}
