//! Prompts that a server offers: definitions, parameters and results.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::results::results;
use super::{CacheScope, Content, Icon, Meta, Role};
use crate::encode::model;

model! {
    /// Prompt of a server, as listed.
    #[derive(Default)]
    pub struct Prompt {
        /// Programmatic name.
        name: String = "name",
        /// Display name.
        title: Option<String> = "title" since Titles,
        /// Description of the prompt.
        description: Option<String> = "description",
        /// Arguments of the prompt.
        arguments: Option<Vec<PromptArgument>> = "arguments",
        /// Icons to display.
        icons: Option<Vec<Icon>> = "icons" since Icons,
        /// Metadata of the prompt (`_meta`).
        meta: Option<Meta> = "_meta" since ItemMeta,
    }

    /// Argument of a prompt.
    #[derive(Default)]
    pub struct PromptArgument {
        /// Programmatic name.
        name: String = "name",
        /// Display name.
        title: Option<String> = "title" since Titles,
        /// Description of the argument.
        description: Option<String> = "description",
        /// Whether the argument is required.
        required: Option<bool> = "required",
    }

    /// Parameters of `prompts/get`.
    pub struct GetPromptParams {
        /// Name of the prompt.
        name: String = "name",
        /// Argument values by name.
        arguments: Option<BTreeMap<String, String>> = "arguments",
        /// Responses to the input requests of an earlier `input_required` result.
        input_responses: Option<Map<String, Value>> = "inputResponses" since Stateless,
        /// Request state of the earlier `input_required` result, sent back unchanged.
        request_state: Option<String> = "requestState" since Stateless,
        /// Metadata of the request (`_meta`).
        meta: Option<Meta> = "_meta",
    }

    /// Message of a prompt.
    pub struct PromptMessage {
        /// Role of the speaker.
        role: Role = "role",
        /// Content of the message.
        content: Content = "content",
    }
}

results! {
    /// Result of `prompts/get`: the prompt with its arguments filled in.
    pub struct GetPromptResult {
        /// Description of the prompt.
        description: Option<String> = "description",
        /// Messages of the prompt.
        messages: Vec<PromptMessage> = "messages",
    }

    /// Result of `prompts/list`: one page of prompts.
    pub struct ListPromptsResult {
        /// Prompts of the page.
        prompts: Vec<Prompt> = "prompts",
        /// Cursor of the next page. Absent on the last page.
        next_cursor: Option<String> = "nextCursor",
        /// Time for which the result is fresh, in milliseconds.
        ttl_ms: Option<u64> = "ttlMs" since CacheHints,
        /// Who may cache the result.
        cache_scope: Option<CacheScope> = "cacheScope" since CacheHints,
    }
}

impl PromptMessage {
    /// Creates a user message.
    pub fn user(content: impl Into<Content>) -> Self {
        Self { role: Role::User, content: content.into() }
    }

    /// Creates an assistant message.
    pub fn assistant(content: impl Into<Content>) -> Self {
        Self { role: Role::Assistant, content: content.into() }
    }
}
