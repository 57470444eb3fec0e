//! Multi round-trip requests: how a call requests input from its client without a session. The response carries the
//! input requests, the call is parked, and the retry request with the responses resumes it. The request state travels
//! through the client, sealed; if the parked call is gone, its handler is replayed from the start with the logged
//! responses.

mod parked_calls;
mod request_state;
mod state_keys;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use linchpin_jsonrpc::Params;
use linchpin_protocol::model::InputRequiredResult;
use linchpin_protocol::wire::{self, Invalid};
use linchpin_protocol::{Era, Error as ProtocolError, Method, Revision};
use serde_json::value::RawValue;

pub(crate) use parked_calls::Parking;
pub(crate) use request_state::Binding;
pub(crate) use state_keys::random;
pub use state_keys::{Key, Keys};

use self::parked_calls::{Found, Kept};
use self::request_state::{ResolvedTool, State};
use super::ask::takes_rounds;
use super::mailbox::Log;
use crate::Result;
use crate::server::connection::{Connection, Fresh, Invocation, Retry};
use crate::server::definitions::tool::ToolEntry;
use crate::server::request::cancellation::Cancel;
use crate::server::request::context::{Context, Route};
use crate::server::request::result::Answer;
use crate::server::request::scope::Scope;
use crate::server::request::work::{Outcome, tool_failure};
use crate::server::{BoxFuture, Service};

/// Guard of one round trip of a call. When it is dropped without a response, the call is dropped.
pub(crate) struct Round {
    service: Service,
    call: u128,
    number: u32,
    open: bool,
    /// Whether the call may safely run twice.
    repeatable: bool,
}

impl Drop for Round {
    fn drop(&mut self) {
        if self.open {
            self.service.parking().drop_call(self.call, self.number, self.repeatable);
        }
    }
}

/// Outcome of a retry request.
enum Resumed {
    /// The parked call resumes.
    Call(Box<Invocation>, Round),
    /// The call is replayed with its log.
    Again(Log, Round),
    /// The outcome is already known.
    Over(Outcome),
    /// Another request is running the call.
    Busy(State, Arc<tokio::sync::Notify>),
}

impl Connection {
    /// Returns the binding of the request state, if the call may request input between two requests.
    pub(in crate::server) fn binding(&self, scope: &Scope<'_>, params: &Params<'_>) -> Option<Binding> {
        let asks = scope.revision.era() == Era::Stateless && scope.context.get().is_some();
        (asks && takes_rounds(scope.method)).then(|| self.bind(scope.method, params))
    }

    fn bind(&self, method: &str, params: &Params<'_>) -> Binding {
        let settings = self.service().settings();
        let audience = settings.audience.as_ref().unwrap_or(&settings.info.name);
        Binding::new(self.service().principal(), audience, method, params)
    }

    /// Parks a call and returns the response with its input requests.
    pub(in crate::server) fn ask_round(
        &self,
        call: Invocation,
        begun: Option<Instant>,
        round: Option<Round>,
    ) -> Outcome {
        let service = self.service();
        let (Some(context), Some(binding)) = (&call.context, &call.binding) else {
            return Outcome::from(Err(crate::Error::setup("a call requested input that cannot be parked")));
        };
        let settings = service.settings();
        let (id, next) = match &round {
            Some(round) => (round.call, round.number + 1),
            None => (u128::from_le_bytes(random()), 1),
        };
        if context.questions().has_strayed() {
            let outcome = failed(&call.method, STRAYED);
            service.observe(&call.method, call.target(), begun, call.revision, &outcome);
            return outcome;
        }
        let age = settings.question_timeout;
        let state = State {
            binding: binding.clone(),
            expires: (settings.clock.since_epoch() + age).as_secs(),
            call: id,
            round: next,
            tool: call.tool().map(|tool| resolved(tool, context)),
            log: Some(context.questions().log()),
        };
        let result = InputRequiredResult {
            input_requests: Some(context.questions().open(call.revision)),
            request_state: Some(state.seal(&settings.keys)),
            meta: None,
        };
        let revision = call.revision;
        let outcome = Outcome::from(Ok(Answer::body(result)));
        service.observe(&call.method, call.target(), begun, revision, &outcome);
        let outcome = self.keep_answer(outcome, revision, call.tool(), round, false);
        context.detach();
        service.parking().park(id, next, call, service.max_parked(), age);
        outcome
    }

    /// Returns the response to a request of a call that has finished.
    pub(in crate::server) fn round_done(
        &self,
        outcome: Outcome,
        revision: Revision,
        tool: Option<&Arc<ToolEntry>>,
        round: Option<Round>,
    ) -> Outcome {
        self.keep_answer(outcome, revision, tool, round, true)
    }

    /// Caches the response of a round trip, in case it is lost in transit.
    fn keep_answer(
        &self,
        outcome: Outcome,
        revision: Revision,
        tool: Option<&Arc<ToolEntry>>,
        round: Option<Round>,
        done: bool,
    ) -> Outcome {
        let Some(mut round) = round else { return outcome };
        let Ok(answer) = &outcome.answer else { return outcome };
        let mut json = Vec::new();
        answer.encode(revision, self.service().identity(), &mut json);
        self.service().parking().keep(round.call, round.number, &json, tool, done);
        round.open = false;
        Outcome { answer: Ok(Answer::Ready(json.into())), ..outcome }
    }

    /// Resumes a call with the input responses of its client; `Err` if the request carries no state.
    pub(in crate::server) fn resume(
        self: &Arc<Self>,
        retry: &Retry<'_>,
    ) -> Result<Option<BoxFuture<()>>, Fresh> {
        if retry.revision.era() != Era::Stateless || !takes_rounds(retry.method) {
            return Err(Fresh);
        }
        let state = retry.params.find("requestState").filter(|state| *state != "null").ok_or(Fresh)?;
        let opened = self.open_state(retry, state).and_then(|state| {
            let answers = answers(retry.params)?;
            Ok((state, answers))
        });
        let (state, answers) = match opened {
            Ok(opened) => opened,
            Err(error) => return Ok(self.over(retry, &Outcome::from(Err(error.into())))),
        };
        Ok(match self.find_call(retry, state, &answers) {
            Resumed::Over(outcome) => self.over(retry, &outcome),
            Resumed::Call(call, round) => self.go_on(retry, *call, round, answers),
            Resumed::Again(log, round) => self.do_again(retry, log, round),
            Resumed::Busy(state, changed) => self.clone().wait_for_other(retry, &state, changed),
        })
    }

    fn open_state(&self, retry: &Retry<'_>, state: &str) -> Result<State, ProtocolError> {
        let text: String = serde_json::from_str(state)
            .map_err(|_| ProtocolError::invalid("/requestState", "must be a string"))?;
        let settings = self.service().settings();
        let binding = self.bind(retry.method, retry.params);
        State::open(&text, &settings.keys, &binding, settings.clock.since_epoch())
    }

    fn over(&self, retry: &Retry<'_>, outcome: &Outcome) -> Option<BoxFuture<()>> {
        self.settle(retry.id, retry.method, None, retry.begun, retry.revision, outcome)
    }

    fn find_call(&self, retry: &Retry<'_>, state: State, answers: &BTreeMap<String, String>) -> Resumed {
        let service = self.service();
        let (call, number, repeatable) = (state.call, state.round, self.is_repeatable(retry, &state));
        let round = || Round { service: service.clone(), call, number, open: true, repeatable };
        match service.parking().take(state.call, state.round, service.settings().question_timeout) {
            Found::Call(call) => Resumed::Call(call, round()),
            Found::Answer(kept) => Resumed::Over(self.repeat_answer(kept)),
            Found::Busy(changed) => Resumed::Busy(state, changed),
            Found::Stale => Resumed::Over(Outcome::from(Err(used_up().into()))),
            Found::Nothing => match state.log.clone().filter(|_| repeatable) {
                None => Resumed::Over(failed(retry.method, LOST)),
                Some(_) if !service.parking().claim(state.call, state.round, service.max_parked()) => {
                    self.find_call(retry, state, answers)
                }
                Some(mut log) => {
                    log.tool = state.tool.map(|tool| tool.name);
                    for (key, answer) in answers {
                        if log.asked.contains_key(key) {
                            log.answers.entry(key.clone()).or_insert_with(|| answer.clone());
                        }
                    }
                    Resumed::Again(log, round())
                }
            },
        }
    }

    /// Returns a cached response, if the sender has the scopes of the tool that produced it.
    fn repeat_answer(&self, kept: Kept) -> Outcome {
        let permitted = self.check_tool(kept.tool.as_ref());
        Outcome::from(permitted.map(|()| Answer::Ready(kept.answer)).map_err(Into::into))
    }

    /// Returns whether the call may safely run twice, according to the tool that it started. While only layers have
    /// run, the tool that the client names decides, and [`may_begin`] checks the tool that the layers choose.
    fn is_repeatable(&self, retry: &Retry<'_>, state: &State) -> bool {
        if Method::find(retry.method) != Some(Method::CallTool) {
            return true;
        }
        if let Some(tool) = &state.tool {
            return tool.repeatable;
        }
        let name: Option<String> = retry.params.find("name").and_then(|name| serde_json::from_str(name).ok());
        let catalog = self.service().catalog();
        name.and_then(|name| catalog.tools.find(&name)).is_some_and(|tool| tool.may_run_twice())
    }

    fn go_on(
        self: &Arc<Self>,
        retry: &Retry<'_>,
        mut call: Invocation,
        mut round: Round,
        answers: BTreeMap<String, String>,
    ) -> Option<BoxFuture<()>> {
        let check = |context: &Context| context.questions().check(&answers);
        let checked = self.check_tool(call.tool()).and_then(|()| call.context.as_ref().map_or(Ok(()), check));
        if let Err(error) = checked {
            self.service().parking().put_back(round.call, round.number, call);
            round.open = false;
            return self.over(retry, &Outcome::from(Err(error.into())));
        }
        if !call.cancel.reopen() {
            return self.over(retry, &Outcome::from(Err(used_up().into())));
        }
        let id = retry.id.clone().into_owned();
        if let Some(context) = &call.context {
            let meta = Arc::new(retry.meta.cloned().unwrap_or_default());
            context.reroute(Route { connection: Some(self.clone()), id: id.clone(), meta });
            context.questions().give(answers);
        }
        match call.work.try_finish() {
            Poll::Ready(outcome) => {
                let _ = call.cancel.answer();
                let outcome = self.round_done(outcome, call.revision, call.tool(), Some(round));
                self.settle(retry.id, retry.method, call.target(), retry.begun, call.revision, &outcome)
            }
            Poll::Pending => self.pending(id, call, retry.begun, Some(round)),
        }
    }

    fn do_again(self: &Arc<Self>, retry: &Retry<'_>, log: Log, round: Round) -> Option<BoxFuture<()>> {
        let Retry { id, method, params, revision, client, meta, begun } = *retry;
        let scope = Scope::new(self, (id, method, params), revision, client, meta);
        scope.log.set(Some(log));
        let _ = scope.context(); // creates the context, in which `may_begin` finds the log
        self.begin(&scope, params, begun, Some(round))
    }

    /// Waits for another request with the same state, whose response is also the response to this one.
    fn wait_for_other(
        self: Arc<Self>,
        retry: &Retry<'_>,
        state: &State,
        changed: Arc<tokio::sync::Notify>,
    ) -> Option<BoxFuture<()>> {
        let (id, revision) = (retry.id.clone().into_owned(), retry.revision);
        let (call, round) = (state.call, state.round);
        let cancel = Arc::new(Cancel::default());
        let entry = match self.enter(&id, retry.method, &cancel) {
            Ok(entry) => entry,
            Err(error) => return self.over(retry, &Outcome::from(Err(error.into()))),
        };
        Some(Box::pin(async move {
            let age = self.service().settings().question_timeout;
            let wait = async {
                loop {
                    let mut notified = std::pin::pin!(changed.notified());
                    notified.as_mut().enable();
                    match self.service().parking().take(call, round, age) {
                        Found::Busy(_) => notified.await,
                        found => return found,
                    }
                }
            };
            let found = tokio::select! {
                found = tokio::time::timeout(age, wait) => found,
                () = cancel.given_up() => return,
            };
            let outcome = match found {
                Ok(Found::Answer(kept)) => self.repeat_answer(kept),
                Ok(Found::Call(held)) => {
                    // The other request was rejected, and the call is parked for a valid one.
                    self.service().parking().put_back(call, round, *held);
                    let text = "another request with this state was rejected: send this one again";
                    Outcome::from(Err(ProtocolError::invalid("/requestState", text).into()))
                }
                _ => Outcome::from(Err(used_up().into())),
            };
            self.answers().room().await;
            if !cancel.answer() {
                return;
            }
            drop(entry);
            self.answers().send(|out| self.write_answer(&id, revision, &outcome, out));
        }))
    }
}

/// Records the input responses that come with a new call.
pub(crate) fn take_offers(scope: &Scope<'_>, params: &Params<'_>) -> Result<(), ProtocolError> {
    if scope.revision.era() != Era::Stateless || !takes_rounds(scope.method) {
        return Ok(());
    }
    let is_new = params.find("requestState").is_none_or(|state| state == "null");
    if is_new && params.find("inputResponses").is_some() {
        scope.log.set(Some(Log { offered: answers(params)?, ..Log::default() }));
    }
    Ok(())
}

pub(crate) const LOST: &str = "The call cannot be resumed: the server no longer holds it, and running it again might repeat \
                    its effects. Call again from the start if that is safe.";

const STRAYED: &str = "The call cannot be resumed: its replay requested different input. Call again from the \
                       start.";

/// Returns the tool of a call, and whether it may run again: by its annotations, or because it uses steps.
fn resolved(tool: &ToolEntry, context: &Context) -> ResolvedTool {
    let repeatable = tool.may_run_twice() || context.questions().has_tool_steps();
    ResolvedTool { name: (*tool.name).to_owned(), repeatable }
}

/// Returns whether a call may start this tool, see [`super::mailbox::Questions::may_begin`].
pub(crate) fn may_begin(scope: &Scope<'_>, tool: &ToolEntry) -> bool {
    scope.context.get().is_none_or(|context| context.questions().may_begin(tool))
}

/// Returns the outcome of a call that cannot be resumed.
fn failed(method: &str, why: &str) -> Outcome {
    match Method::find(method) {
        Some(Method::CallTool) => Outcome::from(Ok(tool_failure(why.to_owned()))),
        _ => Outcome::from(Err(ProtocolError::Internal(why.to_owned()).into())),
    }
}

fn used_up() -> ProtocolError {
    ProtocolError::invalid("/requestState", "this state was already used: send the request again without it")
}

/// Returns the input responses of a retry request as JSON, by the keys of the requests.
fn answers(params: &Params<'_>) -> Result<BTreeMap<String, String>, ProtocolError> {
    let Some(text) = params.find("inputResponses").filter(|text| *text != "null") else {
        return Ok(BTreeMap::new());
    };
    let answers: BTreeMap<String, Box<RawValue>> =
        wire::decode(text).map_err(|Invalid { path, reason }| {
            ProtocolError::invalid(format!("/inputResponses{path}"), reason)
        })?;
    Ok(answers.into_iter().map(|(key, answer)| (key, answer.get().to_owned())).collect())
}
