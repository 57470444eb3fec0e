//! Client requests, decoded from their method and parameters for a revision. Decoding has three distinct outcomes: a
//! typed request, a method that the revision does not have, or invalid parameters with their location.

use std::borrow::Cow;

use linchpin_jsonrpc::Params;
use linchpin_jsonrpc::string::unescape;
use serde::de::DeserializeOwned;

use super::decode::{InvalidValue, decode};
use crate::error::Error;
use crate::methods::{Direction, Method};
use crate::model::{
    CompleteParams, GetPromptParams, GetSkillParams, InitializeParams, ReadResourceDirectoryParams,
    SetLevelParams, SubscribeParams, SubscriptionsListenParams, TaskParams, UpdateTaskParams,
};
use crate::version::Revision;

/// Decoded request from a client to a server, one variant per method.
#[derive(Debug)]
pub enum ClientRequest<'a> {
    /// Opens a session (`initialize`).
    Initialize(Box<InitializeParams>),
    /// Checks that the server responds (`ping`).
    Ping,
    /// Requests the identity, versions and capabilities of the server (`server/discover`).
    Discover,
    /// Lists tools from a cursor.
    ListTools(Option<Cow<'a, str>>),
    /// Calls a tool.
    CallTool(CallTool<'a>),
    /// Lists resources from a cursor.
    ListResources(Option<Cow<'a, str>>),
    /// Lists resource templates from a cursor.
    ListResourceTemplates(Option<Cow<'a, str>>),
    /// Reads the resource with this URI.
    ReadResource(Cow<'a, str>),
    /// Subscribes to updates of a resource.
    Subscribe(SubscribeParams),
    /// Unsubscribes from updates of a resource.
    Unsubscribe(SubscribeParams),
    /// Opens a stream of notifications.
    Listen(SubscriptionsListenParams),
    /// Lists prompts from a cursor.
    ListPrompts(Option<Cow<'a, str>>),
    /// Gets a prompt.
    GetPrompt(GetPromptParams),
    /// Completes an argument.
    Complete(Box<CompleteParams>),
    /// Sets the minimum level of the log messages that the server sends.
    SetLevel(SetLevelParams),
    /// Gets the status of a task.
    GetTask(TaskParams),
    /// Sends responses to the input requests of a task.
    UpdateTask(UpdateTaskParams),
    /// Cancels a task.
    CancelTask(TaskParams),
    /// Gets the result of a task.
    GetTaskPayload(TaskParams),
    /// Lists tasks from a cursor.
    ListTasks(Option<Cow<'a, str>>),
    /// Lists skills from a cursor.
    ListSkills(Option<Cow<'a, str>>),
    /// Gets a skill.
    GetSkill(GetSkillParams),
    /// Lists the content of a resource directory.
    ReadResourceDirectory(ReadResourceDirectoryParams),
}

/// Decoded `tools/call` request, which borrows from the message.
#[derive(Debug)]
pub struct CallTool<'a> {
    /// Name of the tool.
    pub name: Cow<'a, str>,
    /// Arguments: a JSON object as text.
    pub arguments: Option<&'a str>,
    /// Value of the member `task` as JSON text, if the call is to run as a task.
    pub task: Option<&'a str>,
}

/// Reason why a client request cannot be decoded: its method is not in the revision, or its parameters are invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecodeError {
    /// The revision has no such method, or clients cannot send it.
    NotInRevision,
    /// The parameters are invalid.
    Invalid(InvalidValue),
}

impl DecodeError {
    /// Converts the error to a protocol error for `method`.
    pub fn into_error(self, method: &str) -> Error {
        match self {
            DecodeError::NotInRevision => Error::MethodNotFound(method.to_owned()),
            DecodeError::Invalid(InvalidValue { path, reason }) => Error::InvalidParams { path, reason },
        }
    }
}

impl<'a> ClientRequest<'a> {
    /// Decodes a client request from its method and parameters.
    pub fn decode(revision: Revision, method: &str, params: &Params<'a>) -> Result<Self, DecodeError> {
        let known_method = Method::find(method).filter(|method| {
            method.is_request() && method.direction() != Direction::ToClient && method.exists_in(revision)
        });
        Ok(match known_method.ok_or(DecodeError::NotInRevision)? {
            Method::Initialize => ClientRequest::Initialize(Box::new(decode_params(params)?)),
            Method::Ping => ClientRequest::Ping,
            Method::Discover => ClientRequest::Discover,
            Method::ListTools => ClientRequest::ListTools(optional_text(params, "cursor")?),
            Method::CallTool => ClientRequest::CallTool(CallTool {
                name: required_text(params, "name")?,
                arguments: object(params, "arguments")?,
                task: object(params, "task")?,
            }),
            Method::ListResources => ClientRequest::ListResources(optional_text(params, "cursor")?),
            Method::ListResourceTemplates => {
                ClientRequest::ListResourceTemplates(optional_text(params, "cursor")?)
            }
            Method::ReadResource => ClientRequest::ReadResource(required_text(params, "uri")?),
            Method::Subscribe => ClientRequest::Subscribe(decode_params(params)?),
            Method::Unsubscribe => ClientRequest::Unsubscribe(decode_params(params)?),
            Method::Listen => ClientRequest::Listen(decode_params(params)?),
            Method::ListPrompts => ClientRequest::ListPrompts(optional_text(params, "cursor")?),
            Method::GetPrompt => ClientRequest::GetPrompt(decode_params(params)?),
            Method::Complete => ClientRequest::Complete(Box::new(decode_params(params)?)),
            Method::SetLevel => ClientRequest::SetLevel(decode_params(params)?),
            Method::GetTask => ClientRequest::GetTask(decode_params(params)?),
            Method::UpdateTask => ClientRequest::UpdateTask(decode_params(params)?),
            Method::CancelTask => ClientRequest::CancelTask(decode_params(params)?),
            Method::GetTaskPayload => ClientRequest::GetTaskPayload(decode_params(params)?),
            Method::ListTasks => ClientRequest::ListTasks(optional_text(params, "cursor")?),
            Method::ListSkills => ClientRequest::ListSkills(optional_text(params, "cursor")?),
            Method::GetSkill => ClientRequest::GetSkill(decode_params(params)?),
            Method::ReadResourceDirectory => ClientRequest::ReadResourceDirectory(decode_params(params)?),
            _ => return Err(DecodeError::NotInRevision),
        })
    }
}

fn decode_params<T: DeserializeOwned>(params: &Params<'_>) -> Result<T, DecodeError> {
    decode(params.text().unwrap_or("{}")).map_err(DecodeError::Invalid)
}

fn invalid_param<T>(key: &str, reason: &str) -> Result<T, DecodeError> {
    Err(DecodeError::Invalid(InvalidValue { path: format!("/{key}"), reason: reason.to_owned() }))
}

fn required_text<'a>(params: &Params<'a>, key: &str) -> Result<Cow<'a, str>, DecodeError> {
    optional_text(params, key)?.ok_or_else(|| {
        let reason = format!("missing field `{key}`");
        DecodeError::Invalid(InvalidValue { path: String::new(), reason })
    })
}

fn optional_text<'a>(params: &Params<'a>, key: &str) -> Result<Option<Cow<'a, str>>, DecodeError> {
    match params.find(key) {
        None | Some("null") => Ok(None),
        Some(text) if text.starts_with('"') => Ok(Some(unescape(&text[1..text.len() - 1]))),
        Some(_) => invalid_param(key, "must be a string"),
    }
}

fn object<'a>(params: &Params<'a>, key: &str) -> Result<Option<&'a str>, DecodeError> {
    match params.find(key) {
        None | Some("null") => Ok(None),
        Some(text) if text.starts_with('{') => Ok(Some(text)),
        Some(_) => invalid_param(key, "must be an object"),
    }
}
