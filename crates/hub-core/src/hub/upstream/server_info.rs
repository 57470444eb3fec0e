//! What a server reports: its name, version, revision, instructions and capabilities.
//! All of it is text of a foreign server: secrets are redacted, lengths bounded and invisible characters escaped.

use std::collections::BTreeMap;

use linchpin::Client;
use linchpin::encode::to_value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::features::FeatureDefinitions;
use crate::id::AgentId;
use crate::secrets::redact::Redactor;
use crate::text::escape_invisible;

/// Maximum number of characters of the instructions.
const MAX_INSTRUCTIONS_LEN: usize = 8_000;
/// Maximum number of characters of a name, title, version or URI.
pub(super) const MAX_NAME_LEN: usize = 500;
/// Maximum number of reported capabilities.
const MAX_CAPABILITIES: usize = 100;

/// Identity of a server as it reports it, and what was negotiated with it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ServerInfo")]
pub struct ServerInfo {
    /// Name that the server reports.
    pub name: Option<String>,
    /// Display name that the server reports.
    pub title: Option<String>,
    /// Version that the server reports.
    pub version: Option<String>,
    /// Negotiated protocol revision.
    pub revision: String,
    /// Capabilities of the server, such as `tools` and `resources.subscribe`. At most 100.
    pub capabilities: Vec<String>,
    /// Instructions of the server for models, at most 8,000 characters.
    pub instructions: Option<String>,
}

/// What a server reports to one subject. `features` is absent if they could not be listed.
#[derive(Debug, Clone, Default)]
pub(in crate::hub) struct ServerReport {
    pub(in crate::hub) info: ServerInfo,
    pub(in crate::hub) features: Option<FeatureDefinitions>,
    /// Features of each agent that was listed with its own credential.
    pub(in crate::hub) by_agent: BTreeMap<AgentId, FeatureDefinitions>,
}

impl ServerInfo {
    /// Reads what the server of a connection reported when the connection was opened.
    pub(in crate::hub) fn of(client: &Client, redactor: &Redactor) -> Self {
        let (server, revision) = (client.server(), client.revision());
        let name = |text: &String| bounded(text, MAX_NAME_LEN, redactor);
        ServerInfo {
            name: server.map(|server| name(&server.name)),
            title: server.and_then(|server| server.title.as_ref()).map(name),
            version: server.map(|server| name(&server.version)),
            revision: revision.as_str().to_owned(),
            capabilities: capability_names(&to_value(client.capabilities(), revision), redactor),
            instructions: client.instructions().map(|text| bounded(text, MAX_INSTRUCTIONS_LEN, redactor)),
        }
    }
}

impl ServerReport {
    /// Adds what the server reports to another subject.
    pub(in crate::hub) fn add(&mut self, other: ServerReport) {
        self.info = other.info;
        self.by_agent.extend(other.by_agent);
        match (&mut self.features, other.features) {
            (Some(own), Some(other)) => own.add(other),
            (own @ None, other) => *own = other,
            (Some(_), None) => {}
        }
    }
}

/// Returns the names of declared capabilities: each member, and `member.option` for each option that is set.
fn capability_names(capabilities: &Value, redactor: &Redactor) -> Vec<String> {
    let mut names = Vec::new();
    for (name, value) in capabilities.as_object().into_iter().flatten() {
        names.push(name.clone());
        let options = value.as_object().into_iter().flatten();
        let is_set = |value: &Value| !matches!(value, Value::Null | Value::Bool(false));
        names
            .extend(options.filter(|(_, value)| is_set(value)).map(|(option, _)| format!("{name}.{option}")));
    }
    names.iter().take(MAX_CAPABILITIES).map(|name| bounded(name, MAX_NAME_LEN, redactor)).collect()
}

/// Redacts secrets in a text of a server, escapes invisible characters and bounds the length.
pub(super) fn bounded(text: &str, max_len: usize, redactor: &Redactor) -> String {
    // Redact the complete text: a secret must not be recognizable by its first characters.
    let text = redactor.redact_text(text.to_owned());
    let mut bounded: String = escape_invisible(&text.chars().take(max_len).collect::<String>());
    if text.chars().nth(max_len).is_some() {
        bounded.push('…');
    }
    bounded
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn capabilities_are_named_with_their_options() {
        let capabilities = json!({
            "tools": { "listChanged": false },
            "resources": { "subscribe": true, "listChanged": null },
            "extensions": { "io.example/ui\u{202e}": {} },
        });
        let names = capability_names(&capabilities, &Redactor::default());
        let mut expected = vec![
            "extensions".to_owned(),
            "extensions.io.example/ui\\u{202e}".to_owned(),
            "resources".to_owned(),
            "resources.subscribe".to_owned(),
            "tools".to_owned(),
        ];
        expected.sort_unstable();
        let mut names_sorted = names;
        names_sorted.sort_unstable();
        assert_eq!(names_sorted, expected);
    }

    #[test]
    fn texts_are_bounded_and_visible() {
        let redactor = Redactor::default();
        assert_eq!(bounded("a\u{200b}b\nc", 10, &redactor), "a\\u{200b}b\nc");
        assert_eq!(bounded("abcd", 4, &redactor), "abcd");
        assert_eq!(bounded("abcde", 4, &redactor), "abcd…");
    }
}
