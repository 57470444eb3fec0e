//! Server requests of one call: the open ones, and a log of the responses, with which the call can be replayed from
//! its start on another instance.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard};
use std::task::{self, Poll, Waker};
use std::time::Duration;

use linchpin_protocol::encode::to_vec;
use linchpin_protocol::model::InputRequest;
use linchpin_protocol::wire::InvalidValue;
use linchpin_protocol::{Error as ProtocolError, Revision};
use tokio::time::Instant;

use crate::lock::lock;
use crate::server::Context;
#[cfg(feature = "rounds")]
use crate::server::definitions::tool::ToolEntry;
use crate::server_request::{ClientResult, ServerRequest};
use crate::siphash::stable_hash;
use crate::{Error, Result};

/// Replay log of a call: its server requests, their responses and the results of its steps.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct ReplayLog {
    /// Fingerprint of each server request, by its key: a replayed call must send the same requests.
    #[serde(rename = "asked")]
    pub(crate) request_fingerprints: BTreeMap<String, u64>,
    /// Responses to server requests as JSON, by request key.
    #[serde(rename = "answers")]
    pub(crate) responses: BTreeMap<String, String>,
    /// Results of completed steps as JSON, by step name.
    pub(crate) steps: BTreeMap<String, String>,
    /// Input responses that arrived with a new call, before any server request; each is used for the request of the
    /// same name.
    #[serde(skip)]
    pub(crate) offered: BTreeMap<String, String>,
    /// Name of the tool that the call ran, if known. Set when the call is replayed.
    #[serde(skip)]
    pub(crate) tool: Option<String>,
}

#[derive(Default)]
pub(crate) struct InputMailbox(Mutex<MailboxState>);

#[derive(Default)]
struct MailboxState {
    open: BTreeMap<String, OpenServerRequest>,
    log: ReplayLog,
    /// Number of server requests in the log when this run of the call started, and the keys of the answered ones.
    logged_count: usize,
    replayed_keys: BTreeSet<String>,
    /// Whether a server request differs from the earlier request of the same name.
    has_diverged: bool,
    /// Keys of the server requests that this run of the call has sent or replayed, so that none is used twice.
    used_keys: BTreeSet<String>,
    /// Names of the steps that ran in this run of the call, or whose results were in the replay log.
    used_steps: BTreeSet<String>,
    /// Whether the tool, not a layer, has run steps. Steps before and after it belong to layers.
    tool_has_steps: bool,
    /// Whether the tool has ended, so that later steps belong to layers.
    tool_has_ended: bool,
    /// Waker of the task that drives the call: a handler may send a server request from its own task, whose waker does
    /// not wake the driver.
    driver_waker: Option<Waker>,
    /// Total time that the call has waited for its client.
    total_wait: Duration,
    /// Start of the current waits, and their number.
    current_wait: Option<(Instant, usize)>,
}

struct OpenServerRequest {
    request: ServerRequest,
    waker: Waker,
}

impl MailboxState {
    /// Returns the key of a server request that the handler has not named. A replayed call may reach its requests in
    /// another order: a request that was sent before retains its key.
    fn unnamed_key(&mut self, request: &ServerRequest) -> String {
        let request_fingerprint = fingerprint(request);
        let is_same = |key: &String| {
            self.log.request_fingerprints.get(key) == Some(&request_fingerprint)
                && !self.used_keys.contains(key)
        };
        let before = (1..=self.logged_count).map(numbered_key).find(is_same);
        let key = before.unwrap_or_else(|| numbered_key(self.log.request_fingerprints.len() + 1));
        self.log.request_fingerprints.insert(key.clone(), request_fingerprint);
        self.used_keys.insert(key.clone());
        key
    }

    /// Returns the key of a server request that the handler has named, or `None` if the name is reserved or already
    /// used.
    fn named_key(&mut self, name: &str, request: &ServerRequest) -> Option<String> {
        if is_reserved_name(name) || !self.used_keys.insert(name.to_owned()) {
            return None;
        }
        if let Some(response) = self.log.offered.remove(name) {
            self.log.responses.entry(name.to_owned()).or_insert(response);
        }
        let request_fingerprint = fingerprint(request);
        let before = self.log.request_fingerprints.insert(name.to_owned(), request_fingerprint);
        if before != Some(request_fingerprint) && self.replayed_keys.contains(name) {
            self.has_diverged = true;
            self.log.responses.remove(name);
        }
        Some(name.to_owned())
    }

    /// Records the name of a step that the handler ran, or whose result was in the replay log.
    fn record_step(&mut self, name: &str) {
        self.used_steps.insert(name.to_owned());
        self.tool_has_steps |= !self.tool_has_ended;
    }

    fn is_answered(&self, key: &str) -> bool {
        self.log.responses.contains_key(key)
    }

    fn wake_driver(&self) {
        if let Some(watcher) = &self.driver_waker {
            watcher.wake_by_ref();
        }
    }
}

fn numbered_key(number: usize) -> String {
    format!("q{number}")
}

/// Returns whether a name has the form of the keys of unnamed requests (`q1`, `q2`, …).
fn is_reserved_name(name: &str) -> bool {
    name.strip_prefix('q').is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

impl InputMailbox {
    /// Creates the input state of a replayed call.
    /// Returns whether a server request of the call cannot have this name, because it is reserved or already used.
    pub(crate) fn has_name(&self, name: &str) -> bool {
        is_reserved_name(name) || lock(&self.0).used_keys.contains(name)
    }

    pub(crate) fn from_log(log: ReplayLog) -> Self {
        let answered_keys = log.responses.keys().cloned().collect();
        InputMailbox(Mutex::new(MailboxState {
            logged_count: log.request_fingerprints.len(),
            replayed_keys: answered_keys,
            log,
            ..MailboxState::default()
        }))
    }

    fn state(&self) -> MutexGuard<'_, MailboxState> {
        lock(&self.0)
    }

    /// Sets the waker of the task that drives the call, woken whenever the call starts or stops waiting.
    pub(crate) fn set_driver_waker(&self, watcher: &Waker) {
        self.state().driver_waker = Some(watcher.clone());
    }

    /// Returns whether a server request waits for its response.
    pub(crate) fn has_open(&self) -> bool {
        let state = self.state();
        state.open.keys().any(|key| !state.is_answered(key))
    }

    /// Returns the keys of the server requests that wait for a response.
    pub(crate) fn open_keys(&self) -> Vec<String> {
        let state = self.state();
        state.open.keys().filter(|key| !state.is_answered(key)).cloned().collect()
    }

    /// Returns whether the replay has diverged: the call sends a new request and does not use a response it received.
    pub(crate) fn has_diverged(&self) -> bool {
        let state = self.state();
        state.has_diverged
            || state.log.request_fingerprints.len() > state.logged_count
                && !state.replayed_keys.is_subset(&state.used_keys)
    }

    /// Returns whether the call waits for its client, in either era.
    pub(crate) fn is_waiting(&self) -> bool {
        self.state().current_wait.is_some()
    }

    /// Returns the server requests that wait for a response as input requests, by key.
    pub(crate) fn open(&self, revision: Revision) -> BTreeMap<String, InputRequest> {
        let state = self.state();
        let open = state.open.iter().filter(|(key, _)| !state.is_answered(key));
        open.map(|(key, open)| (key.clone(), open.request.to_input_request(revision))).collect()
    }

    /// Checks that the input responses of a client match the kinds of the pending requests.
    pub(crate) fn check(&self, responses: &BTreeMap<String, String>) -> Result<(), ProtocolError> {
        let state = self.state();
        for (key, response) in responses {
            if let Some(open) = state.open.get(key) {
                open.request.decode_result(response).map_err(|invalid| malformed_response(key, invalid))?;
            }
        }
        Ok(())
    }

    pub(crate) fn log(&self) -> ReplayLog {
        self.state().log.clone()
    }

    /// Delivers the input responses of the client; those without an open request are ignored.
    pub(crate) fn deliver(&self, responses: BTreeMap<String, String>) {
        let mut state = self.state();
        for (key, response) in responses {
            if let Some(open) = state.open.get(&key).filter(|_| !state.is_answered(&key)) {
                open.waker.wake_by_ref();
                state.log.responses.insert(key, response);
            }
        }
    }

    /// Returns the logged result of a step that ran before this run of the call started.
    pub(crate) fn find_step(&self, name: &str) -> Result<Option<String>> {
        let mut state = self.state();
        if state.used_steps.contains(name) {
            return Err(Error::setup(format!(
                "the step `{name}` has already run: use a unique name for each step of a call"
            )));
        }
        let before = state.log.steps.get(name).cloned();
        if before.is_some() {
            state.record_step(name);
        }
        Ok(before)
    }

    pub(crate) fn record_step(&self, name: &str, result: String) {
        let mut state = self.state();
        state.record_step(name);
        state.log.steps.insert(name.to_owned(), result);
    }

    /// Records that the tool starts: the steps (`Context::step`) that have run so far belong to layers.
    pub(crate) fn enter_tool(&self) {
        self.state().tool_has_steps = false;
    }

    /// Records that the tool has ended: steps (`Context::step`) that run later belong to layers.
    pub(crate) fn leave_tool(&self) {
        self.state().tool_has_ended = true;
    }

    /// Returns whether the tool itself, not only a layer, has run steps.
    #[cfg(feature = "rounds")]
    pub(crate) fn has_tool_steps(&self) -> bool {
        self.state().tool_has_steps
    }

    /// Returns whether the call, which may be a replay, may start this tool. A replayed call may start only the tool
    /// that it ran before, which was repeatable when the state was sealed. If no tool had started, because a layer sent
    /// the request, the tool must be safe to run twice.
    #[cfg(feature = "rounds")]
    pub(crate) fn may_start(&self, tool: &ToolEntry) -> bool {
        let state = self.state();
        if state.logged_count == 0 {
            return true;
        }
        match &state.log.tool {
            Some(name) => **name == *tool.name,
            None => tool.may_run_twice(),
        }
    }

    /// Returns how long the call has waited for its client.
    pub(crate) fn total_wait(&self) -> Duration {
        let state = self.state();
        state.total_wait + state.current_wait.map_or(Duration::ZERO, |(since, _)| since.elapsed())
    }

    /// Counts the time until the returned guard is dropped as waiting for the client.
    pub(crate) fn start_wait(&self) -> ClientWait<'_> {
        let mut state = self.state();
        let (since, count) = state.current_wait.unwrap_or((Instant::now(), 0));
        state.current_wait = Some((since, count + 1));
        state.wake_driver();
        ClientWait(self)
    }
}

/// Guard that counts time as waiting for the client until it is dropped. That time does not count against the timeout
/// of the tool.
pub(crate) struct ClientWait<'a>(&'a InputMailbox);

impl Drop for ClientWait<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.current_wait = match state.current_wait {
            Some((since, 1)) => {
                state.total_wait += since.elapsed();
                None
            }
            waiting => waiting.map(|(since, count)| (since, count - 1)),
        };
        state.wake_driver();
    }
}

/// Future of the response to an input request. The request is sent when the future is first polled, so that joined
/// requests are sent together.
pub(crate) struct PendingResponse<'a> {
    cx: &'a Context,
    request: ServerRequest,
    name: Option<&'a str>,
    key: Option<String>,
}

impl<'a> PendingResponse<'a> {
    pub(crate) fn new(cx: &'a Context, request: ServerRequest, name: Option<&'a str>) -> Self {
        PendingResponse { cx, request, name, key: None }
    }
}

fn invalid_name(name: &str) -> Error {
    Error::setup(format!(
        "invalid request name `{name}`: use each name once per call, and not q1, q2 and so on, which are reserved"
    ))
}

fn malformed_response(key: &str, InvalidValue { path, reason }: InvalidValue) -> ProtocolError {
    ProtocolError::invalid(format!("/inputResponses/{key}{path}"), reason)
}

/// Returns a hash that identifies a server request when its call is replayed. It is part of the sealed state, so every
/// build must compute the same.
fn fingerprint(request: &ServerRequest) -> u64 {
    stable_hash(&[request.method().name().as_bytes(), &to_vec(request, Revision::LATEST)])
}

impl Future for PendingResponse<'_> {
    type Output = Result<ClientResult>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Result<ClientResult>> {
        let mailbox = self.cx.mailbox();
        let mut state = mailbox.state();
        let key = match (&self.key, self.name) {
            (Some(key), _) => key.clone(),
            (None, None) => state.unnamed_key(&self.request),
            (None, Some(name)) => match state.named_key(name, &self.request) {
                Some(key) => key,
                None => return Poll::Ready(Err(invalid_name(name))),
            },
        };
        self.key = Some(key.clone());
        let Some(response) = state.log.responses.get(&key) else {
            let open = OpenServerRequest { request: self.request.clone(), waker: cx.waker().clone() };
            if state.open.insert(key, open).is_none() {
                state.wake_driver();
            }
            return Poll::Pending;
        };
        let reply =
            self.request.decode_result(response).map_err(|invalid| malformed_response(&key, invalid).into());
        state.open.remove(&key);
        self.key = None;
        Poll::Ready(reply)
    }
}

impl Drop for PendingResponse<'_> {
    fn drop(&mut self) {
        if let Some(key) = &self.key {
            let mut state = self.cx.mailbox().state();
            state.open.remove(key); // no task waits for the response
            if self.name.is_some() {
                state.used_keys.remove(key); // the name may be used again
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_questions_are_the_same_in_every_build() {
        assert_eq!(fingerprint(&ServerRequest::Roots), stable_hash(&[b"roots/list", b"{}"]));
    }
}
