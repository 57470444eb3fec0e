//! Sampling: completions by the client's model.

use serde::Deserialize;
use serde::de::{self, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::{Content, Meta, Role, TaskMetadata, Tool};
use crate::encode::{Encode, Encoder, model, words};
use crate::version::Feature;

model! {
    /// Parameters of `sampling/createMessage`.
    pub struct CreateMessageParams {
        /// Messages of the conversation.
        messages: Vec<SamplingMessage> = "messages",
        /// Preferences for the choice of the model.
        model_preferences: Option<ModelPreferences> = "modelPreferences",
        /// System prompt for the client's model.
        system_prompt: Option<String> = "systemPrompt",
        /// Context to include: `none`, `thisServer` or `allServers`.
        include_context: Option<String> = "includeContext",
        /// Sampling temperature.
        temperature: Option<f64> = "temperature",
        /// Maximum number of tokens to generate.
        max_tokens: i64 = "maxTokens",
        /// Texts at which the model stops the generation.
        stop_sequences: Option<Vec<String>> = "stopSequences",
        /// Provider-specific metadata.
        metadata: Option<Map<String, Value>> = "metadata",
        /// Tools that the model may use.
        tools: Option<Vec<Tool>> = "tools" since SamplingTools,
        /// How the model may use the tools.
        tool_choice: Option<ToolChoice> = "toolChoice" since SamplingTools,
        /// Requests that the receiver runs the request as a task.
        task: Option<TaskMetadata> = "task" since CoreTasks,
        /// Metadata of the request (`_meta`).
        meta: Option<Meta> = "_meta" since Sessions,
    }

    /// Message of the conversation that the client's model continues.
    pub struct SamplingMessage {
        /// Role of the speaker.
        role: Role = "role",
        /// Content of the message.
        content: SamplingContent = "content",
        /// Metadata of the message (`_meta`).
        meta: Option<Meta> = "_meta" since SamplingTools,
    }

    /// Preferences of a server for the model that the client uses for sampling. The client may ignore them.
    #[derive(Default)]
    pub struct ModelPreferences {
        /// Model names to match, most preferred first.
        hints: Option<Vec<ModelHint>> = "hints",
        /// Importance of low cost, 0–1.
        cost_priority: Option<f64> = "costPriority",
        /// Importance of speed, 0–1.
        speed_priority: Option<f64> = "speedPriority",
        /// Importance of capability, 0–1.
        intelligence_priority: Option<f64> = "intelligencePriority",
    }

    /// Hint at a model that the server prefers for sampling.
    pub struct ModelHint {
        /// Part of a model name that the client should match.
        name: Option<String> = "name",
    }

    /// Setting of a sampling request: whether the model may, must or must not use tools.
    #[derive(Default)]
    pub struct ToolChoice {
        /// Whether the model may, must or must not use tools.
        mode: Option<ToolChoiceMode> = "mode",
    }
}

impl CreateMessageParams {
    /// Creates a sampling request for a conversation with at most `max_tokens` generated tokens.
    pub fn new(messages: impl IntoIterator<Item = SamplingMessage>, max_tokens: i64) -> Self {
        CreateMessageParams {
            messages: messages.into_iter().collect(),
            model_preferences: None,
            system_prompt: None,
            include_context: None,
            temperature: None,
            max_tokens,
            stop_sequences: None,
            metadata: None,
            tools: None,
            tool_choice: None,
            task: None,
            meta: None,
        }
    }
}

/// Creates a sampling request with one user message and at most 1,000 tokens.
impl From<&str> for CreateMessageParams {
    fn from(text: &str) -> Self {
        Self::new([SamplingMessage::user(Content::text(text))], 1_000)
    }
}

/// Creates a sampling request with one user message, as from `&str`.
impl From<String> for CreateMessageParams {
    fn from(text: String) -> Self {
        Self::from(&*text)
    }
}

impl SamplingMessage {
    /// Creates a user message.
    pub fn user(content: impl Into<SamplingContent>) -> Self {
        SamplingMessage { role: Role::User, content: content.into(), meta: None }
    }

    /// Creates an assistant message.
    pub fn assistant(content: impl Into<SamplingContent>) -> Self {
        SamplingMessage { role: Role::Assistant, content: content.into(), meta: None }
    }
}

words! {
    /// Whether the model may, must or must not use tools.
    pub enum ToolChoiceMode {
        /// The model decides whether to use tools.
        Auto = "auto",
        /// The model must use at least one tool.
        Required = "required",
        /// The model must not use tools.
        None = "none",
    }
}

model! {
    /// Result of `sampling/createMessage`: the message that the client's model generated. It is sent as a result in the
    /// session era and inside a request in the stateless era.
    pub struct CreateMessageResult {
        /// Role of the speaker: the assistant.
        role: Role = "role",
        /// Content of the message.
        content: SamplingContent = "content",
        /// Name of the model.
        model: String = "model",
        /// Reason why the generation stopped.
        stop_reason: Option<String> = "stopReason",
        /// Metadata of the result (`_meta`).
        meta: Option<Meta> = "_meta",
    }
}

impl CreateMessageResult {
    /// Creates a text message by a model.
    pub fn text(model: impl Into<String>, text: impl Into<String>) -> Self {
        CreateMessageResult {
            role: Role::Assistant,
            content: Content::text(text).into(),
            model: model.into(),
            stop_reason: Some("endTurn".into()),
            meta: None,
        }
    }

    /// Returns the text blocks of the generated message, joined by newlines.
    pub fn to_text(&self) -> String {
        let texts = self.content.0.iter().filter_map(Content::as_text);
        texts.collect::<Vec<_>>().join("\n")
    }
}

/// Content of a sampling message: one block, or several if the revision supports it. Older revisions get only the first
/// block. In revisions without audio, an audio block becomes a line of text.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingContent(pub Vec<Content>);

impl From<Content> for SamplingContent {
    fn from(content: Content) -> Self {
        SamplingContent(vec![content])
    }
}

impl<'de> Deserialize<'de> for SamplingContent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let blocks = if raw.get().trim_start().starts_with('[') {
            serde_json::from_str(raw.get())
        } else {
            serde_json::from_str(raw.get()).map(|content: Content| vec![content])
        };
        blocks.map(SamplingContent).map_err(de::Error::custom)
    }
}

impl Encode for SamplingContent {
    fn encode(&self, to: &mut Encoder<'_>) {
        match &self.0[..] {
            [Content::Audio(audio), ..] if !to.revision.has(Feature::Audio) => {
                Content::text(format!("(audio of type {})", audio.mime_type)).encode(to);
            }
            [single] => single.encode(to),
            [first, ..] if !to.revision.has(Feature::SamplingTools) => first.encode(to),
            [] if !to.revision.has(Feature::SamplingTools) => Content::text("").encode(to),
            blocks => to.array(blocks),
        }
    }
}
