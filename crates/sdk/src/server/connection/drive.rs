//! Calls that did not finish immediately: driven until they end or need input from the client.

use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use linchpin_jsonrpc::Id;
use linchpin_protocol::{Error as ProtocolError, Revision};

use super::super::BoxFuture;
use super::{Caller, Connection, Pending};
use crate::lock::lock;
use crate::server::definitions::tool::ToolEntry;
use crate::server::input::rounds::{Binding, Round};
use crate::server::request::cancellation::Cancel;
use crate::server::request::context::Context;
use crate::server::request::scope::Scope;
use crate::server::request::work::{Outcome, Work};

/// Running call: the handler's future and everything that must outlive the request that started it.
pub(crate) struct Invocation {
    pub(crate) work: Work,
    pub(crate) cancel: Arc<Cancel>,
    pub(crate) context: Option<Context>,
    pub(crate) method: String,
    pub(crate) target: Option<Arc<str>>,
    pub(crate) revision: Revision,
    /// Binding of the request state, if the call may request input between two requests.
    pub(crate) binding: Option<Binding>,
}

impl Invocation {
    pub(super) fn new(scope: &Scope<'_>, work: Work, binding: Option<Binding>) -> Self {
        Invocation {
            work,
            cancel: scope.cancel(),
            context: scope.context.get().cloned(),
            method: scope.method.to_owned(),
            target: scope.target.get().cloned(),
            revision: scope.revision,
            binding,
        }
    }

    /// Returns whether the call waits for input that must come with another request.
    pub(crate) fn asks(&self) -> bool {
        self.binding.is_some() && self.context.as_ref().is_some_and(|context| context.questions().has_open())
    }

    /// Returns the tool, once resolved.
    pub(crate) fn tool(&self) -> Option<&Arc<ToolEntry>> {
        self.context.as_ref().and_then(Context::tool)
    }

    pub(crate) fn target(&self) -> Option<&str> {
        self.target.as_deref().or_else(|| self.context.as_ref().and_then(Context::target))
    }
}

/// Reason why driving a call stopped.
enum Step {
    Done(Outcome),
    Asks,
    GivenUp,
}

impl Connection {
    /// Adds a request to the table of requests in flight, where a cancellation finds it. Fails if another request with
    /// its id was added since it was admitted.
    pub(crate) fn enter(
        &self,
        id: &Id<'static>,
        method: &str,
        cancel: &Arc<Cancel>,
    ) -> Result<InFlight, ProtocolError> {
        let pending = Pending { cancel: cancel.clone(), answers: self.answers.clone() };
        let mut in_flight = lock(&self.caller.in_flight);
        self.check_id(&in_flight, id, method)?;
        in_flight.insert(id.clone(), pending);
        Ok(InFlight { caller: self.caller.clone(), id: id.clone() })
    }

    /// Drives a request that did not finish immediately.
    pub(super) fn drive(
        self: Arc<Self>,
        id: Id<'static>,
        entry: InFlight,
        mut call: Invocation,
        begun: Option<Instant>,
        round: Option<Round>,
    ) -> BoxFuture<()> {
        let cancel = call.cancel.clone();
        Box::pin(async move {
            let step = {
                let mut given_up = std::pin::pin!(cancel.given_up());
                let next = std::future::poll_fn(|cx| {
                    call.context.iter().for_each(|context| context.questions().watch(cx.waker()));
                    match call.work.poll(cx) {
                        Poll::Ready(outcome) => Poll::Ready(Step::Done(outcome)),
                        Poll::Pending if call.asks() => Poll::Ready(Step::Asks),
                        Poll::Pending => given_up.as_mut().poll(cx).map(|()| Step::GivenUp),
                    }
                });
                next.await
            };
            if matches!(step, Step::GivenUp) {
                return;
            }
            if let Step::Done(outcome) = &step {
                self.service().observe(&call.method, call.target(), begun, call.revision, outcome);
            }
            self.answers.room().await;
            if !cancel.answer() {
                return; // a cancelled request must not be answered
            }
            drop(entry); // the client may reuse the id once it has the response
            let revision = call.revision;
            let outcome = match step {
                Step::Done(outcome) => self.round_done(outcome, revision, call.tool(), round),
                _ => self.ask_round(call, begun, round),
            };
            self.send_answer(|out| self.write_answer(&id, revision, &outcome, out));
        })
    }
}

/// Guard of an entry in the table of requests in flight.
pub(crate) struct InFlight {
    caller: Arc<Caller>,
    id: Id<'static>,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        lock(&self.caller.in_flight).remove(&self.id);
    }
}
