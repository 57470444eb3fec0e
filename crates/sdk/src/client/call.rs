//! Requests with options: timeout, progress hook, metadata.

use std::marker::PhantomData;
use std::time::Duration;

use linchpin_jsonrpc::string::write_string;
use linchpin_protocol::encode::to_vec;
use linchpin_protocol::model::{
    CallToolResult, ClientCapabilities, CompleteParams, CompleteResult, CompletionContext, EmptyResult,
    GetPromptResult, GetSkillResult, Meta, ReadResourceDirectoryResult, ReadResourceResult, Skill,
};
use linchpin_protocol::wire::Invalid;
use linchpin_protocol::{Method, wire};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

use super::handlers::Answerer;
use super::rounds::{self, Request};
use super::tasks::{Started, TaskHandle};
use super::{Client, ClientError, Options};
use crate::server::{BoxFuture, Progress};

/// A request that is sent when it is awaited. Dropping the future cancels the request on the server.
#[must_use = "a request is sent when it is awaited"]
pub struct Call<T = CallToolResult> {
    client: Client,
    request: Request,
    params: Result<Vec<u8>, ClientError>,
    of: PhantomData<fn() -> T>,
}

impl<T> Call<T> {
    pub(super) fn new(client: Client, method: Method, params: Result<Vec<u8>, ClientError>) -> Self {
        let request = Request { method, tool: None, options: Options::default(), ttl: None };
        Call { client, request, params, of: PhantomData }
    }

    /// Sets the timeout, instead of the client's.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.request.options.timeout = Some(timeout);
        self
    }

    /// Restarts the timeout on each progress notification, up to `most` in total.
    pub fn extend_on_progress(mut self, most: Duration) -> Self {
        self.request.options.extend_to = Some(most);
        self
    }

    /// Sets the progress callback.
    pub fn progress(mut self, told: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.request.options.progress = Some(Arc::new(told));
        self
    }

    /// Sets the request metadata (`_meta`).
    pub fn meta(mut self, meta: Meta) -> Self {
        self.request.options.meta = Some(Box::new(meta));
        self
    }

    /// Bypasses the response cache.
    pub fn fresh(mut self) -> Self {
        self.request.options.fresh = true;
        self
    }

    /// Passes server requests that belong to this call to `answerer` instead of the client's handlers.
    pub(crate) fn answered_by(
        mut self,
        answerer: Arc<dyn Answerer>,
        capabilities: ClientCapabilities,
    ) -> Self {
        self.request.options.answerer = Some(answerer);
        self.request.options.capabilities = Some(Arc::new(capabilities));
        self
    }
}

impl Call<CompleteResult> {
    /// Sets the arguments that are already known, so that the server can narrow the completions. Revisions without a
    /// completion context do not send them.
    pub fn context<K: Into<String>, V: Into<String>>(
        mut self,
        arguments: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let arguments = arguments.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let context = Some(CompletionContext { arguments: Some(arguments) });
        self.params = self.params.and_then(|params| {
            let params: CompleteParams = serde_json::from_slice(&params)
                .map_err(|error| ClientError::BadArguments(error.to_string()))?;
            Ok(to_vec(&CompleteParams { context, ..params }, self.client.revision()))
        });
        self
    }
}

impl Call {
    pub(super) fn tool(client: Client, tool: String, arguments: &impl Serialize) -> Self {
        let mut params = Vec::with_capacity(256);
        params.extend_from_slice(b"{\"name\":");
        write_string(&tool, &mut params);
        params.extend_from_slice(b",\"arguments\":");
        let params = append_object(arguments, &mut params).map(|()| {
            params.push(b'}');
            params
        });
        let mut call = Call::new(client, Method::CallTool, params);
        call.request.tool = Some(tool);
        call
    }

    /// Requests to run the call as a task with this TTL, in revisions where the client decides that. Awaiting the
    /// call still waits for the result; [`Self::start`] does not.
    pub fn as_task(mut self, ttl: Duration) -> Self {
        self.request.ttl = Some(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// Sends the call and returns without waiting for a task to finish.
    pub async fn start(self) -> Result<Started, ClientError> {
        match rounds::begin(&self.client, &self.request, self.params?).await? {
            rounds::Begun::Done(text) => {
                Ok(Started::Done(Box::new(finish(&self.client, &self.request, &text)?)))
            }
            rounds::Begun::Task(task) => {
                Ok(Started::Task(Box::new(TaskHandle::new(self.client, task.task_id).with(self.request))))
            }
        }
    }
}

impl<T: Outcome> IntoFuture for Call<T> {
    type Output = Result<T, ClientError>;
    type IntoFuture = BoxFuture<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let text = rounds::drive(&self.client, &self.request, self.params?).await?;
            finish(&self.client, &self.request, &text)
        })
    }
}

/// Decodes a result and validates it against the output schema of the tool.
pub(super) fn finish<T: Outcome>(client: &Client, request: &Request, text: &str) -> Result<T, ClientError> {
    let result = T::received(text)
        .map_err(|invalid| ClientError::Malformed { method: request.method.name().to_owned(), invalid })?;
    match &request.tool {
        Some(tool) => result.check(client, tool).map(|()| result),
        None => Ok(result),
    }
}

/// Result type of a request.
pub trait Outcome: DeserializeOwned + Send + 'static {
    #[doc(hidden)]
    fn received(text: &str) -> Result<Self, Invalid> {
        wire::decode(text)
    }

    #[doc(hidden)]
    fn check(&self, _: &Client, _tool: &str) -> Result<(), ClientError> {
        Ok(())
    }
}

impl Outcome for CallToolResult {
    fn received(text: &str) -> Result<Self, Invalid> {
        CallToolResult::received(text)
    }

    fn check(&self, client: &Client, tool: &str) -> Result<(), ClientError> {
        client.core.outputs.check(client.core.server_label(), tool, self)
    }
}
impl Outcome for ReadResourceResult {}
impl Outcome for GetPromptResult {}
impl Outcome for CompleteResult {}
impl Outcome for EmptyResult {}
impl Outcome for ReadResourceDirectoryResult {}

/// Decodes the skill without its cache hints.
impl Outcome for Skill {
    fn received(text: &str) -> Result<Self, Invalid> {
        wire::decode::<GetSkillResult>(text).map(|result| result.skill)
    }
}

pub(super) fn decoded<T: DeserializeOwned>(method: &str, text: &str) -> Result<T, ClientError> {
    wire::decode(text).map_err(|invalid| ClientError::Malformed { method: method.to_owned(), invalid })
}

/// Serializes a value as a JSON object; `null` becomes `{}`.
pub(super) fn object(value: &impl Serialize) -> Result<Vec<u8>, ClientError> {
    let mut text = Vec::with_capacity(128);
    append_object(value, &mut text)?;
    Ok(text)
}

fn append_object(value: &impl Serialize, out: &mut Vec<u8>) -> Result<(), ClientError> {
    let begin = out.len();
    serde_json::to_writer(&mut *out, value).map_err(|error| ClientError::BadArguments(error.to_string()))?;
    match &out[begin..] {
        [b'{', ..] => Ok(()),
        b"null" => {
            out.truncate(begin);
            out.extend_from_slice(b"{}");
            Ok(())
        }
        other => Err(ClientError::BadArguments(String::from_utf8_lossy(other).into_owned())),
    }
}
