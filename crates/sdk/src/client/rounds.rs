//! Multi round-trip requests: the server requests input, the client sends the responses with the request again.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use linchpin_jsonrpc::string::write_string;
use linchpin_jsonrpc::{CallError, Limits, Params};
use linchpin_protocol::encode::{Encode, Encoder, to_vec};
use linchpin_protocol::model::{CreateTaskResult, InputRequest, InputRequiredResult, Task, TaskMetadata};
use linchpin_protocol::version::Feature;
use linchpin_protocol::{Era, Method, code};
use tokio::time::Instant;

use super::call::decode_result;
use super::core::{ClientCore, ProgressHookGuard};
use super::handlers::ServerRequestHandler;
use super::inbox::to_protocol_error;
use super::retry::may_have_been_processed;
use super::tasks::TaskHandle;
use super::{Client, ClientError, RequestOptions};
use crate::server::BoxFuture;
use crate::server_request::{ClientResult, ServerRequest};

/// Maximum number of input requests in one result.
const MAX_INPUT_REQUESTS: usize = 64;
/// Shortest and longest delay before a request is sent again, if the server returned `input_required` without input
/// requests.
const RETRY_BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// What stays the same in all round trips of a client request: method, tool and options. Its parameters change.
#[derive(Clone)]
pub(crate) struct RoundRequest {
    pub(crate) method: Method,
    /// Name of the tool, if this is a tool call.
    pub(crate) tool: Option<String>,
    pub(crate) options: RequestOptions,
}

/// Registration of the progress hook of a task.
pub(super) type TaskProgress = ProgressHookGuard<Arc<ClientCore>>;

/// Outcome of sending a client request: its result, or the task that will produce it.
pub(super) enum RequestProgress {
    /// The result of the request, as JSON text.
    Result(String),
    /// The task that will produce the result of the request, and the registration of its progress hook.
    Task(Box<Task>, Option<TaskProgress>),
}

/// Sends a request and waits for its result.
pub(super) async fn send_and_wait(
    client: &Client,
    request: &RoundRequest,
    params: Vec<u8>,
) -> Result<String, ClientError> {
    let _active = client.core.register_call(request.options.scope.as_ref());
    match send(client, request, params).await? {
        RequestProgress::Result(text) => Ok(text),
        // Boxed, like all rare paths, so that the future of every call stays small.
        RequestProgress::Task(task, progress) => {
            let task = TaskHandle::new(client.clone(), task.task_id);
            Box::pin(task.with_request(request.clone(), progress).finish()).await
        }
    }
}

/// Sends a request and handles input requests until the server returns a result or a task.
pub(super) async fn send(
    client: &Client,
    request: &RoundRequest,
    params: Vec<u8>,
) -> Result<RequestProgress, ClientError> {
    let (core, revision) = (&client.core, client.revision());
    let session = revision.era() == Era::Session;
    let tasks = client.capabilities().tasks.as_ref().filter(|_| revision.has(Feature::CoreTasks));
    let ttl = request.options.task_ttl;
    let as_task =
        ttl.is_some() && tasks.is_some_and(|capabilities| capabilities.has_request(request.method.name()));
    let mut params = params;
    if as_task {
        let task = TaskMetadata { ttl };
        params = with_member(&params, "task", &to_vec(&task, revision));
    }
    let progress = ProgressHookGuard::of_task(core, &request.options);
    let mut current: Option<Vec<u8>> = None;
    let mut time = CallDeadline::new(client, &request.options);
    for round in 0..=core.settings.max_rounds {
        let response = match &current {
            None => core.request_cached(revision, request.method, &params, &request.options).await,
            // Results that depend on input responses are not cached.
            Some(params) => core.request(revision, request.method.name(), params, &request.options).await,
        };
        let response = match response {
            Err(error) if request.tool.is_some() => {
                let params = current.as_ref().unwrap_or(&params);
                Box::pin(retry_stale_tool(client, request, params, error)).await
            }
            response => response,
        };
        let text = response.map_err(|error| into_client_error(request, error, round > 0))?;
        if session {
            return session_outcome(client, request, as_task, text, progress);
        }
        match &*result_type(&text) {
            "complete" => return Ok(RequestProgress::Result(text)),
            "task" if request.method == Method::CallTool => {
                let created: CreateTaskResult = decode_result(request.method.name(), &text)?;
                return Ok(into_task(client, request, created, None));
            }
            "input_required" if request.method.supports_input_requests() => {
                let response: InputRequiredResult = decode_result(request.method.name(), &text)?;
                current =
                    Some(Box::pin(next_round(client, request, &params, response, round, &mut time)).await?);
                time.check()?;
            }
            other => {
                let (method, kind) = (request.method.name().to_owned(), other.to_owned());
                return Err(ClientError::UnexpectedResult { method, kind });
            }
        }
    }
    Err(ClientError::TooManyRounds(core.settings.max_rounds))
}

fn session_outcome(
    client: &Client,
    request: &RoundRequest,
    as_task: bool,
    text: String,
    progress: Option<TaskProgress>,
) -> Result<RequestProgress, ClientError> {
    if as_task && is_task_result(&text) {
        let created: CreateTaskResult = decode_result(request.method.name(), &text)?;
        return Ok(into_task(client, request, created, progress));
    }
    Ok(RequestProgress::Result(text))
}

fn into_task(
    client: &Client,
    request: &RoundRequest,
    created: CreateTaskResult,
    progress: Option<TaskProgress>,
) -> RequestProgress {
    if let Some(scope) = &request.options.scope {
        client.core.set_task(scope, &created.task.task_id);
        scope.on_task.iter().for_each(|callback| callback());
    }
    RequestProgress::Task(Box::new(created.task), progress)
}

/// Returns whether a JSON result announces a task instead of the final result. A server without tasks ignores the task
/// request and returns the result itself.
fn is_task_result(text: &str) -> bool {
    Params::parse(text, Limits::default()).is_ok_and(|result| result.find("task").is_some())
}

/// Retries a failed tool call whose tool definition may be stale. A call rejected for mismatched headers was not
/// executed: refresh the tool list and send it once more.
async fn retry_stale_tool(
    client: &Client,
    request: &RoundRequest,
    params: &[u8],
    error: CallError,
) -> Result<String, CallError> {
    let core = &client.core;
    match &error {
        CallError::Rejected(refused)
            if refused.code == code::HEADER_MISMATCH && core.per_request_transport().is_some() =>
        {
            if client.tools().fresh().all().await.is_err() {
                return Err(error);
            }
            core.request(client.revision(), request.method.name(), params, &request.options).await
        }
        CallError::Rejected(refused)
            if matches!(refused.code, code::INVALID_PARAMS | code::METHOD_NOT_FOUND) =>
        {
            core.cache.invalidate(Method::ListTools);
            Err(error)
        }
        _ => Err(error),
    }
}

/// Converts the error of a call that was sent without receiving a response: the tool may have run.
///
/// After the first round trip the tool has started, so a request that was not sent, or that the transport rejected,
/// does not mean that the tool did not run.
fn into_client_error(request: &RoundRequest, error: CallError, has_started: bool) -> ClientError {
    let not_sent =
        matches!(error, CallError::Closed(_) | CallError::TooManyPending(_) | CallError::Transport { .. });
    match &request.tool {
        Some(tool) if may_have_been_processed(&error) || has_started && not_sent => {
            let reason = match error {
                CallError::Lost(reason) | CallError::Closed(reason) => reason.to_string(),
                error => error.to_string(),
            };
            ClientError::OutcomeUnknown { tool: tool.clone(), reason }
        }
        _ => error.into(),
    }
}

/// Returns the `resultType` of a stateless-era result; default: `complete`.
pub(super) fn result_type(text: &str) -> Cow<'static, str> {
    if text.starts_with(r#"{"resultType":"complete""#) {
        return Cow::Borrowed("complete");
    }
    let result = Params::parse(text, Limits::default()).ok();
    let kind = result.and_then(|result| serde_json::from_str(result.find("resultType")?).ok());
    kind.map_or(Cow::Borrowed("complete"), Cow::Owned)
}

/// Total time limit of a client call, including round trips and tasks: the limit of extensions by progress. Time spent
/// in handlers of server requests does not count.
pub(super) struct CallDeadline {
    started_at: Instant,
    limit: Option<Duration>,
}

impl CallDeadline {
    pub(super) fn new(client: &Client, options: &RequestOptions) -> Self {
        let limit = options.max_timeout.or(client.core.settings.max_timeout);
        CallDeadline { started_at: Instant::now(), limit }
    }

    pub(super) fn exclude(&mut self, time: Duration) {
        self.started_at += time;
    }

    /// Returns the time that is left, if it is limited.
    pub(super) fn remaining(&self) -> Option<Duration> {
        self.limit.map(|limit| limit.saturating_sub(self.started_at.elapsed()))
    }

    pub(super) fn check(&self) -> Result<(), CallError> {
        match self.limit {
            Some(limit) if self.started_at.elapsed() > limit => Err(CallError::TimedOut(limit)),
            _ => Ok(()),
        }
    }
}

/// Builds the parameters of the next round trip of a call, with the responses to the input requests.
async fn next_round(
    client: &Client,
    request: &RoundRequest,
    params: &[u8],
    response: InputRequiredResult,
    round: usize,
    time: &mut CallDeadline,
) -> Result<Vec<u8>, ClientError> {
    let mut next = params.to_vec();
    if let Some(requests) = response.input_requests.filter(|requests| !requests.is_empty()) {
        let started_at = Instant::now();
        let responses = handle_input_requests(client, &request.options, requests).await?;
        time.exclude(started_at.elapsed());
        next = with_member(&next, "inputResponses", &encode_responses(client, &responses));
    } else {
        let delay = RETRY_BACKOFF.0.saturating_mul(1 << round.min(10)).min(RETRY_BACKOFF.1);
        tokio::time::sleep(delay).await;
    }
    if let Some(state) = response.request_state {
        let mut text = Vec::with_capacity(state.len() + 2);
        write_string(&state, &mut text);
        next = with_member(&next, "requestState", &text);
    }
    Ok(next)
}

/// Encodes the input responses as a JSON object.
pub(super) fn encode_responses(client: &Client, responses: &BTreeMap<String, ClientResult>) -> Vec<u8> {
    let mut out = Vec::new();
    Encoder { out: &mut out, revision: client.revision() }.object(|fields| {
        for (key, reply) in responses {
            fields.member(key, reply as &dyn Encode);
        }
    });
    out
}

/// Adds a member to a JSON object.
pub(super) fn with_member(object: &[u8], key: &str, value: &[u8]) -> Vec<u8> {
    let open = object.strip_suffix(b"}").unwrap_or(b"{");
    let comma: &[u8] = if open.len() > 1 { b"," } else { b"" };
    [open, comma, b"\"", key.as_bytes(), b"\":", value, b"}"].concat()
}

/// Handles the input requests of a call or task concurrently.
pub(super) async fn handle_input_requests(
    client: &Client,
    options: &RequestOptions,
    requests: BTreeMap<String, InputRequest>,
) -> Result<BTreeMap<String, ClientResult>, ClientError> {
    if requests.len() > MAX_INPUT_REQUESTS {
        let (method, reason) = (
            "input request".to_owned(),
            format!("the server requests too many inputs at once: {}", requests.len()),
        );
        return Err(ClientError::ServerRequest { method, reason });
    }
    let mut open = Vec::with_capacity(requests.len());
    for (key, request) in requests {
        let work = handle_input_request(client, options, (&key, &request))?;
        open.push((key, request.method.clone(), work));
    }
    let mut responses = BTreeMap::new();
    std::future::poll_fn(|cx| {
        let mut failed = None;
        open.retain_mut(|(key, method, work)| match work.as_mut().poll(cx) {
            Poll::Pending => true,
            Poll::Ready(Ok(reply)) => {
                responses.insert(std::mem::take(key), reply);
                false
            }
            Poll::Ready(Err(error)) => {
                let (method, reason) = (std::mem::take(method), to_protocol_error(&error).to_string());
                failed = Some(ClientError::ServerRequest { method, reason });
                false
            }
        });
        match failed {
            Some(error) => Poll::Ready(Err(error)),
            None if open.is_empty() => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    })
    .await?;
    Ok(responses)
}

fn handle_input_request(
    client: &Client,
    options: &RequestOptions,
    (name, request): (&str, &InputRequest),
) -> Result<BoxFuture<crate::Result<ClientResult>>, ClientError> {
    let params = request.params.as_ref().map_or_else(|| "{}".to_owned(), ToString::to_string);
    let not_offered = || ClientError::UnsupportedByClient { method: request.method.clone() };
    let server_request = ServerRequest::decode(&request.method, &params).map_err(|error| match error {
        linchpin_protocol::Error::MethodNotFound(_) => not_offered(),
        error => ClientError::ServerRequest { method: request.method.clone(), reason: error.to_string() },
    })?;
    let client_capabilities = || client.core.handlers.capabilities().into();
    let capabilities = options.capabilities.clone().unwrap_or_else(client_capabilities);
    if server_request.missing_capability(&capabilities, client.revision()).is_some() {
        return Err(not_offered());
    }
    let handlers = &client.core.handlers;
    let response = match options.scope.as_ref().and_then(|scope| scope.handler.as_ref()) {
        Some(handler) => handler.handle(server_request, Some(name)),
        None => handlers.handle(server_request, Some(name)),
    };
    Ok(Box::pin(crate::server::run_catching_panics(response)))
}
