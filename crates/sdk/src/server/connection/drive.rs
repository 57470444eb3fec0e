//! Calls that could not be finished at once: driven to their end, or to a question that their client must answer.

use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use linchpin_jsonrpc::Id;
use linchpin_protocol::{Error as ProtocolError, Revision};

use super::super::BoxFuture;
use super::super::cancel::Cancel;
use super::super::context::Context;
use super::super::request::{Outcome, Work};
use super::super::rounds::{Binding, Round};
use super::super::scope::Scope;
use super::super::tool::ToolEntry;
use super::{Caller, Connection, Pending};
use crate::sync::lock;

/// A call under way: the handler's work and all that must outlive the request that began it.
pub(crate) struct Invocation {
    pub(crate) work: Work,
    pub(crate) cancel: Arc<Cancel>,
    pub(crate) context: Option<Context>,
    pub(crate) method: String,
    pub(crate) target: Option<Arc<str>>,
    pub(crate) revision: Revision,
    /// What the state of the call is bound to, where it may ask between two requests.
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

    /// Whether it waits for an answer that must come with another request.
    pub(crate) fn asks(&self) -> bool {
        self.binding.is_some() && self.context.as_ref().is_some_and(|context| context.questions().has_open())
    }

    /// The tool that was resolved.
    pub(crate) fn tool(&self) -> Option<&Arc<ToolEntry>> {
        self.context.as_ref().and_then(Context::tool)
    }

    pub(crate) fn target(&self) -> Option<&str> {
        self.target.as_deref().or_else(|| self.context.as_ref().and_then(Context::target))
    }
}

/// How far a call has come.
enum Step {
    Done(Outcome),
    Asks,
    GivenUp,
}

impl Connection {
    /// Puts a request into the table of those not done, where a cancellation finds it. Another one with its id may
    /// have come there since it was admitted.
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

    /// The rest of a request that could not be finished at once.
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
                return; // an answer to a request that was cancelled must not be sent
            }
            drop(entry); // once the client has the answer it may use the id again
            let revision = call.revision;
            let outcome = match step {
                Step::Done(outcome) => self.round_done(outcome, revision, call.tool(), round),
                _ => self.ask_round(call, begun, round),
            };
            self.send_answer(|out| self.write_answer(&id, revision, &outcome, out));
        })
    }
}

/// A request in the table of those not done, for as long as it is worked on.
pub(crate) struct InFlight {
    caller: Arc<Caller>,
    id: Id<'static>,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        lock(&self.caller.in_flight).remove(&self.id);
    }
}
