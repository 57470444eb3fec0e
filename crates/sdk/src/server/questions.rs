//! The questions of one call: those that wait for an answer, and a log of what was answered, so that the call can
//! be done again from its beginning somewhere else.

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

use super::Context;
#[cfg(feature = "rounds")]
use super::tool::ToolEntry;
use crate::mark::mark_of;
use crate::question::{Question, Reply};
use crate::sync::lock;
use crate::{Error, Result};

/// What a call has asked and learned.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Log {
    /// A mark of each question, by its key: a call that is done again must ask the same.
    pub(crate) asked: BTreeMap<String, u64>,
    /// Answers, as JSON, by the keys of the questions.
    pub(crate) answers: BTreeMap<String, String>,
    /// Results of steps, as JSON, by their names.
    pub(crate) steps: BTreeMap<String, String>,
    /// Answers that came with the call itself, before anything was asked: a question takes the one of its name.
    #[serde(skip)]
    pub(crate) offered: BTreeMap<String, String>,
    /// The tool that the call has run, where it is known: set when the call is repeated.
    #[serde(skip)]
    pub(crate) tool: Option<String>,
}

#[derive(Default)]
pub(crate) struct Questions(Mutex<State>);

#[derive(Default)]
struct State {
    open: BTreeMap<String, Open>,
    log: Log,
    /// How many questions were in the log when the call was begun, here, and the keys of those with answers.
    known: usize,
    answered: BTreeSet<String>,
    /// A question differs from the one of the same name before.
    strayed: bool,
    /// The keys that have been asked for since then, and the steps that were done or found done.
    taken: BTreeSet<String>,
    stepped: BTreeSet<String>,
    /// Whether the tool has made steps, and whether it has ended. Steps before and after it are those of layers.
    tool_has_steps: bool,
    tool_has_ended: bool,
    /// Whoever drives the call: a handler may ask from a task of its own, which wakes nobody else.
    watcher: Option<Waker>,
    /// How long the call has waited for its client in all, and since when it does now.
    waited: Duration,
    waiting: Option<(Instant, usize)>,
}

struct Open {
    question: Question,
    waker: Waker,
}

impl State {
    /// The key for a question. A call that is done again may come to its questions in another order: one that was
    /// asked before keeps its key.
    fn key(&mut self, question: &Question) -> String {
        let mark = mark(question);
        let is_same = |key: &String| self.log.asked.get(key) == Some(&mark) && !self.taken.contains(key);
        let before = (1..=self.known).map(numbered).find(is_same);
        let key = before.unwrap_or_else(|| numbered(self.log.asked.len() + 1));
        self.log.asked.insert(key.clone(), mark);
        self.taken.insert(key.clone());
        key
    }

    /// The key for a question that its author has named; `None` when the name cannot be used.
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

    /// Notes a step that was made, or found in the log.
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

/// Whether a name is like those of questions without one.
fn is_number(name: &str) -> bool {
    name.strip_prefix('q').is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

impl Questions {
    /// Those of a call that is done again.
    pub(crate) fn with(log: Log) -> Self {
        let answered = log.answers.keys().cloned().collect();
        Questions(Mutex::new(State { known: log.asked.len(), answered, log, ..State::default() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    /// Has somebody woken whenever the call begins or ends to wait.
    pub(crate) fn watch(&self, watcher: &Waker) {
        self.state().watcher = Some(watcher.clone());
    }

    /// Whether something waits for an answer.
    pub(crate) fn has_open(&self) -> bool {
        let state = self.state();
        state.open.keys().any(|key| !state.is_answered(key))
    }

    /// The keys of what waits for an answer.
    pub(crate) fn open_keys(&self) -> Vec<String> {
        let state = self.state();
        state.open.keys().filter(|key| !state.is_answered(key)).cloned().collect()
    }

    /// Whether the call, done again, asks something new and has no use for an answer that it got before.
    pub(crate) fn has_strayed(&self) -> bool {
        let state = self.state();
        state.strayed || state.log.asked.len() > state.known && !state.answered.is_subset(&state.taken)
    }

    /// Whether the call waits for its client, in whatever way it was asked.
    pub(crate) fn is_waiting(&self) -> bool {
        self.state().waiting.is_some()
    }

    /// What waits for an answer, as it travels.
    pub(crate) fn open(&self, revision: Revision) -> BTreeMap<String, InputRequest> {
        let state = self.state();
        let open = state.open.iter().filter(|(key, _)| !state.is_answered(key));
        open.map(|(key, open)| (key.clone(), open.question.to_input_request(revision))).collect()
    }

    /// Whether answers are of the kind that was asked for.
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

    /// Takes in answers; those to questions that are not open are ignored.
    pub(crate) fn give(&self, answers: BTreeMap<String, String>) {
        let mut state = self.state();
        for (key, answer) in answers {
            if let Some(open) = state.open.get(&key).filter(|_| !state.is_answered(&key)) {
                open.waker.wake_by_ref();
                state.log.answers.insert(key, answer);
            }
        }
    }

    /// The result of a step that was done before this call was begun, here.
    pub(crate) fn find_step(&self, name: &str) -> Result<Option<String>> {
        let mut state = self.state();
        if state.stepped.contains(name) {
            return Err(Error::setup(format!("the step `{name}` was done already: each needs its own name")));
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

    /// Notes that the tool starts: steps so far were those of layers.
    pub(crate) fn enter_tool(&self) {
        self.state().tool_has_steps = false;
    }

    /// Notes that the tool has ended: steps from here on are those of layers.
    pub(crate) fn leave_tool(&self) {
        self.state().tool_has_ended = true;
    }

    /// Whether the tool itself, and not only a layer, has done its work in steps.
    #[cfg(feature = "rounds")]
    pub(crate) fn has_tool_steps(&self) -> bool {
        self.state().tool_has_steps
    }

    /// Whether the call may start this tool. A repeated call may start only the tool that it ran before, which was
    /// repeatable when the state was sealed. If no tool had started, because a layer asked first, the tool must be one
    /// that may run twice.
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

    /// How long the call has waited for its client.
    pub(crate) fn waited(&self) -> Duration {
        let state = self.state();
        state.waited + state.waiting.map_or(Duration::ZERO, |(since, _)| since.elapsed())
    }

    /// Counts the time until the value that comes back is dropped as waiting for the client.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        let mut state = self.state();
        let (since, count) = state.waiting.unwrap_or((Instant::now(), 0));
        state.waiting = Some((since, count + 1));
        state.wake_watcher();
        Waiting(self)
    }
}

/// A wait for the client.
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

/// A question that waits for an answer to be given. It is asked when it is first polled, so that two that are
/// joined go out together.
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
        "a question cannot be called `{name}`: each of a call has a name of its own, and q1, q2 and so on are taken"
    ))
}

fn malformed(key: &str, Invalid { path, reason }: Invalid) -> ProtocolError {
    ProtocolError::invalid(format!("/inputResponses/{key}{path}"), reason)
}

/// A mark that tells questions apart. It travels in the sealed state, so every build must compute the same one.
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
            state.open.remove(key); // nobody waits for the answer any more
            if self.name.is_some() {
                state.taken.remove(key); // it may be asked again
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
