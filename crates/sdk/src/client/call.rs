//! Client requests with options: timeout, progress hook, metadata.

use std::marker::PhantomData;
use std::time::Duration;

use linchpin_jsonrpc::string::{replace_line_breaks, write_string};
use linchpin_protocol::encode::to_vec;
use linchpin_protocol::model::{
    CallToolResult, ClientCapabilities, CompleteParams, CompleteResult, CompletionContext, EmptyResult,
    GetPromptResult, GetSkillResult, LogLevel, Meta, ReadResourceDirectoryResult, ReadResourceResult, Skill,
};
use linchpin_protocol::wire::InvalidValue;
use linchpin_protocol::{Method, wire};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

use super::active_calls::CallScope;
use super::core::ProgressHook;
use super::handlers::{CallLog, RequestFunction, ServerRequestHandler};
use super::rounds::{self, RoundRequest};
use super::tasks::{StartedCall, TaskHandle};
use super::{Client, ClientError, RequestOptions};
use crate::Result;
use crate::server::{BoxFuture, Progress};
use crate::server_request::{ClientResult, ServerRequest};

/// Client request with options, which is sent when it is awaited. Dropping the future cancels the request on the
/// server.
#[must_use = "a request is sent when it is awaited"]
pub struct Call<T = CallToolResult> {
    client: Client,
    request: RoundRequest,
    params: Result<Vec<u8>, ClientError>,
    result: PhantomData<fn() -> T>,
}

impl<T> Call<T> {
    pub(super) fn new(client: Client, method: Method, params: Result<Vec<u8>, ClientError>) -> Self {
        let request = RoundRequest { method, tool: None, options: RequestOptions::default() };
        Call { client, request, params, result: PhantomData }
    }

    /// Sets the timeout of this request, instead of the client's.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.request.options.timeout = Some(timeout);
        self
    }

    /// Restarts the timeout of this call on each progress notification, up to `max` in total.
    pub fn extend_on_progress(mut self, max: Duration) -> Self {
        self.request.options.max_timeout = Some(max);
        self
    }

    /// Sets a callback that receives the progress of the request.
    pub fn progress(mut self, callback: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.request.options.progress = Some(Arc::new(ProgressHook::new(callback)));
        self
    }

    /// Sets the `_meta` of the request.
    pub fn meta(mut self, meta: Meta) -> Self {
        self.request.options.meta = Some(Box::new(meta));
        self
    }

    /// Sends the request even if its response is cached.
    pub fn fresh(mut self) -> Self {
        self.request.options.bypass_cache = true;
        self
    }

    /// Sets the handler of the server requests that belong to this call, instead of the client's handlers.
    ///
    /// The client must declare the capabilities when it connects:
    /// [`ClientBuilder::forward_server_requests`](super::ClientBuilder::forward_server_requests) or
    /// [`ClientBuilder::on_server_request`](super::ClientBuilder::on_server_request). In a session, a server request
    /// does not always name its call; [`Client::attributes_requests`] describes how the call is found. When the call
    /// ends or is dropped, its handlers are dropped and the server receives an error.
    pub fn on_server_request<F, Fut>(self, handler: F) -> Self
    where
        F: Fn(ServerRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ClientResult>> + Send + 'static,
    {
        self.on_named_server_request(move |request, _| handler(request))
    }

    /// Like [`Self::on_server_request`]. The handler also receives the name of the request, which identifies it within
    /// the call, in revisions without sessions.
    pub fn on_named_server_request<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(ServerRequest, Option<String>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ClientResult>> + Send + 'static,
    {
        self.scope().handler = Some(Arc::new(RequestFunction::new(handler)));
        self
    }

    /// Sets the client capabilities announced with this call instead of the client's. Only revisions without sessions
    /// send capabilities with each request.
    pub fn capabilities(mut self, capabilities: impl Into<Arc<ClientCapabilities>>) -> Self {
        self.request.options.capabilities = Some(capabilities.into());
        self
    }

    /// Sets a callback for the server's log messages from `min_level` on, in addition to the client's callback. It runs
    /// on the thread that reads messages and must not block.
    ///
    /// Without a session, `min_level` is sent with the call. In a session the level of the connection decides what the
    /// server sends: [`Client::set_log_level`].
    pub fn log(mut self, min_level: LogLevel, callback: impl Fn(CallLog) + Send + Sync + 'static) -> Self {
        self.request.options.log_level = Some(min_level);
        let filtered = move |message: CallLog| {
            if message.params.level >= min_level {
                callback(message);
            }
        };
        self.scope().log = Some(Box::new(filtered));
        self
    }

    /// Sets a callback that is called when the server runs the call as a task. It must not block.
    pub fn on_task(mut self, callback: impl Fn() + Send + Sync + 'static) -> Self {
        self.scope().on_task = Some(Box::new(callback));
        self
    }

    /// Passes server requests to `handler` if it is certain that they belong to this call.
    pub(crate) fn on_own_server_request(mut self, handler: Arc<dyn ServerRequestHandler>) -> Self {
        let scope = self.scope();
        scope.handler = Some(handler);
        scope.is_strict = true;
        self
    }

    /// Returns the handlers of the call, which are shared once the call is sent.
    fn scope(&mut self) -> &mut CallScope {
        let tool = &self.request.tool;
        let new_scope = || Arc::new(CallScope::new(tool.clone()));
        let scope = self.request.options.scope.get_or_insert_with(new_scope);
        Arc::get_mut(scope).expect("a call that is not sent yet does not share its handlers")
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
        self.request.options.task_ttl = Some(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// Sends the tool call and returns the result or, if the call became a task, a handle to the task. The handlers of
    /// the call are used until this returns, and while [`TaskHandle::wait`] waits.
    pub async fn start(self) -> Result<StartedCall, ClientError> {
        let _active = self.client.core.register_call(self.request.options.scope.as_ref());
        match rounds::send(&self.client, &self.request, self.params?).await? {
            rounds::RequestProgress::Result(text) => {
                Ok(StartedCall::Done(Box::new(decode_and_validate(&self.client, &self.request, &text)?)))
            }
            rounds::RequestProgress::Task(task, progress) => Ok(StartedCall::Task(Box::new(
                TaskHandle::new(self.client, task.task_id).with_request(self.request, progress),
            ))),
        }
    }
}

impl<T: CallOutput> IntoFuture for Call<T> {
    type Output = Result<T, ClientError>;
    type IntoFuture = BoxFuture<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let text = rounds::send_and_wait(&self.client, &self.request, self.params?).await?;
            decode_and_validate(&self.client, &self.request, &text)
        })
    }
}

/// Decodes a result and validates it against the output schema of the tool.
pub(super) fn decode_and_validate<T: CallOutput>(
    client: &Client,
    request: &RoundRequest,
    text: &str,
) -> Result<T, ClientError> {
    let result = T::decode(text)
        .map_err(|invalid| ClientError::Malformed { method: request.method.name().to_owned(), invalid })?;
    match &request.tool {
        Some(tool) => result.validate(client, tool).map(|()| result),
        None => Ok(result),
    }
}

/// Result type that a client request can be decoded into.
pub trait CallOutput: DeserializeOwned + Send + 'static {
    #[doc(hidden)]
    fn decode(text: &str) -> Result<Self, InvalidValue> {
        wire::decode(text)
    }

    #[doc(hidden)]
    fn validate(&self, _: &Client, _tool: &str) -> Result<(), ClientError> {
        Ok(())
    }
}

impl CallOutput for CallToolResult {
    fn decode(text: &str) -> Result<Self, InvalidValue> {
        CallToolResult::decode_received(text)
    }

    fn validate(&self, client: &Client, tool: &str) -> Result<(), ClientError> {
        client.core.output_schemas.validate(client.core.server_label(), tool, self)
    }
}
impl CallOutput for ReadResourceResult {}
impl CallOutput for GetPromptResult {}
impl CallOutput for CompleteResult {}
impl CallOutput for EmptyResult {}
impl CallOutput for ReadResourceDirectoryResult {}

/// Decodes the skill without its cache hints.
impl CallOutput for Skill {
    fn decode(text: &str) -> Result<Self, InvalidValue> {
        wire::decode::<GetSkillResult>(text).map(|result| result.skill)
    }
}

pub(super) fn decode_result<T: DeserializeOwned>(method: &str, text: &str) -> Result<T, ClientError> {
    wire::decode(text).map_err(|invalid| ClientError::Malformed { method: method.to_owned(), invalid })
}

/// Serializes a value as a JSON object; `null` becomes `{}`.
pub(super) fn to_json_object(value: &impl Serialize) -> Result<Vec<u8>, ClientError> {
    let mut text = Vec::with_capacity(128);
    append_object(value, &mut text)?;
    Ok(text)
}

fn append_object(value: &impl Serialize, out: &mut Vec<u8>) -> Result<(), ClientError> {
    let start = out.len();
    serde_json::to_writer(&mut *out, value).map_err(|error| ClientError::BadArguments(error.to_string()))?;
    match &out[start..] {
        [b'{', ..] => {
            // A `RawValue` may contain line breaks.
            replace_line_breaks(&mut out[start..]);
            Ok(())
        }
        b"null" => {
            out.truncate(start);
            out.extend_from_slice(b"{}");
            Ok(())
        }
        other => Err(ClientError::BadArguments(String::from_utf8_lossy(other).into_owned())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    #[test]
    fn line_ends_of_raw_json_are_not_sent() {
        let raw = RawValue::from_string("{\n  \"text\": \"a\\nb\",\r\n  \"n\": 1.50\n}".into()).unwrap();
        assert_eq!(to_json_object(&raw).unwrap(), br#"{   "text": "a\nb",    "n": 1.50 }"#);
    }
}
