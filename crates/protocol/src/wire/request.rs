//! Requests from a client, decoded for a revision. Three outcomes that are never merged: a typed value, a method
//! that this revision does not have, parameters that are wrong at a place.

use std::borrow::Cow;

use linchpin_jsonrpc::Params;
use linchpin_jsonrpc::string::unescape;
use serde::de::DeserializeOwned;

use super::decode::{Invalid, decode};
use crate::error::Error;
use crate::methods::{Direction, Method};
use crate::model::{
    CompleteParams, GetPromptParams, GetSkillParams, InitializeParams, ReadResourceDirectoryParams,
    SetLevelParams, SubscribeParams, SubscriptionsListenParams, TaskParams, UpdateTaskParams,
};
use crate::version::Revision;

/// What a client can ask a server.
#[derive(Debug)]
pub enum ClientRequest<'a> {
    /// Opens a session.
    Initialize(Box<InitializeParams>),
    /// Are you there?
    Ping,
    /// Who are you?
    Discover,
    /// A page of tools, from a cursor.
    ListTools(Option<Cow<'a, str>>),
    /// A call.
    CallTool(CallTool<'a>),
    /// A page of resources.
    ListResources(Option<Cow<'a, str>>),
    /// A page of resource templates.
    ListResourceTemplates(Option<Cow<'a, str>>),
    /// The resource at a URI.
    ReadResource(Cow<'a, str>),
    /// Watch a resource.
    Subscribe(SubscribeParams),
    /// Stop watching it.
    Unsubscribe(SubscribeParams),
    /// Open a stream of notifications.
    Listen(SubscriptionsListenParams),
    /// A page of prompts.
    ListPrompts(Option<Cow<'a, str>>),
    /// A prompt.
    GetPrompt(GetPromptParams),
    /// Complete an argument.
    Complete(Box<CompleteParams>),
    /// The least log level.
    SetLevel(SetLevelParams),
    /// A task's state.
    GetTask(TaskParams),
    /// Answers to a task's questions.
    UpdateTask(UpdateTaskParams),
    /// Give up a task.
    CancelTask(TaskParams),
    /// A task's result.
    GetTaskPayload(TaskParams),
    /// A page of tasks.
    ListTasks(Option<Cow<'a, str>>),
    /// A page of skills.
    ListSkills(Option<Cow<'a, str>>),
    /// A skill.
    GetSkill(GetSkillParams),
    /// What is in a folder.
    ReadResourceDirectory(ReadResourceDirectoryParams),
}

/// A call of a tool, borrowed from the message.
#[derive(Debug)]
pub struct CallTool<'a> {
    /// The tool.
    pub name: Cow<'a, str>,
    /// The arguments: an object, as JSON text.
    pub arguments: Option<&'a str>,
    /// The wish to run it as a task, as JSON text.
    pub task: Option<&'a str>,
}

/// Why a request cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecodeError {
    /// The revision has no such method, or it is not for servers.
    NotInRevision,
    /// The parameters do not fit.
    Invalid(Invalid),
}

impl DecodeError {
    /// As a protocol error about `method`.
    pub fn into_error(self, method: &str) -> Error {
        match self {
            DecodeError::NotInRevision => Error::MethodNotFound(method.to_owned()),
            DecodeError::Invalid(Invalid { path, reason }) => Error::InvalidParams { path, reason },
        }
    }
}

impl<'a> ClientRequest<'a> {
    /// Decodes a request.
    pub fn decode(revision: Revision, method: &str, params: &Params<'a>) -> Result<Self, DecodeError> {
        let known = Method::find(method).filter(|method| {
            method.is_request() && method.direction() != Direction::ToClient && method.is_in(revision)
        });
        Ok(match known.ok_or(DecodeError::NotInRevision)? {
            Method::Initialize => ClientRequest::Initialize(Box::new(whole(params)?)),
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
            Method::Subscribe => ClientRequest::Subscribe(whole(params)?),
            Method::Unsubscribe => ClientRequest::Unsubscribe(whole(params)?),
            Method::Listen => ClientRequest::Listen(whole(params)?),
            Method::ListPrompts => ClientRequest::ListPrompts(optional_text(params, "cursor")?),
            Method::GetPrompt => ClientRequest::GetPrompt(whole(params)?),
            Method::Complete => ClientRequest::Complete(Box::new(whole(params)?)),
            Method::SetLevel => ClientRequest::SetLevel(whole(params)?),
            Method::GetTask => ClientRequest::GetTask(whole(params)?),
            Method::UpdateTask => ClientRequest::UpdateTask(whole(params)?),
            Method::CancelTask => ClientRequest::CancelTask(whole(params)?),
            Method::GetTaskPayload => ClientRequest::GetTaskPayload(whole(params)?),
            Method::ListTasks => ClientRequest::ListTasks(optional_text(params, "cursor")?),
            Method::ListSkills => ClientRequest::ListSkills(optional_text(params, "cursor")?),
            Method::GetSkill => ClientRequest::GetSkill(whole(params)?),
            Method::ReadResourceDirectory => ClientRequest::ReadResourceDirectory(whole(params)?),
            _ => return Err(DecodeError::NotInRevision),
        })
    }
}

fn whole<T: DeserializeOwned>(params: &Params<'_>) -> Result<T, DecodeError> {
    decode(params.text().unwrap_or("{}")).map_err(DecodeError::Invalid)
}

fn invalid<T>(key: &str, reason: &str) -> Result<T, DecodeError> {
    Err(DecodeError::Invalid(Invalid { path: format!("/{key}"), reason: reason.to_owned() }))
}

fn required_text<'a>(params: &Params<'a>, key: &str) -> Result<Cow<'a, str>, DecodeError> {
    optional_text(params, key)?.ok_or_else(|| {
        let reason = format!("missing field `{key}`");
        DecodeError::Invalid(Invalid { path: String::new(), reason })
    })
}

fn optional_text<'a>(params: &Params<'a>, key: &str) -> Result<Option<Cow<'a, str>>, DecodeError> {
    match params.find(key) {
        None | Some("null") => Ok(None),
        Some(text) if text.starts_with('"') => Ok(Some(unescape(&text[1..text.len() - 1]))),
        Some(_) => invalid(key, "a string is expected"),
    }
}

fn object<'a>(params: &Params<'a>, key: &str) -> Result<Option<&'a str>, DecodeError> {
    match params.find(key) {
        None | Some("null") => Ok(None),
        Some(text) if text.starts_with('{') => Ok(Some(text)),
        Some(_) => invalid(key, "an object is expected"),
    }
}
