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
use linchpin_protocol::wire::{self, InvalidValue};
use linchpin_protocol::{Era, Error as ProtocolError, Method, Revision};
use serde_json::value::RawValue;

pub(crate) use parked_calls::ParkedCalls;
pub(crate) use request_state::StateBinding;
pub(crate) use state_keys::random;
pub use state_keys::{StateKey, StateKeys};

use self::parked_calls::{CachedResponse, TakeOutcome};
use self::request_state::{RequestState, ResolvedTool};
use super::ask::supports_input_requests;
use super::mailbox::ReplayLog;
use crate::Result;
use crate::server::connection::{Connection, Invocation, NotARetry, RetryRequest};
use crate::server::definitions::tool::ToolEntry;
use crate::server::request::cancellation::Cancel;
use crate::server::request::context::{Context, CurrentRequest};
use crate::server::request::result::UnencodedResult;
use crate::server::request::scope::RequestScope;
use crate::server::request::work::{RequestOutcome, tool_failure};
use crate::server::{BoxFuture, Service};

/// Guard of one round trip of a resumed or replayed call. When it is dropped without a response, the call is dropped.
pub(crate) struct RoundGuard {
    service: Service,
    call: u128,
    number: u32,
    is_open: bool,
    /// Whether the call may safely run twice, so that a lost round can be replayed.
    repeatable: bool,
}

impl Drop for RoundGuard {
    fn drop(&mut self) {
        if self.is_open {
            self.service.parked_calls().drop_call(self.call, self.number, self.repeatable);
        }
    }
}

/// What a retry request does with its call: resumes it, replays it, returns its known outcome, or waits for another
/// request.
enum ResumeOutcome {
    /// The parked call resumes.
    Call(Box<Invocation>, RoundGuard),
    /// The call is replayed from its start with the replay log.
    Replay(ReplayLog, RoundGuard),
    /// The outcome of the call is already known.
    Finished(RequestOutcome),
    /// Another request is running the call.
    Busy(RequestState, Arc<tokio::sync::Notify>),
}

impl Connection {
    /// Returns the client and request that the request state is bound to, if the call may request input between two
    /// requests.
    pub(in crate::server) fn binding(
        &self,
        scope: &RequestScope<'_>,
        params: &Params<'_>,
    ) -> Option<StateBinding> {
        let may_request_input = scope.revision.era() == Era::Stateless && scope.context.get().is_some();
        (may_request_input && supports_input_requests(scope.method)).then(|| self.bind(scope.method, params))
    }

    fn bind(&self, method: &str, params: &Params<'_>) -> StateBinding {
        let settings = self.service().settings();
        let audience = settings.audience.as_ref().unwrap_or(&settings.info.name);
        StateBinding::new(self.service().principal(), audience, method, params)
    }

    /// Parks a call and returns the response with its input requests.
    pub(in crate::server) fn request_input(
        &self,
        call: Invocation,
        started: Option<Instant>,
        round: Option<RoundGuard>,
    ) -> RequestOutcome {
        let service = self.service();
        let (Some(context), Some(binding)) = (&call.context, &call.binding) else {
            return RequestOutcome::from(Err(crate::Error::setup(
                "internal error: a call without context or binding requested input, so it cannot be parked",
            )));
        };
        let settings = service.settings();
        let (id, next) = match &round {
            Some(round) => (round.call, round.number + 1),
            None => (u128::from_le_bytes(random()), 1),
        };
        if context.mailbox().has_diverged() {
            let outcome = failure_outcome(&call.method, REPLAY_DIVERGED);
            service.observe(&call.method, call.target(), started, call.revision, &outcome);
            return outcome;
        }
        let age = settings.input_timeout;
        let state = RequestState {
            binding: binding.clone(),
            expires: (settings.clock.since_epoch() + age).as_secs(),
            call: id,
            round: next,
            tool: call.tool().map(|tool| resolved_tool(tool, context)),
            log: Some(context.mailbox().log()),
        };
        let result = InputRequiredResult {
            input_requests: Some(context.mailbox().open(call.revision)),
            request_state: Some(state.seal(&settings.keys)),
            meta: None,
        };
        let revision = call.revision;
        let outcome = RequestOutcome::from(Ok(UnencodedResult::body(result)));
        service.observe(&call.method, call.target(), started, revision, &outcome);
        let outcome = self.cache_response(outcome, revision, call.tool(), round, false);
        context.detach();
        service.parked_calls().park(id, next, call, service.max_parked(), age);
        outcome
    }

    /// Returns the response of a finished call. If the call had earlier round trips, the response is also cached, in
    /// case the client repeats its last request.
    pub(in crate::server) fn finish_round(
        &self,
        outcome: RequestOutcome,
        revision: Revision,
        tool: Option<&Arc<ToolEntry>>,
        round: Option<RoundGuard>,
    ) -> RequestOutcome {
        self.cache_response(outcome, revision, tool, round, true)
    }

    /// Caches the response of a round trip, in case it is lost in transit.
    fn cache_response(
        &self,
        outcome: RequestOutcome,
        revision: Revision,
        tool: Option<&Arc<ToolEntry>>,
        round: Option<RoundGuard>,
        done: bool,
    ) -> RequestOutcome {
        let Some(mut round) = round else { return outcome };
        let Ok(result) = &outcome.result else { return outcome };
        let mut json = Vec::new();
        result.encode(revision, self.service().identity(), &mut json);
        self.service().parked_calls().cache_response(round.call, round.number, &json, tool, done);
        round.is_open = false;
        RequestOutcome { result: Ok(UnencodedResult::Ready(json.into())), ..outcome }
    }

    /// Resumes an `input_required` call with the input responses of its client; `Err` if the request carries no state.
    pub(in crate::server) fn resume(
        self: &Arc<Self>,
        retry: &RetryRequest<'_>,
    ) -> Result<Option<BoxFuture<()>>, NotARetry> {
        if retry.revision.era() != Era::Stateless || !supports_input_requests(retry.method) {
            return Err(NotARetry);
        }
        let state = retry.params.find("requestState").filter(|state| *state != "null").ok_or(NotARetry)?;
        let opened_state = self.open_state(retry, state).and_then(|state| {
            let responses = input_responses(retry.params)?;
            Ok((state, responses))
        });
        let (state, responses) = match opened_state {
            Ok(opened_state) => opened_state,
            Err(error) => return Ok(self.respond_to_retry(retry, &RequestOutcome::from(Err(error.into())))),
        };
        Ok(match self.find_call(retry, state, &responses) {
            ResumeOutcome::Finished(outcome) => self.respond_to_retry(retry, &outcome),
            ResumeOutcome::Call(call, round) => self.resume_parked(retry, *call, round, responses),
            ResumeOutcome::Replay(log, round) => self.replay(retry, log, round),
            ResumeOutcome::Busy(state, changed) => self.clone().wait_for_other(retry, &state, changed),
        })
    }

    fn open_state(&self, retry: &RetryRequest<'_>, state: &str) -> Result<RequestState, ProtocolError> {
        let text: String = serde_json::from_str(state)
            .map_err(|_| ProtocolError::invalid("/requestState", "must be a string"))?;
        let settings = self.service().settings();
        let binding = self.bind(retry.method, retry.params);
        RequestState::open(&text, &settings.keys, &binding, settings.clock.since_epoch())
    }

    fn respond_to_retry(&self, retry: &RetryRequest<'_>, outcome: &RequestOutcome) -> Option<BoxFuture<()>> {
        self.respond(retry.id, retry.method, None, retry.started, retry.revision, outcome)
    }

    fn find_call(
        &self,
        retry: &RetryRequest<'_>,
        state: RequestState,
        responses: &BTreeMap<String, String>,
    ) -> ResumeOutcome {
        let service = self.service();
        let (call, number, repeatable) = (state.call, state.round, self.is_repeatable(retry, &state));
        let round = || RoundGuard { service: service.clone(), call, number, is_open: true, repeatable };
        match service.parked_calls().take(state.call, state.round, service.settings().input_timeout) {
            TakeOutcome::Call(call) => ResumeOutcome::Call(call, round()),
            TakeOutcome::Cached(cached) => ResumeOutcome::Finished(self.resend_response(cached)),
            TakeOutcome::Busy(changed) => ResumeOutcome::Busy(state, changed),
            TakeOutcome::Stale => {
                ResumeOutcome::Finished(RequestOutcome::from(Err(state_already_used().into())))
            }
            TakeOutcome::NotFound => match state.log.clone().filter(|_| repeatable) {
                None => ResumeOutcome::Finished(failure_outcome(retry.method, CALL_LOST)),
                Some(_)
                    if !service.parked_calls().claim_replay(
                        state.call,
                        state.round,
                        service.max_parked(),
                    ) =>
                {
                    self.find_call(retry, state, responses)
                }
                Some(mut log) => {
                    log.tool = state.tool.map(|tool| tool.name);
                    for (key, response) in responses {
                        if log.request_fingerprints.contains_key(key) {
                            log.responses.entry(key.clone()).or_insert_with(|| response.clone());
                        }
                    }
                    ResumeOutcome::Replay(log, round())
                }
            },
        }
    }

    /// Returns a cached response, if the sender has the scopes of the tool that produced it.
    fn resend_response(&self, cached: CachedResponse) -> RequestOutcome {
        let permitted = self.check_tool(cached.tool.as_ref());
        RequestOutcome::from(permitted.map(|()| UnencodedResult::Ready(cached.response)).map_err(Into::into))
    }

    /// Returns whether the call may safely run twice, according to the tool that it started. While only layers have
    /// run, the tool that the client names decides, and [`may_start`] checks the tool that the layers choose.
    fn is_repeatable(&self, retry: &RetryRequest<'_>, state: &RequestState) -> bool {
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

    fn resume_parked(
        self: &Arc<Self>,
        retry: &RetryRequest<'_>,
        mut call: Invocation,
        mut round: RoundGuard,
        responses: BTreeMap<String, String>,
    ) -> Option<BoxFuture<()>> {
        let check = |context: &Context| context.mailbox().check(&responses);
        let checked = self.check_tool(call.tool()).and_then(|()| call.context.as_ref().map_or(Ok(()), check));
        if let Err(error) = checked {
            self.service().parked_calls().put_back(round.call, round.number, call);
            round.is_open = false;
            return self.respond_to_retry(retry, &RequestOutcome::from(Err(error.into())));
        }
        if !call.cancel.reopen() {
            return self.respond_to_retry(retry, &RequestOutcome::from(Err(state_already_used().into())));
        }
        let id = retry.id.clone().into_owned();
        if let Some(context) = &call.context {
            let meta = Arc::new(retry.meta.cloned().unwrap_or_default());
            context.continue_with(CurrentRequest { connection: Some(self.clone()), id: id.clone(), meta });
            context.mailbox().deliver(responses);
        }
        match call.future.try_finish() {
            Poll::Ready(outcome) => {
                let _ = call.cancel.claim_response();
                let outcome = self.finish_round(outcome, call.revision, call.tool(), Some(round));
                self.respond(retry.id, retry.method, call.target(), retry.started, call.revision, &outcome)
            }
            Poll::Pending => self.pending(id, call, retry.started, Some(round)),
        }
    }

    fn replay(
        self: &Arc<Self>,
        retry: &RetryRequest<'_>,
        log: ReplayLog,
        round: RoundGuard,
    ) -> Option<BoxFuture<()>> {
        let RetryRequest { id, method, params, revision, client, meta, started } = *retry;
        let scope = RequestScope::new(self, (id, method, params), revision, client, meta);
        scope.log.set(Some(log));
        let _ = scope.context(); // creates the context, in which `may_begin` finds the log
        self.start(&scope, params, started, Some(round))
    }

    /// Waits for another request with the same state, whose response is also the response to this one.
    fn wait_for_other(
        self: Arc<Self>,
        retry: &RetryRequest<'_>,
        state: &RequestState,
        changed: Arc<tokio::sync::Notify>,
    ) -> Option<BoxFuture<()>> {
        let (id, revision) = (retry.id.clone().into_owned(), retry.revision);
        let (call, round) = (state.call, state.round);
        let cancel = Arc::new(Cancel::default());
        let entry = match self.insert_in_flight(&id, retry.method, &cancel) {
            Ok(entry) => entry,
            Err(error) => return self.respond_to_retry(retry, &RequestOutcome::from(Err(error.into()))),
        };
        Some(Box::pin(async move {
            let age = self.service().settings().input_timeout;
            let wait = async {
                loop {
                    let mut notified = std::pin::pin!(changed.notified());
                    notified.as_mut().enable();
                    match self.service().parked_calls().take(call, round, age) {
                        TakeOutcome::Busy(_) => notified.await,
                        found => return found,
                    }
                }
            };
            let found = tokio::select! {
                found = tokio::time::timeout(age, wait) => found,
                () = cancel.cancelled_unobserved() => return,
            };
            let outcome = match found {
                Ok(TakeOutcome::Cached(cached)) => self.resend_response(cached),
                Ok(TakeOutcome::Call(invocation)) => {
                    // The other request was rejected, and the call is parked for a valid one.
                    self.service().parked_calls().put_back(call, round, *invocation);
                    let text =
                        "another request with the same requestState was rejected: send this request again";
                    RequestOutcome::from(Err(ProtocolError::invalid("/requestState", text).into()))
                }
                _ => RequestOutcome::from(Err(state_already_used().into())),
            };
            self.responses().wait_for_space().await;
            if !cancel.claim_response() {
                return;
            }
            drop(entry);
            self.responses().send(|out| self.write_response(&id, revision, &outcome, out));
        }))
    }
}

/// Records the input responses that come with a new call.
pub(crate) fn take_early_responses(
    scope: &RequestScope<'_>,
    params: &Params<'_>,
) -> Result<(), ProtocolError> {
    if scope.revision.era() != Era::Stateless || !supports_input_requests(scope.method) {
        return Ok(());
    }
    let is_new = params.find("requestState").is_none_or(|state| state == "null");
    if is_new && params.find("inputResponses").is_some() {
        scope.log.set(Some(ReplayLog { offered: input_responses(params)?, ..ReplayLog::default() }));
    }
    Ok(())
}

pub(crate) const CALL_LOST: &str = "The call cannot be resumed: the server no longer holds it, and running it again might repeat \
                    its effects. Call again from the start if that is safe.";

const REPLAY_DIVERGED: &str = "The call cannot be resumed: its replay requested different input. Call again from the \
                       start.";

/// Returns the tool that a call has started, and whether it may run again: by its annotations, or because it uses
/// steps.
fn resolved_tool(tool: &ToolEntry, context: &Context) -> ResolvedTool {
    let repeatable = tool.may_run_twice() || context.mailbox().has_tool_steps();
    ResolvedTool { name: (*tool.name).to_owned(), repeatable }
}

/// Returns whether a call, which may be a replay, may start this tool.
pub(crate) fn may_start(scope: &RequestScope<'_>, tool: &ToolEntry) -> bool {
    scope.context.get().is_none_or(|context| context.mailbox().may_start(tool))
}

/// Returns the outcome of a call that cannot be resumed: a failed tool result, or an internal error.
fn failure_outcome(method: &str, reason: &str) -> RequestOutcome {
    match Method::find(method) {
        Some(Method::CallTool) => RequestOutcome::from(Ok(tool_failure(reason.to_owned()))),
        _ => RequestOutcome::from(Err(ProtocolError::Internal(reason.to_owned()).into())),
    }
}

fn state_already_used() -> ProtocolError {
    ProtocolError::invalid(
        "/requestState",
        "the requestState was already used: send the request again without it",
    )
}

/// Returns the input responses of a retry request as JSON, by the keys of the input requests.
fn input_responses(params: &Params<'_>) -> Result<BTreeMap<String, String>, ProtocolError> {
    let Some(text) = params.find("inputResponses").filter(|text| *text != "null") else {
        return Ok(BTreeMap::new());
    };
    let responses: BTreeMap<String, Box<RawValue>> =
        wire::decode(text).map_err(|InvalidValue { path, reason }| {
            ProtocolError::invalid(format!("/inputResponses{path}"), reason)
        })?;
    Ok(responses.into_iter().map(|(key, response)| (key, response.get().to_owned())).collect())
}
