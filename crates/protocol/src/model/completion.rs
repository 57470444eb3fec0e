//! Completing an argument while the user types.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Meta;
use super::results::results;
use crate::encode::{Encode, Encoder, model};

model! {
    /// What is to be completed.
    pub struct CompleteParams {
        /// The prompt or template that the argument belongs to.
        reference: CompletionReference = "ref",
        /// The argument.
        argument: CompletionArgument = "argument",
        /// What was chosen before.
        context: Option<CompletionContext> = "context" since CompletionContext,
        /// Metadata.
        meta: Option<Meta> = "_meta",
    }

    /// An argument and what was typed so far.
    pub struct CompletionArgument {
        /// Its name.
        name: String = "name",
        /// What was typed.
        value: String = "value",
    }

    /// Arguments that are chosen already.
    #[derive(Default)]
    pub struct CompletionContext {
        /// By name.
        arguments: Option<BTreeMap<String, String>> = "arguments",
    }

    /// Proposals, best first.
    #[derive(Default)]
    pub struct Completion {
        /// At most 100.
        values: Vec<String> = "values",
        /// How many there are in all.
        total: Option<u64> = "total",
        /// Whether there are more than `values`.
        has_more: Option<bool> = "hasMore",
    }
}

results! {
    /// The answer to a completion request.
    pub struct CompleteResult {
        /// The proposals.
        completion: Completion = "completion",
    }
}

/// What an argument belongs to.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Wide")]
pub enum CompletionReference {
    /// A prompt, by name.
    Prompt {
        /// Its name.
        name: String,
        /// Its title.
        title: Option<String>,
    },
    /// A resource template, by its text.
    Resource {
        /// The URI or template.
        uri: String,
    },
}

#[derive(Deserialize)]
#[serde(expecting = "a reference to a prompt or resource")]
struct Wide {
    r#type: String,
    name: Option<String>,
    title: Option<String>,
    uri: Option<String>,
}

impl TryFrom<Wide> for CompletionReference {
    type Error = String;

    fn try_from(wide: Wide) -> Result<Self, String> {
        match &*wide.r#type {
            "ref/prompt" => {
                let name = wide.name.ok_or("a reference of type ref/prompt needs \"name\"")?;
                Ok(CompletionReference::Prompt { name, title: wide.title })
            }
            "ref/resource" => {
                let uri = wide.uri.ok_or("a reference of type ref/resource needs \"uri\"")?;
                Ok(CompletionReference::Resource { uri })
            }
            other => Err(format!("a reference is of type ref/prompt or ref/resource, not {other}")),
        }
    }
}

impl Encode for CompletionReference {
    fn encode(&self, to: &mut Encoder<'_>) {
        to.object(|fields| match self {
            CompletionReference::Prompt { name, title } => {
                fields.field("type", "ref/prompt");
                fields.field("name", name);
                fields.since(crate::Feature::Titles, "title", title);
            }
            CompletionReference::Resource { uri } => {
                fields.field("type", "ref/resource");
                fields.field("uri", uri);
            }
        });
    }
}
