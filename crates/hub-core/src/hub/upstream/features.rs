//! Resources, resource templates and prompts that a server lists: their definitions with secrets redacted, which a sync
//! stores for the gateway, and their names and numbers.

use std::collections::{BTreeMap, BTreeSet};

use linchpin::client::{Item, Pages};
use linchpin::encode::{Encode, to_value};
use linchpin::{CallError, Client, ClientError, Revision, code};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::server_info::{MAX_NAME_LEN, bounded};
use crate::agent::Agent;
use crate::id::{AgentId, ServerId};
use crate::secrets::redact::Redactor;
use crate::server::CredentialMode;

/// Maximum size of one definition, in bytes of JSON.
const MAX_DEFINITION_BYTES: usize = 128 << 10;
/// Maximum number of items of one list, of all subjects together.
const MAX_ITEMS: usize = 10_000;
/// Maximum size of all definitions of one list, in bytes of JSON.
const MAX_LIST_BYTES: usize = 8 << 20;

/// Number of items of the lists of a server, except its tools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::hub) struct FeatureCounts {
    pub(in crate::hub) resources: usize,
    pub(in crate::hub) resource_templates: usize,
    pub(in crate::hub) prompts: usize,
}

/// Names of what a server offers, except its tools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OfferedFeatures {
    /// URIs of the resources of the server.
    pub resources: Vec<String>,
    /// URI templates of the resource templates of the server.
    pub resource_templates: Vec<String>,
    /// Names of the prompts of the server.
    pub prompts: Vec<String>,
}

/// Definitions of the resources, resource templates and prompts of a server, as JSON of the latest revision with secrets
/// redacted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::hub) struct FeatureDefinitions {
    pub(in crate::hub) resources: Vec<Value>,
    pub(in crate::hub) resource_templates: Vec<Value>,
    pub(in crate::hub) prompts: Vec<Value>,
    /// Extensions that the server supports, by identifier.
    #[serde(default)]
    pub(in crate::hub) extensions: BTreeSet<String>,
}

/// Features of a server as stored: those of all subjects together, and with credentials per agent those of each agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::hub) struct StoredFeatures {
    pub(in crate::hub) all: FeatureDefinitions,
    #[serde(default)]
    pub(in crate::hub) by_agent: BTreeMap<AgentId, FeatureDefinitions>,
}

impl StoredFeatures {
    /// Returns what an agent, or a user, sees of a server with these credentials.
    pub(in crate::hub) fn of(
        mut self,
        agent: Option<AgentId>,
        credentials: CredentialMode,
    ) -> FeatureDefinitions {
        match (agent, credentials) {
            (Some(agent), CredentialMode::PerAgent) => self.by_agent.remove(&agent).unwrap_or_default(),
            _ => self.all,
        }
    }
}

/// Member of a definition that identifies it in its list.
const RESOURCE_KEY: &str = "uri";
const TEMPLATE_KEY: &str = "uriTemplate";
const PROMPT_KEY: &str = "name";

impl FeatureDefinitions {
    /// Lists what the server of a connection offers. A list whose capability it does not declare is empty.
    pub(in crate::hub) async fn list(client: &Client, redactor: &Redactor) -> Result<Self, ClientError> {
        let (mut features, capabilities) = (FeatureDefinitions::default(), client.capabilities());
        if capabilities.resources.is_some() {
            features.resources = definitions(client.resources(), RESOURCE_KEY, redactor).await?;
            features.resource_templates =
                definitions(client.resource_templates(), TEMPLATE_KEY, redactor).await?;
        }
        if capabilities.prompts.is_some() {
            features.prompts = definitions(client.prompts(), PROMPT_KEY, redactor).await?;
        }
        features.extensions.extend(capabilities.extensions.iter().flat_map(|all| all.keys().cloned()));
        Ok(features)
    }

    /// Adds what the server offers to another subject. Of two definitions with the same key, the first stays.
    pub(in crate::hub) fn add(&mut self, other: FeatureDefinitions) {
        for (own, other, key) in [
            (&mut self.resources, other.resources, RESOURCE_KEY),
            (&mut self.resource_templates, other.resource_templates, TEMPLATE_KEY),
            (&mut self.prompts, other.prompts, PROMPT_KEY),
        ] {
            let known: BTreeSet<_> = own.iter().map(|item| name(item, key).to_owned()).collect();
            own.extend(other.into_iter().filter(|item| !known.contains(name(item, key))));
            own.truncate(MAX_ITEMS);
        }
        self.extensions.extend(other.extensions);
    }

    /// Removes what an agent may not use.
    pub(in crate::hub) fn retain_granted(&mut self, agent: &Agent, server: ServerId) {
        self.resources.retain(|item| agent.may_read(server, name(item, RESOURCE_KEY)));
        self.resource_templates.retain(|item| agent.may_read_template(server, name(item, TEMPLATE_KEY)));
        self.prompts.retain(|item| agent.may_render(server, name(item, PROMPT_KEY)));
    }

    /// Returns the names for users, with invisible characters escaped.
    pub(in crate::hub) fn names(&self) -> OfferedFeatures {
        let names = |items: &[Value], key: &str| {
            let no_secrets = Redactor::default(); // they are redacted already
            let mut names: Vec<_> =
                items.iter().map(|item| bounded(name(item, key), MAX_NAME_LEN, &no_secrets)).collect();
            names.sort_unstable();
            names
        };
        OfferedFeatures {
            resources: names(&self.resources, RESOURCE_KEY),
            resource_templates: names(&self.resource_templates, TEMPLATE_KEY),
            prompts: names(&self.prompts, PROMPT_KEY),
        }
    }

    pub(in crate::hub) fn counts(&self) -> FeatureCounts {
        FeatureCounts {
            resources: self.resources.len(),
            resource_templates: self.resource_templates.len(),
            prompts: self.prompts.len(),
        }
    }
}

fn name<'a>(item: &'a Value, key: &str) -> &'a str {
    item[key].as_str().unwrap_or_default()
}

/// Fetches a list. Skips definitions that are too large, that have the key of an earlier one, or whose key contains a
/// secret.
async fn definitions<T: Item + Encode>(
    pages: Pages<T>,
    key: &str,
    redactor: &Redactor,
) -> Result<Vec<Value>, ClientError> {
    let items = match pages.fresh().all().await {
        Ok(items) => items,
        // A server with resources need not support templates.
        Err(ClientError::Call(CallError::Rejected(error))) if error.code == code::METHOD_NOT_FOUND => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error),
    };
    let (mut keys, mut list_bytes) = (BTreeSet::new(), 0);
    let mut definitions = Vec::new();
    for item in items {
        let item = to_value(&item, Revision::LATEST);
        let item_key = name(&item, key).to_owned();
        let redacted = redactor.redact(item);
        let size = redacted.to_string().len();
        list_bytes += size;
        let is_usable = size <= MAX_DEFINITION_BYTES
            && list_bytes <= MAX_LIST_BYTES
            && name(&redacted, key) == item_key
            && keys.insert(item_key);
        if is_usable {
            definitions.push(redacted);
        } else {
            tracing::debug!(
                key,
                size,
                "skipping a definition that is too large, repeated, or named by a secret"
            );
        }
    }
    Ok(definitions)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn features_of_several_subjects_are_counted_once() {
        let features = |resources: &[&str]| FeatureDefinitions {
            resources: resources.iter().map(|uri| json!({ "uri": uri, "name": "a" })).collect(),
            ..FeatureDefinitions::default()
        };
        let mut all = features(&["b", "a"]);
        all.add(features(&["b", "c\u{200b}"]));
        assert_eq!(all.counts().resources, 3);
        assert_eq!(all.names().resources, ["a", "b", "c\\u{200b}"]);
    }
}
