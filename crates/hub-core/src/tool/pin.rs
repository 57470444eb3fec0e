//! Pins of tool definitions: fingerprints of their security-relevant fields. A server may change a tool after a user
//! has come to trust it; such a tool is quarantined until a user has reviewed the changes.

use serde_json::{Map, Value};

use crate::digest::{Digest, canonical};
use crate::text::{escape_invisible, is_invisible};

/// Pinned members of a definition: those that models and users rely on. Other members may change.
const PINNED_MEMBERS: [&str; 7] =
    ["name", "title", "description", "inputSchema", "outputSchema", "annotations", "icons"];

/// Whether a user has reviewed and trusts the definition of a tool, and whether it has changed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "ToolState")]
pub enum TrustState {
    /// No user has reviewed the tool, and its definition is unchanged since it was first listed.
    New,
    /// A user trusts the tool, and its definition is unchanged since.
    Trusted,
    /// The tool definition has changed: the tool cannot be called until a user trusts it again.
    Changed,
}

/// Returns the pin of a tool definition: the digest that shows whether it has changed.
pub fn pin(definition: &Value) -> Digest {
    let pinned: Map<_, _> = PINNED_MEMBERS
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), definition.get(*name)?.clone())))
        .filter(|(_, value)| !value.is_null())
        .collect();
    Digest::of("linchpin tool").json(&Value::Object(pinned)).finish()
}

/// Difference at one position between the pinned and the current definition of a tool.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
#[schemars(rename = "ToolChange")]
pub struct DefinitionChange {
    /// Position of the difference as a JSON pointer.
    pub at: String,
    /// Text of the value in the pinned definition; absent if it was added.
    pub before: Option<String>,
    /// Text of the value in the current definition; absent if it was removed.
    pub after: Option<String>,
}

/// Maximum number of changes of a tool definition that are shown.
const MAX_CHANGES: usize = 100;
/// Maximum length, in characters, of a value in the displayed changes of a tool definition.
const MAX_SHOWN_LEN: usize = 2_000;

/// Returns all differences between two definitions for display, with invisible characters escaped.
pub fn changes(before: &Value, after: &Value) -> Vec<DefinitionChange> {
    let mut found = Vec::new();
    for name in PINNED_MEMBERS {
        compare(&format!("/{name}"), before.get(name), after.get(name), &mut found);
    }
    found
}

fn compare(at: &str, before: Option<&Value>, after: Option<&Value>, found: &mut Vec<DefinitionChange>) {
    let [before, after] = [before, after].map(|value| value.filter(|value| !value.is_null()));
    if before == after || found.len() == MAX_CHANGES {
        return;
    }
    if let (Some(Value::Object(before)), Some(Value::Object(after))) = (before, after) {
        let mut names: Vec<_> = before.keys().chain(after.keys()).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let at = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
            compare(&at, before.get(name), after.get(name), found);
        }
        return;
    }
    found.push(DefinitionChange {
        at: escape_invisible(at),
        before: before.map(display_value),
        after: after.map(display_value),
    });
}

fn display_value(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| canonical(value), str::to_owned);
    let mut text = escape_invisible(&text);
    if let Some((end, _)) = text.char_indices().nth(MAX_SHOWN_LEN) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Counts the invisible characters in all strings and member names of a definition. Tabs and line ends do not count.
pub fn count_invisible(value: &Value) -> usize {
    let count = |text: &str| {
        let invisible = text.chars().filter(|char| is_invisible(*char) && *char != '\t').count();
        invisible - text.matches("\r\n").count()
    };
    match value {
        Value::String(text) => count(text),
        Value::Array(items) => items.iter().map(count_invisible).sum(),
        Value::Object(members) => {
            members.iter().map(|(name, value)| count(name) + count_invisible(value)).sum()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool() -> Value {
        json!({
            "name": "send", "description": "Sends a message",
            "inputSchema": {"type": "object", "properties": {"to": {"type": "string"}}},
            "annotations": {"readOnlyHint": false}, "_meta": {"etag": 1},
        })
    }

    #[test]
    fn only_what_counts_counts() {
        let mut same = json!({
            "_meta": {"etag": 2}, "annotations": {"readOnlyHint": false}, "title": null,
            "inputSchema": {"properties": {"to": {"type": "string"}}, "type": "object"},
            "description": "Sends a message", "name": "send",
        });
        assert_eq!(pin(&same), pin(&tool()));
        assert_eq!(changes(&tool(), &same), []);
        for (name, value) in [
            ("description", json!("Sends a message to everybody")),
            ("title", json!("Send")),
            ("annotations", json!({"readOnlyHint": true})),
            ("inputSchema", json!({"type": "object"})),
            ("outputSchema", json!({})),
            ("icons", json!([])),
        ] {
            let mut other = tool();
            other[name] = value;
            assert_ne!(pin(&other), pin(&tool()), "{name}");
            assert_eq!(changes(&tool(), &other).len(), 1, "{name}");
        }
        same["name"] = json!("other");
        assert_ne!(pin(&same), pin(&tool()));
    }

    #[test]
    fn hidden_characters_are_counted_as_they_are_and_not_as_they_are_escaped() {
        for (text, count) in [
            ("\u{1b}[2J", 1),
            ("\u{3164}\u{115f}\u{2800}\u{34f}\u{fff9}", 5),
            ("\u{1160}\u{ffa0}\u{fffa}\u{fffb}\u{180e}\u{fe0f}\u{e0041}\u{e0100}", 8),
            ("a\u{200b}\u{202e}\0\u{7f}\u{9b}", 5),
            ("a\rb", 1),
            ("one\r\ntwo\n\tthree \"é\" \\u001b", 0),
        ] {
            assert_eq!(count_invisible(&json!({ "description": text })), count, "{text:?}");
            assert_eq!(count_invisible(&json!([{ text: null }, 1, true])), count, "{text:?}");
        }
    }

    #[test]
    fn changes_are_readable_and_hide_nothing() {
        let mut other = tool();
        other["description"] = json!("Sends\u{202e} a message\u{e0041}\u{1b}[2J");
        other["inputSchema"]["properties"]["a/b"] = json!({"type": "string"});
        other["inputSchema"]["properties"]["to"]["type"] = json!(["string", "null"]);
        let all = changes(&tool(), &other);
        let change = |at: &str, before: Option<&str>, after: &str| DefinitionChange {
            at: at.into(),
            before: before.map(Into::into),
            after: Some(after.into()),
        };
        assert_eq!(
            all,
            [
                change(
                    "/description",
                    Some("Sends a message"),
                    "Sends\\u{202e} a message\\u{e0041}\\u{1b}[2J"
                ),
                change("/inputSchema/properties/a~1b", None, r#"{"type":"string"}"#),
                change("/inputSchema/properties/to/type", Some("string"), r#"["string","null"]"#),
            ]
        );
        let long = json!({"description": "x".repeat(9_999)});
        assert_eq!(changes(&json!({}), &long)[0].after.as_ref().unwrap().chars().count(), 2_001);
        let many: Value = (0..500).map(|number| (number.to_string(), json!(1))).collect::<Map<_, _>>().into();
        assert_eq!(changes(&json!({"annotations": {}}), &json!({"annotations": many})).len(), MAX_CHANGES);
    }
}
