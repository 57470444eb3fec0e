//! Conversion of return values of prompt handlers into prompt messages.

use linchpin_protocol::model::{Content, GetPromptResult, PromptMessage};

use crate::{Error, Result};

/// Type that a prompt handler may return.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be returned from a prompt",
    label = "this prompt returns `{Self}`",
    note = "return String, &'static str, Content, PromptMessage, Vec<PromptMessage>, model::GetPromptResult, or \
            Result<_, linchpin::Error>"
)]
pub trait IntoPrompt {
    /// Converts the value into the messages of the prompt.
    fn into_prompt(self) -> Result<GetPromptResult>;
}

impl<T: IntoPrompt> IntoPrompt for Result<T, Error> {
    fn into_prompt(self) -> Result<GetPromptResult> {
        self?.into_prompt()
    }
}

impl IntoPrompt for GetPromptResult {
    fn into_prompt(self) -> Result<GetPromptResult> {
        Ok(self)
    }
}

impl IntoPrompt for Vec<PromptMessage> {
    fn into_prompt(self) -> Result<GetPromptResult> {
        Ok(GetPromptResult { description: None, messages: self, meta: None })
    }
}

impl IntoPrompt for PromptMessage {
    fn into_prompt(self) -> Result<GetPromptResult> {
        vec![self].into_prompt()
    }
}

impl IntoPrompt for Content {
    fn into_prompt(self) -> Result<GetPromptResult> {
        PromptMessage::user(self).into_prompt()
    }
}

impl IntoPrompt for String {
    fn into_prompt(self) -> Result<GetPromptResult> {
        PromptMessage::user(self).into_prompt()
    }
}

impl IntoPrompt for &'static str {
    fn into_prompt(self) -> Result<GetPromptResult> {
        PromptMessage::user(self).into_prompt()
    }
}
