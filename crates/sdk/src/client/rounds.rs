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

use super::call::decoded;
use super::handlers::Answerer;
use super::inbox::for_server;
use super::retry::is_lost;
use super::tasks::TaskHandle;
use super::{Client, ClientError, Options};
use crate::lock::lock;
use crate::server::BoxFuture;
use crate::server_request::{Question, Reply};

/// Maximum number of input requests in one result.
const MAX_QUESTIONS: usize = 64;
/// Shortest and longest delay before a request without input requests is sent again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// A request without its parameters.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) method: Method,
    /// The tool, if this is a tool call.
    pub(crate) tool: Option<String>,
    pub(crate) options: Options,
    /// Requested TTL of a task in milliseconds, if the call should run as a task.
    pub(crate) ttl: Option<u64>,
}

/// Outcome of sending a request.
pub(super) enum Begun {
    /// The result, as JSON text.
    Done(String),
    /// The task that will produce the result.
    Task(Box<Task>),
}

/// Sends a request and waits for its result.
pub(super) async fn drive(
    client: &Client,
    request: &Request,
    params: Vec<u8>,
) -> Result<String, ClientError> {
    match begin(client, request, params).await? {
        Begun::Done(text) => Ok(text),
        // Boxed, like all rare paths, so that the future of every call stays small.
        Begun::Task(task) => {
            Box::pin(TaskHandle::new(client.clone(), task.task_id).with(request.clone()).finish()).await
        }
    }
}

/// Sends a request and handles input requests until the server returns a result or a task.
pub(super) async fn begin(client: &Client, request: &Request, params: Vec<u8>) -> Result<Begun, ClientError> {
    let (core, revision) = (&client.core, client.revision());
    let session = revision.era() == Era::Session;
    let _asker = session.then(|| register(client, &request.options));
    let tasks = client.capabilities().tasks.as_ref().filter(|_| revision.has(Feature::CoreTasks));
    let as_task = request.ttl.is_some() && tasks.is_some_and(|can| can.has_request(request.method.name()));
    let mut params = params;
    if as_task {
        let task = TaskMetadata { ttl: request.ttl };
        params = with_member(&params, "task", &to_vec(&task, revision));
    }
    let mut current: Option<Vec<u8>> = None;
    let mut time = Budget::new(client, &request.options);
    for round in 0..=core.settings.max_rounds {
        let asked = match &current {
            None => core.ask_kept(revision, request.method, &params, &request.options).await,
            // Results that depend on input responses are not cached.
            Some(params) => core.ask(revision, request.method.name(), params, &request.options).await,
        };
        let asked = match asked {
            Err(error) if request.tool.is_some() => {
                let params = current.as_ref().unwrap_or(&params);
                Box::pin(once_more(client, request, params, error)).await
            }
            asked => asked,
        };
        let text = asked.map_err(|error| lost(request, error, round > 0))?;
        if session {
            return begun_in_session(request, as_task, text);
        }
        match &*kind(&text) {
            "complete" => return Ok(Begun::Done(text)),
            "task" if request.method == Method::CallTool => {
                let created: CreateTaskResult = decoded(request.method.name(), &text)?;
                return Ok(Begun::Task(Box::new(created.task)));
            }
            "input_required" if request.method.takes_input() => {
                let asked: InputRequiredResult = decoded(request.method.name(), &text)?;
                current =
                    Some(Box::pin(next_round(client, request, &params, asked, round, &mut time)).await?);
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

fn begun_in_session(request: &Request, as_task: bool, text: String) -> Result<Begun, ClientError> {
    if as_task && wire_decodes_as_task(&text) {
        let created: CreateTaskResult = decoded(request.method.name(), &text)?;
        return Ok(Begun::Task(Box::new(created.task)));
    }
    Ok(Begun::Done(text))
}

/// Returns whether a result is a task. A server without tasks ignores the task request and returns the result
/// itself.
fn wire_decodes_as_task(text: &str) -> bool {
    Params::parse(text, Limits::default()).is_ok_and(|result| result.find("task").is_some())
}

/// Handles a failed tool call whose tool definition may be stale. A call rejected for mismatched headers was not
/// executed: refresh the tool list and send it once more.
async fn once_more(
    client: &Client,
    request: &Request,
    params: &[u8],
    error: CallError,
) -> Result<String, CallError> {
    let core = &client.core;
    match &error {
        CallError::Rejected(refused) if refused.code == code::HEADER_MISMATCH && core.carrier().is_some() => {
            if client.tools().fresh().all().await.is_err() {
                return Err(error);
            }
            core.ask(client.revision(), request.method.name(), params, &request.options).await
        }
        CallError::Rejected(refused)
            if matches!(refused.code, code::INVALID_PARAMS | code::METHOD_NOT_FOUND) =>
        {
            core.cache.forget(Method::ListTools);
            Err(error)
        }
        _ => Err(error),
    }
}

/// Converts the error of a call that was sent without receiving a response: the tool may have run.
///
/// After the first round trip the tool has started, so a request that was not sent, or that the transport rejected,
/// does not mean that the tool did not run.
fn lost(request: &Request, error: CallError, has_begun: bool) -> ClientError {
    let not_sent =
        matches!(error, CallError::Closed(_) | CallError::TooMany(_) | CallError::Transport { .. });
    match &request.tool {
        Some(tool) if is_lost(&error) || has_begun && not_sent => {
            let reason = match error {
                CallError::Lost(reason) | CallError::Closed(reason) => reason.to_string(),
                error => error.to_string(),
            };
            ClientError::OutcomeUnknown { tool: tool.clone(), reason }
        }
        _ => error.into(),
    }
}

/// Returns the `resultType` of a stateless-era result.
pub(super) fn kind(text: &str) -> Cow<'static, str> {
    if text.starts_with(r#"{"resultType":"complete""#) {
        return Cow::Borrowed("complete");
    }
    let result = Params::parse(text, Limits::default()).ok();
    let kind = result.and_then(|result| serde_json::from_str(result.find("resultType")?).ok());
    kind.map_or(Cow::Borrowed("complete"), Cow::Owned)
}

/// Total time limit of a call, including round trips and tasks: the limit of extensions by progress. Time spent in
/// handlers of server requests does not count.
pub(super) struct Budget {
    begun: Instant,
    most: Option<Duration>,
}

impl Budget {
    pub(super) fn new(client: &Client, options: &Options) -> Self {
        let most = options.extend_to.or(client.core.settings.extend_to);
        Budget { begun: Instant::now(), most }
    }

    pub(super) fn give_back(&mut self, time: Duration) {
        self.begun += time;
    }

    pub(super) fn check(&self) -> Result<(), CallError> {
        match self.most {
            Some(most) if self.begun.elapsed() > most => Err(CallError::TimedOut(most)),
            _ => Ok(()),
        }
    }
}

/// Builds the parameters of the next round trip, with the input responses.
async fn next_round(
    client: &Client,
    request: &Request,
    params: &[u8],
    asked: InputRequiredResult,
    round: usize,
    time: &mut Budget,
) -> Result<Vec<u8>, ClientError> {
    let mut next = params.to_vec();
    if let Some(requests) = asked.input_requests.filter(|requests| !requests.is_empty()) {
        let begun = Instant::now();
        let answers = answer_all(client, &request.options, requests).await?;
        time.give_back(begun.elapsed());
        next = with_member(&next, "inputResponses", &answers_json(client, &answers));
    } else {
        let pause = PAUSES.0.saturating_mul(1 << round.min(10)).min(PAUSES.1);
        tokio::time::sleep(pause).await;
    }
    if let Some(state) = asked.request_state {
        let mut text = Vec::with_capacity(state.len() + 2);
        write_string(&state, &mut text);
        next = with_member(&next, "requestState", &text);
    }
    Ok(next)
}

/// Encodes the input responses as a JSON object.
pub(super) fn answers_json(client: &Client, answers: &BTreeMap<String, Reply>) -> Vec<u8> {
    let mut out = Vec::new();
    Encoder { out: &mut out, revision: client.revision() }.object(|fields| {
        for (key, reply) in answers {
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

/// Handles input requests concurrently.
pub(super) async fn answer_all(
    client: &Client,
    options: &Options,
    requests: BTreeMap<String, InputRequest>,
) -> Result<BTreeMap<String, Reply>, ClientError> {
    if requests.len() > MAX_QUESTIONS {
        let (method, reason) =
            ("input request".to_owned(), format!("too many input requests: {}", requests.len()));
        return Err(ClientError::Question { method, reason });
    }
    let mut open = Vec::with_capacity(requests.len());
    for (key, request) in requests {
        open.push((key, request.method.clone(), answer(client, options, &request)?));
    }
    let mut answers = BTreeMap::new();
    std::future::poll_fn(|cx| {
        let mut failed = None;
        open.retain_mut(|(key, method, work)| match work.as_mut().poll(cx) {
            Poll::Pending => true,
            Poll::Ready(Ok(reply)) => {
                answers.insert(std::mem::take(key), reply);
                false
            }
            Poll::Ready(Err(error)) => {
                let (method, reason) = (std::mem::take(method), for_server(&error).to_string());
                failed = Some(ClientError::Question { method, reason });
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
    Ok(answers)
}

fn answer(
    client: &Client,
    options: &Options,
    request: &InputRequest,
) -> Result<BoxFuture<crate::Result<Reply>>, ClientError> {
    let params = request.params.as_ref().map_or_else(|| "{}".to_owned(), ToString::to_string);
    let not_offered = || ClientError::NotOffered { method: request.method.clone() };
    let question = Question::decode(&request.method, &params).map_err(|error| match error {
        linchpin_protocol::Error::MethodNotFound(_) => not_offered(),
        error => ClientError::Question { method: request.method.clone(), reason: error.to_string() },
    })?;
    let own = || client.core.handlers.capabilities().into();
    let capabilities = options.capabilities.clone().unwrap_or_else(own);
    if question.lacks(&capabilities, client.revision()).is_some() {
        return Err(not_offered());
    }
    let handlers = &client.core.handlers;
    let answer = options
        .answerer
        .as_ref()
        .map_or_else(|| handlers.answer(question.clone()), |own| own.answer(question.clone()));
    Ok(Box::pin(crate::server::caught_future(answer)))
}

/// Registers the handler of a call while it is in flight in a session, where server requests do not name the call
/// they belong to.
fn register(client: &Client, options: &Options) -> Option<Registered> {
    let answerer = options.answerer.clone()?;
    lock(&client.core.askers).push(Arc::downgrade(&answerer));
    Some(Registered { client: client.clone(), answerer })
}

struct Registered {
    client: Client,
    answerer: Arc<dyn Answerer>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        let gone = Arc::downgrade(&self.answerer);
        lock(&self.client.core.askers).retain(|asker| !asker.ptr_eq(&gone));
    }
}
