//! Completion of arguments of prompts and resource templates.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Meta;
use super::results::results;
use crate::encode::{Encode, Encoder, model};

model! {
    /// Parameters of `completion/complete`.
    pub struct CompleteParams {
        /// Prompt or resource template that the argument belongs to.
        reference: CompletionReference = "ref",
        /// Argument to complete.
        argument: CompletionArgument = "argument",
        /// Values of other arguments, which are already known.
        context: Option<CompletionContext> = "context" since CompletionContext,
        /// Metadata of the request (`_meta`).
        meta: Option<Meta> = "_meta",
    }

    /// Argument to be completed, with the value typed so far.
    pub struct CompletionArgument {
        /// Name of the argument.
        name: String = "name",
        /// Text that the user has typed so far.
        value: String = "value",
    }

    /// Arguments that are already chosen, as context for the completion of another one.
    #[derive(Default)]
    pub struct CompletionContext {
        /// Arguments that are already resolved, by name.
        arguments: Option<BTreeMap<String, String>> = "arguments",
    }

    /// Values that a server suggests for an argument, best first.
    #[derive(Default)]
    pub struct Completion {
        /// Suggested values, at most 100.
        values: Vec<String> = "values",
        /// Total number of completions, which may exceed the number of returned values.
        total: Option<u64> = "total",
        /// Whether there are more values than in `values`.
        has_more: Option<bool> = "hasMore",
    }
}

results! {
    /// Result of `completion/complete`.
    pub struct CompleteResult {
        /// Completion values.
        completion: Completion = "completion",
    }
}

/// Prompt or resource template whose argument is to be completed.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "RawReference")]
pub enum CompletionReference {
    /// Prompt whose argument is completed.
    Prompt {
        /// Name of the prompt.
        name: String,
        /// Display name of the prompt.
        title: Option<String>,
    },
    /// Completion of a variable of this resource template.
    Resource {
        /// URI of the resource, or URI template of the resource template.
        uri: String,
    },
}

#[derive(Deserialize)]
#[serde(expecting = "a reference to a prompt or resource")]
struct RawReference {
    r#type: String,
    name: Option<String>,
    title: Option<String>,
    uri: Option<String>,
}

impl TryFrom<RawReference> for CompletionReference {
    type Error = String;

    fn try_from(raw: RawReference) -> Result<Self, String> {
        match &*raw.r#type {
            "ref/prompt" => {
                let name = raw.name.ok_or("a reference of type ref/prompt needs \"name\"")?;
                Ok(CompletionReference::Prompt { name, title: raw.title })
            }
            "ref/resource" => {
                let uri = raw.uri.ok_or("a reference of type ref/resource needs \"uri\"")?;
                Ok(CompletionReference::Resource { uri })
            }
            other => Err(format!("the type of a reference must be ref/prompt or ref/resource, not {other}")),
        }
    }
}

impl Encode for CompletionReference {
    fn encode(&self, to: &mut Encoder<'_>) {
        to.object(|fields| match self {
            CompletionReference::Prompt { name, title } => {
                fields.field("type", "ref/prompt");
                fields.field("name", name);
                fields.field_since(crate::Feature::Titles, "title", title);
            }
            CompletionReference::Resource { uri } => {
                fields.field("type", "ref/resource");
                fields.field("uri", uri);
            }
        });
    }
}
