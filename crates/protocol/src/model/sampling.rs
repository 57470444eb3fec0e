//! Asking the client's model.

use serde::Deserialize;
use serde::de::{self, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::{Content, Meta, Role, TaskMetadata, Tool};
use crate::encode::{Encode, Encoder, model, words};
use crate::version::Feature;

model! {
    /// A conversation to continue.
    pub struct CreateMessageParams {
        /// The conversation so far.
        messages: Vec<SamplingMessage> = "messages",
        /// Which model to use.
        model_preferences: Option<ModelPreferences> = "modelPreferences",
        /// What the model is told first.
        system_prompt: Option<String> = "systemPrompt",
        /// Whose context to include: `none`, `thisServer` or `allServers`.
        include_context: Option<String> = "includeContext",
        /// How freely to sample.
        temperature: Option<f64> = "temperature",
        /// The longest answer.
        max_tokens: i64 = "maxTokens",
        /// Texts that end the answer.
        stop_sequences: Option<Vec<String>> = "stopSequences",
        /// Anything for the provider.
        metadata: Option<Map<String, Value>> = "metadata",
        /// Tools that the model may use.
        tools: Option<Vec<Tool>> = "tools" since SamplingTools,
        /// How it may use them.
        tool_choice: Option<ToolChoice> = "toolChoice" since SamplingTools,
        /// The wish that a task answers it.
        task: Option<TaskMetadata> = "task" since CoreTasks,
        /// Metadata.
        meta: Option<Meta> = "_meta" since Sessions,
    }

    /// One message of the conversation.
    pub struct SamplingMessage {
        /// Who speaks.
        role: Role = "role",
        /// What is said.
        content: SamplingContent = "content",
        /// Metadata.
        meta: Option<Meta> = "_meta" since SamplingTools,
    }

    /// Which model to use, as a wish.
    #[derive(Default)]
    pub struct ModelPreferences {
        /// Names to look for, best first.
        hints: Option<Vec<ModelHint>> = "hints",
        /// How much price matters, 0 to 1.
        cost_priority: Option<f64> = "costPriority",
        /// How much speed matters, 0 to 1.
        speed_priority: Option<f64> = "speedPriority",
        /// How much ability matters, 0 to 1.
        intelligence_priority: Option<f64> = "intelligencePriority",
    }

    /// A part of a model's name.
    pub struct ModelHint {
        /// That part.
        name: Option<String> = "name",
    }

    /// How the model may use tools.
    #[derive(Default)]
    pub struct ToolChoice {
        /// As it likes, always or never.
        mode: Option<ToolChoiceMode> = "mode",
    }
}

impl CreateMessageParams {
    /// A conversation to continue, in at most so many tokens.
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

/// One message of the user, to be answered in at most 1,000 tokens.
impl From<&str> for CreateMessageParams {
    fn from(text: &str) -> Self {
        Self::new([SamplingMessage::user(Content::text(text))], 1_000)
    }
}

/// As from `&str`.
impl From<String> for CreateMessageParams {
    fn from(text: String) -> Self {
        Self::from(&*text)
    }
}

impl SamplingMessage {
    /// What the user says.
    pub fn user(content: impl Into<SamplingContent>) -> Self {
        SamplingMessage { role: Role::User, content: content.into(), meta: None }
    }

    /// What the model said.
    pub fn assistant(content: impl Into<SamplingContent>) -> Self {
        SamplingMessage { role: Role::Assistant, content: content.into(), meta: None }
    }
}

words! {
    /// How the model may use tools.
    pub enum ToolChoiceMode {
        /// As it likes.
        Auto = "auto",
        /// It must.
        Required = "required",
        /// It must not.
        None = "none",
    }
}

model! {
    /// The model's answer. It travels as a result in the session era and inside a request in the stateless era.
    pub struct CreateMessageResult {
        /// Who speaks: the assistant.
        role: Role = "role",
        /// What it says.
        content: SamplingContent = "content",
        /// Which model it was.
        model: String = "model",
        /// Why it stopped.
        stop_reason: Option<String> = "stopReason",
        /// Metadata.
        meta: Option<Meta> = "_meta",
    }
}

impl CreateMessageResult {
    /// A text by a model.
    pub fn text(model: impl Into<String>, text: impl Into<String>) -> Self {
        CreateMessageResult {
            role: Role::Assistant,
            content: Content::text(text).into(),
            model: model.into(),
            stop_reason: Some("endTurn".into()),
            meta: None,
        }
    }

    /// The texts in it, one after the other.
    pub fn to_text(&self) -> String {
        let texts = self.content.0.iter().filter_map(Content::as_text);
        texts.collect::<Vec<_>>().join("\n")
    }
}

/// One block, or several where the revision allows it. Older revisions get the first block; where a conversation
/// has no audio, a line of text stands for it.
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
            several => to.array(several),
        }
    }
}
