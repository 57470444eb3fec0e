//! Server requests of one call: the open ones, and a log of the responses, with which the call can be replayed from
//! its start on another instance.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard};
use std::task::{self, Poll, Waker};
use std::time::Duration;

use linchpin_protocol::encode::to_vec;
use linchpin_protocol::model::InputRequest;
use linchpin_protocol::wire::Invalid;
use linchpin_protocol::{Error as ProtocolError, Revision};
use tokio::time::Instant;

use crate::lock::lock;
use crate::server::Context;
#[cfg(feature = "rounds")]
use crate::server::definitions::tool::ToolEntry;
use crate::server_request::{Question, Reply};
use crate::siphash::mark_of;
use crate::{Error, Result};

/// Replay log of a call: its server requests, their responses and the results of its steps.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Log {
    /// Fingerprint of each server request, by its key: a replayed call must send the same requests.
    pub(crate) asked: BTreeMap<String, u64>,
    /// Responses as JSON, by the keys of the server requests.
    pub(crate) answers: BTreeMap<String, String>,
    /// Results of steps as JSON, by their names.
    pub(crate) steps: BTreeMap<String, String>,
    /// Responses that came with the call itself; a server request takes the response of its name.
    #[serde(skip)]
    pub(crate) offered: BTreeMap<String, String>,
    /// Tool that the call ran, if known. Set when the call is replayed.
    #[serde(skip)]
    pub(crate) tool: Option<String>,
}

#[derive(Default)]
pub(crate) struct Questions(Mutex<State>);

#[derive(Default)]
struct State {
    open: BTreeMap<String, Open>,
    log: Log,
    /// Number of server requests in the log when this run of the call started, and the keys of the answered ones.
    known: usize,
    answered: BTreeSet<String>,
    /// Whether a server request differs from the earlier request of the same name.
    strayed: bool,
    /// Keys of the server requests since the start of this run, and names of the steps that ran or were found in the
    /// log.
    taken: BTreeSet<String>,
    stepped: BTreeSet<String>,
    /// Whether the tool has run steps, and whether it has ended. Steps before and after it belong to layers.
    tool_has_steps: bool,
    tool_has_ended: bool,
    /// Waker of the task that drives the call: a handler may send a server request from its own task, whose waker does
    /// not wake the driver.
    watcher: Option<Waker>,
    /// Total time the call has waited for its client, and the start and number of the current waits.
    waited: Duration,
    waiting: Option<(Instant, usize)>,
}

struct Open {
    question: Question,
    waker: Waker,
}

impl State {
    /// Returns the key of a server request. A replayed call may reach its requests in another order: a request that was
    /// sent before retains its key.
    fn key(&mut self, question: &Question) -> String {
        let mark = mark(question);
        let is_same = |key: &String| self.log.asked.get(key) == Some(&mark) && !self.taken.contains(key);
        let before = (1..=self.known).map(numbered).find(is_same);
        let key = before.unwrap_or_else(|| numbered(self.log.asked.len() + 1));
        self.log.asked.insert(key.clone(), mark);
        self.taken.insert(key.clone());
        key
    }

    /// Returns the key of a named server request, or `None` if the name cannot be used.
    fn named(&mut self, name: &str, question: &Question) -> Option<String> {
        if is_number(name) || !self.taken.insert(name.to_owned()) {
            return None;
        }
        if let Some(answer) = self.log.offered.remove(name) {
            self.log.answers.entry(name.to_owned()).or_insert(answer);
        }
        let mark = mark(question);
        let before = self.log.asked.insert(name.to_owned(), mark);
        if before != Some(mark) && self.answered.contains(name) {
            self.strayed = true;
            self.log.answers.remove(name);
        }
        Some(name.to_owned())
    }

    /// Records a step that ran or was found in the log.
    fn step(&mut self, name: &str) {
        self.stepped.insert(name.to_owned());
        self.tool_has_steps |= !self.tool_has_ended;
    }

    fn is_answered(&self, key: &str) -> bool {
        self.log.answers.contains_key(key)
    }

    fn wake_watcher(&self) {
        if let Some(watcher) = &self.watcher {
            watcher.wake_by_ref();
        }
    }
}

fn numbered(number: usize) -> String {
    format!("q{number}")
}

/// Returns whether a name has the form of the keys of unnamed requests (`q1`, `q2`, …).
fn is_number(name: &str) -> bool {
    name.strip_prefix('q').is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

impl Questions {
    /// Creates the state of a replayed call.
    pub(crate) fn with(log: Log) -> Self {
        let answered = log.answers.keys().cloned().collect();
        Questions(Mutex::new(State { known: log.asked.len(), answered, log, ..State::default() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    /// Sets the waker that is woken whenever the call starts or stops waiting.
    pub(crate) fn watch(&self, watcher: &Waker) {
        self.state().watcher = Some(watcher.clone());
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
    pub(crate) fn has_strayed(&self) -> bool {
        let state = self.state();
        state.strayed || state.log.asked.len() > state.known && !state.answered.is_subset(&state.taken)
    }

    /// Returns whether the call waits for its client, in either era.
    pub(crate) fn is_waiting(&self) -> bool {
        self.state().waiting.is_some()
    }

    /// Returns the open server requests as input requests.
    pub(crate) fn open(&self, revision: Revision) -> BTreeMap<String, InputRequest> {
        let state = self.state();
        let open = state.open.iter().filter(|(key, _)| !state.is_answered(key));
        open.map(|(key, open)| (key.clone(), open.question.to_input_request(revision))).collect()
    }

    /// Checks that responses match the kind of their requests.
    pub(crate) fn check(&self, answers: &BTreeMap<String, String>) -> Result<(), ProtocolError> {
        let state = self.state();
        for (key, answer) in answers {
            if let Some(open) = state.open.get(key) {
                open.question.reply(answer).map_err(|invalid| malformed(key, invalid))?;
            }
        }
        Ok(())
    }

    pub(crate) fn log(&self) -> Log {
        self.state().log.clone()
    }

    /// Delivers responses; those without an open request are ignored.
    pub(crate) fn give(&self, answers: BTreeMap<String, String>) {
        let mut state = self.state();
        for (key, answer) in answers {
            if let Some(open) = state.open.get(&key).filter(|_| !state.is_answered(&key)) {
                open.waker.wake_by_ref();
                state.log.answers.insert(key, answer);
            }
        }
    }

    /// Returns the result of a step that ran before this run of the call started.
    pub(crate) fn find_step(&self, name: &str) -> Result<Option<String>> {
        let mut state = self.state();
        if state.stepped.contains(name) {
            return Err(Error::setup(format!(
                "the step `{name}` has already run: use a unique name for each step of a call"
            )));
        }
        let before = state.log.steps.get(name).cloned();
        if before.is_some() {
            state.step(name);
        }
        Ok(before)
    }

    pub(crate) fn note_step(&self, name: &str, result: String) {
        let mut state = self.state();
        state.step(name);
        state.log.steps.insert(name.to_owned(), result);
    }

    /// Records that the tool starts: the steps so far belong to layers.
    pub(crate) fn enter_tool(&self) {
        self.state().tool_has_steps = false;
    }

    /// Records that the tool has ended: later steps belong to layers.
    pub(crate) fn leave_tool(&self) {
        self.state().tool_has_ended = true;
    }

    /// Returns whether the tool itself, not only a layer, has run steps.
    #[cfg(feature = "rounds")]
    pub(crate) fn has_tool_steps(&self) -> bool {
        self.state().tool_has_steps
    }

    /// Returns whether the call may start this tool. A replayed call may start only the tool that it ran before, which
    /// was repeatable when the state was sealed. If no tool had started, because a layer sent the request, the tool
    /// must be safe to run twice.
    #[cfg(feature = "rounds")]
    pub(crate) fn may_begin(&self, tool: &ToolEntry) -> bool {
        let state = self.state();
        if state.known == 0 {
            return true;
        }
        match &state.log.tool {
            Some(name) => **name == *tool.name,
            None => tool.may_run_twice(),
        }
    }

    /// Returns how long the call has waited for its client.
    pub(crate) fn waited(&self) -> Duration {
        let state = self.state();
        state.waited + state.waiting.map_or(Duration::ZERO, |(since, _)| since.elapsed())
    }

    /// Counts the time until the returned guard is dropped as waiting for the client.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        let mut state = self.state();
        let (since, count) = state.waiting.unwrap_or((Instant::now(), 0));
        state.waiting = Some((since, count + 1));
        state.wake_watcher();
        Waiting(self)
    }
}

/// Guard of a wait for the client.
pub(crate) struct Waiting<'a>(&'a Questions);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.waiting = match state.waiting {
            Some((since, 1)) => {
                state.waited += since.elapsed();
                None
            }
            waiting => waiting.map(|(since, count)| (since, count - 1)),
        };
        state.wake_watcher();
    }
}

/// Future of the response to an input request. The request is sent when the future is first polled, so that joined
/// requests are sent together.
pub(crate) struct Asked<'a> {
    cx: &'a Context,
    question: Question,
    name: Option<&'a str>,
    key: Option<String>,
}

impl<'a> Asked<'a> {
    pub(crate) fn new(cx: &'a Context, question: Question, name: Option<&'a str>) -> Self {
        Asked { cx, question, name, key: None }
    }
}

fn unusable(name: &str) -> Error {
    Error::setup(format!(
        "invalid request name `{name}`: use each name once per call, and not q1, q2 and so on, which are reserved"
    ))
}

fn malformed(key: &str, Invalid { path, reason }: Invalid) -> ProtocolError {
    ProtocolError::invalid(format!("/inputResponses/{key}{path}"), reason)
}

/// Returns the fingerprint of a server request. It is part of the sealed state, so every build must compute the same.
fn mark(question: &Question) -> u64 {
    mark_of(&[question.method().name().as_bytes(), &to_vec(question, Revision::LATEST)])
}

impl Future for Asked<'_> {
    type Output = Result<Reply>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Result<Reply>> {
        let questions = self.cx.questions();
        let mut state = questions.state();
        let key = match (&self.key, self.name) {
            (Some(key), _) => key.clone(),
            (None, None) => state.key(&self.question),
            (None, Some(name)) => match state.named(name, &self.question) {
                Some(key) => key,
                None => return Poll::Ready(Err(unusable(name))),
            },
        };
        self.key = Some(key.clone());
        let Some(answer) = state.log.answers.get(&key) else {
            let open = Open { question: self.question.clone(), waker: cx.waker().clone() };
            if state.open.insert(key, open).is_none() {
                state.wake_watcher();
            }
            return Poll::Pending;
        };
        let reply = self.question.reply(answer).map_err(|invalid| malformed(&key, invalid).into());
        state.open.remove(&key);
        self.key = None;
        Poll::Ready(reply)
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if let Some(key) = &self.key {
            let mut state = self.cx.questions().state();
            state.open.remove(key); // no task waits for the response
            if self.name.is_some() {
                state.taken.remove(key); // the name may be used again
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_questions_are_the_same_in_every_build() {
        assert_eq!(mark(&Question::Roots), mark_of(&[b"roots/list", b"{}"]));
    }
}
