//! The questions of one call: those that wait for an answer, and a log of what was answered, so that the call can
//! be done again from its beginning somewhere else.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard};
use std::task::{self, Poll, Waker};
use std::time::Duration;

use linchpin_protocol::Revision;
use linchpin_protocol::encode::to_vec;
use linchpin_protocol::model::InputRequest;
use linchpin_protocol::wire::Invalid;
use tokio::time::Instant;

use super::Context;
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
}

#[derive(Default)]
pub(crate) struct Questions(Mutex<State>);

#[derive(Default)]
struct State {
    /// How many questions were asked.
    asked: u32,
    open: BTreeMap<String, Open>,
    log: Log,
    /// How long the call has waited for its client in all, and since when it does now.
    waited: Duration,
    waiting: Option<(Instant, usize)>,
}

struct Open {
    question: Question,
    waker: Waker,
}

impl Questions {
    /// Those of a call that is done again.
    pub(crate) fn with(log: Log) -> Self {
        Questions(Mutex::new(State { log, ..State::default() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    /// Whether something waits for an answer.
    pub(crate) fn has_open(&self) -> bool {
        !self.state().open.is_empty()
    }

    /// Whether the call waits for its client, in whatever way it was asked.
    pub(crate) fn is_waiting(&self) -> bool {
        self.state().waiting.is_some()
    }

    /// What waits for an answer, as it travels.
    pub(crate) fn open(&self, revision: Revision) -> BTreeMap<String, InputRequest> {
        let state = self.state();
        state.open.iter().map(|(key, open)| (key.clone(), open.question.to_input_request(revision))).collect()
    }

    pub(crate) fn log(&self) -> Log {
        self.state().log.clone()
    }

    /// Takes in answers; those to questions that are not open are ignored.
    pub(crate) fn give(&self, answers: BTreeMap<String, String>) {
        let mut state = self.state();
        for (key, answer) in answers {
            if let Some(open) = state.open.get(&key) {
                open.waker.wake_by_ref();
                state.log.answers.insert(key, answer);
            }
        }
    }

    /// The result of a step that was done before.
    pub(crate) fn find_step(&self, name: &str) -> Option<String> {
        self.state().log.steps.get(name).cloned()
    }

    pub(crate) fn note_step(&self, name: &str, result: String) {
        self.state().log.steps.insert(name.to_owned(), result);
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
    }
}

/// A question that waits for an answer to be given. It is asked when it is first polled, so that two that are
/// joined go out together.
pub(crate) struct Asked<'a> {
    cx: &'a Context,
    question: Question,
    key: Option<String>,
}

impl<'a> Asked<'a> {
    pub(crate) fn new(cx: &'a Context, question: Question) -> Self {
        Asked { cx, question, key: None }
    }

    /// Gives the question its key. A call that is done again must ask what it asked before.
    fn ask(&mut self, state: &mut State) -> Result<String> {
        state.asked += 1;
        let key = format!("q{}", state.asked);
        let mark = mark(&self.question);
        let before = *state.log.asked.entry(key.clone()).or_insert(mark);
        if before != mark {
            return Err(Error::tool(
                "the call cannot go on: done again, it asks something else than before. Call again from the start.",
            ));
        }
        self.key = Some(key.clone());
        Ok(key)
    }
}

/// A mark that tells questions apart.
fn mark(question: &Question) -> u64 {
    let mut hasher = DefaultHasher::new();
    question.method().name().hash(&mut hasher);
    to_vec(question, Revision::LATEST).hash(&mut hasher);
    hasher.finish()
}

impl Future for Asked<'_> {
    type Output = Result<Reply>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Result<Reply>> {
        let questions = self.cx.questions();
        let mut state = questions.state();
        let key = match self.key.clone() {
            Some(key) => key,
            None => match self.ask(&mut state) {
                Ok(key) => key,
                Err(error) => return Poll::Ready(Err(error)),
            },
        };
        let Some(answer) = state.log.answers.get(&key) else {
            let open = Open { question: self.question.clone(), waker: cx.waker().clone() };
            state.open.insert(key, open);
            return Poll::Pending;
        };
        let reply = self.question.reply(answer).map_err(|Invalid { path, reason }| {
            Error::invalid_params(format!("/inputResponses/{key}{path}"), reason)
        });
        state.open.remove(&key);
        self.key = None;
        Poll::Ready(reply)
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if let Some(key) = &self.key {
            self.cx.questions().state().open.remove(key); // nobody waits for the answer any more
        }
    }
}
