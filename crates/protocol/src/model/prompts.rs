//! Prompts that a server offers.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::results::results;
use super::{CacheScope, Content, Icon, Meta, Role};
use crate::encode::model;

model! {
    /// A prompt that can be asked for.
    #[derive(Default)]
    pub struct Prompt {
        /// The name for programs.
        name: String = "name",
        /// The name for people.
        title: Option<String> = "title" since Titles,
        /// What it is for.
        description: Option<String> = "description",
        /// What it needs.
        arguments: Option<Vec<PromptArgument>> = "arguments",
        /// Pictures.
        icons: Option<Vec<Icon>> = "icons" since Icons,
        /// Metadata.
        meta: Option<Meta> = "_meta" since ItemMeta,
    }

    /// One argument of a prompt.
    #[derive(Default)]
    pub struct PromptArgument {
        /// The name for programs.
        name: String = "name",
        /// The name for people.
        title: Option<String> = "title" since Titles,
        /// What it is for.
        description: Option<String> = "description",
        /// Whether it must be given.
        required: Option<bool> = "required",
    }

    /// Which prompt, with what.
    pub struct GetPromptParams {
        /// Its name.
        name: String = "name",
        /// Its arguments: texts by name.
        arguments: Option<BTreeMap<String, String>> = "arguments",
        /// Answers to questions that an earlier result asked.
        input_responses: Option<Map<String, Value>> = "inputResponses" since Stateless,
        /// What that result wanted back.
        request_state: Option<String> = "requestState" since Stateless,
        /// Metadata.
        meta: Option<Meta> = "_meta",
    }

    /// One message of a prompt.
    pub struct PromptMessage {
        /// Who speaks.
        role: Role = "role",
        /// What is said.
        content: Content = "content",
    }
}

results! {
    /// A prompt, filled in.
    pub struct GetPromptResult {
        /// What it is for.
        description: Option<String> = "description",
        /// The messages.
        messages: Vec<PromptMessage> = "messages",
    }

    /// One page of prompts.
    pub struct ListPromptsResult {
        /// The prompts.
        prompts: Vec<Prompt> = "prompts",
        /// Where the next page begins.
        next_cursor: Option<String> = "nextCursor",
        /// Milliseconds for which this counts as fresh.
        ttl_ms: Option<u64> = "ttlMs" since CacheHints,
        /// Who may keep it.
        cache_scope: Option<CacheScope> = "cacheScope" since CacheHints,
    }
}

impl PromptMessage {
    /// Something the user says.
    pub fn user(content: impl Into<Content>) -> Self {
        Self { role: Role::User, content: content.into() }
    }

    /// Something the assistant says.
    pub fn assistant(content: impl Into<Content>) -> Self {
        Self { role: Role::Assistant, content: content.into() }
    }
}
