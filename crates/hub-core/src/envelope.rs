//! What a model sees of a result: a text, of a size that it can hold, beside the result itself.

use serde_json::{Map, Value, json};

/// The size of a result, written as JSON, up to which it is passed on whole.
pub const DEFAULT_LIMIT: usize = 200_000;

/// A result with its summary.
#[derive(Debug, Clone, PartialEq)]
pub struct Envelope {
    /// The text of it.
    pub summary: String,
    /// The result, as the server gave it, if it is not too large.
    pub result: Value,
    /// Whether the server says that it is an error.
    pub is_error: bool,
    /// What was left out, in words.
    pub warning: Option<String>,
}

impl Envelope {
    /// Wraps a result of `tools/call` of which `limit` bytes may be passed on.
    pub fn new(result: Value, limit: usize) -> Self {
        let is_error = result.get("isError").and_then(Value::as_bool).unwrap_or_default();
        let summary = summary(&result);
        let size = serde_json::to_vec(&result).map_or(usize::MAX, |bytes| bytes.len());
        if size <= limit {
            return Envelope { summary, result, is_error, warning: None };
        }
        let warning =
            format!("the result has {size} bytes, of which {limit} are passed on: the rest was left out");
        let summary = cut(summary, limit.saturating_sub(warning.len() + 1));
        let text = format!("{summary}\n{warning}");
        let mut result = Map::new();
        result.insert("content".into(), json!([{"type": "text", "text": text}]));
        if is_error {
            result.insert("isError".into(), true.into());
        }
        Envelope { summary: text, result: result.into(), is_error, warning: Some(warning) }
    }
}

/// The texts of a result, one after the other, what it has beside them by name, and then what programs read.
pub fn summary(result: &Value) -> String {
    let blocks = result.get("content").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut parts: Vec<String> = blocks.iter().filter_map(described).collect();
    if let Some(structured) = result.get("structuredContent") {
        let text = structured.to_string();
        // Many servers repeat it as text.
        let is_repeated = blocks.iter().any(|block| {
            let said =
                block.get("text").and_then(Value::as_str).and_then(|text| serde_json::from_str(text).ok());
            said.as_ref() == Some(structured)
        });
        if !is_repeated {
            parts.push(text);
        }
    }
    parts.join("\n")
}

fn described(block: &Value) -> Option<String> {
    let text = |name: &str| block.get(name).and_then(Value::as_str);
    let kind = text("type")?;
    Some(match kind {
        "text" => text("text")?.to_owned(),
        "resource_link" => format!("[a link to {}]", text("uri")?),
        "resource" => {
            let resource = block.get("resource")?;
            let part = |name: &str| resource.get(name).and_then(Value::as_str);
            part("text")
                .map_or_else(|| format!("[the resource {}]", part("uri").unwrap_or("")), str::to_owned)
        }
        _ => format!("[{kind}, {}]", text("mimeType").unwrap_or("of no known type")),
    })
}

/// The beginning of a text, whose JSON form has at most so many bytes.
fn cut(mut text: String, most: usize) -> String {
    let mut bytes = 0;
    let end = text.char_indices().find(|(_, char)| {
        bytes += match char {
            '"' | '\\' | '\n' | '\r' | '\t' => 2,
            char if char.is_control() => 6,
            char => char.len_utf8(),
        };
        bytes > most
    });
    if let Some((end, _)) = end {
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let envelope = Envelope::new(result.clone(), DEFAULT_LIMIT);
        assert_eq!(
            envelope.summary,
            "one\n[image, image/png]\n[a link to file:///a]\ntwo\nthree\n{\"sum\":3}"
        );
        assert_eq!((envelope.result, envelope.is_error, envelope.warning), (result, false, None));
        let mirrored =
            json!({"content": [{"type": "text", "text": "{ \"sum\": 3 }"}], "structuredContent": {"sum": 3}});
        assert_eq!(Envelope::new(mirrored, DEFAULT_LIMIT).summary, "{ \"sum\": 3 }");
        assert_eq!(Envelope::new(json!({"content": [], "isError": true}), 99).summary, "");
    }

    #[test]
    fn what_is_too_large_is_cut_and_says_so() {
        for text in ["x".repeat(300_000), "ä".repeat(150_000), "\u{1}\"\n".repeat(100_000)] {
            let result = json!({"content": [{"type": "text", "text": text}], "isError": true});
            let envelope = Envelope::new(result, DEFAULT_LIMIT);
            let size = envelope.result.to_string().len();
            assert!((190_000..=DEFAULT_LIMIT + 100).contains(&size), "{size}");
            assert!(envelope.is_error && envelope.result["isError"] == true);
            let warning = envelope.warning.unwrap();
            assert!(
                warning.contains("200000 are passed on") && envelope.summary.ends_with(&warning),
                "{warning}"
            );
        }
        let structured = json!({"content": [], "structuredContent": {"rows": vec![1; 200_000]}});
        assert!(Envelope::new(structured, 1_000).summary.len() <= 1_000);
    }
}
