//! Calls that did not finish immediately: driven until they end or need input from the client.

use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use linchpin_jsonrpc::Id;
use linchpin_protocol::{Error as ProtocolError, Revision};

use super::super::BoxFuture;
use super::{ClientState, Connection, PendingRequest};
use crate::lock::lock;
use crate::server::definitions::tool::ToolEntry;
use crate::server::input::rounds::{RoundGuard, StateBinding};
use crate::server::request::cancellation::Cancel;
use crate::server::request::context::Context;
use crate::server::request::scope::RequestScope;
use crate::server::request::work::{RequestFuture, RequestOutcome};

/// Running call: the handler's future and everything that must outlive the request that started it.
pub(crate) struct Invocation {
    pub(crate) future: RequestFuture,
    pub(crate) cancel: Arc<Cancel>,
    pub(crate) context: Option<Context>,
    pub(crate) method: String,
    pub(crate) target: Option<Arc<str>>,
    pub(crate) revision: Revision,
    /// Binding of the request state to this call, if it may request input between two requests.
    pub(crate) binding: Option<StateBinding>,
}

impl Invocation {
    pub(super) fn new(
        scope: &RequestScope<'_>,
        future: RequestFuture,
        binding: Option<StateBinding>,
    ) -> Self {
        Invocation {
            future,
            cancel: scope.cancel(),
            context: scope.context.get().cloned(),
            method: scope.method.to_owned(),
            target: scope.target.get().cloned(),
            revision: scope.revision,
            binding,
        }
    }

    /// Returns whether the call waits for input that must come with another request.
    pub(crate) fn needs_input(&self) -> bool {
        self.binding.is_some() && self.context.as_ref().is_some_and(|context| context.mailbox().has_open())
    }

    /// Returns the called tool, once its name is resolved.
    pub(crate) fn tool(&self) -> Option<&Arc<ToolEntry>> {
        self.context.as_ref().and_then(Context::tool)
    }

    pub(crate) fn target(&self) -> Option<&str> {
        self.target.as_deref().or_else(|| self.context.as_ref().and_then(Context::target))
    }
}

/// Why driving a call that did not finish immediately stops: it is done, needs input from the client, or is cancelled.
enum DriveStep {
    Done(RequestOutcome),
    NeedsInput,
    Cancelled,
}

impl Connection {
    /// Adds a request to the table of requests in flight, where a cancellation finds it. Fails if another request with
    /// its id was added since it was admitted.
    pub(crate) fn insert_in_flight(
        &self,
        id: &Id<'static>,
        method: &str,
        cancel: &Arc<Cancel>,
    ) -> Result<InFlight, ProtocolError> {
        let pending = PendingRequest { cancel: cancel.clone(), responses: self.responses.clone() };
        let mut in_flight = lock(&self.caller.in_flight);
        self.check_id(&in_flight, id, method)?;
        in_flight.insert(id.clone(), pending);
        Ok(InFlight { caller: self.caller.clone(), id: id.clone() })
    }

    /// Runs a request that did not finish immediately, and sends its response.
    pub(super) fn drive(
        self: Arc<Self>,
        id: Id<'static>,
        entry: InFlight,
        mut call: Invocation,
        started: Option<Instant>,
        round: Option<RoundGuard>,
    ) -> BoxFuture<()> {
        let cancel = call.cancel.clone();
        Box::pin(async move {
            let step = {
                let mut given_up = std::pin::pin!(cancel.cancelled_unobserved());
                let next = std::future::poll_fn(|cx| {
                    call.context.iter().for_each(|context| context.mailbox().set_driver_waker(cx.waker()));
                    match call.future.poll(cx) {
                        Poll::Ready(outcome) => Poll::Ready(DriveStep::Done(outcome)),
                        Poll::Pending if call.needs_input() => Poll::Ready(DriveStep::NeedsInput),
                        Poll::Pending => given_up.as_mut().poll(cx).map(|()| DriveStep::Cancelled),
                    }
                });
                next.await
            };
            if matches!(step, DriveStep::Cancelled) {
                return;
            }
            if let DriveStep::Done(outcome) = &step {
                self.service().observe(&call.method, call.target(), started, call.revision, outcome);
            }
            self.responses.wait_for_space().await;
            if !cancel.claim_response() {
                return; // a cancelled request must not be answered
            }
            drop(entry); // the client may reuse the id once it has the response
            let revision = call.revision;
            let outcome = match step {
                DriveStep::Done(outcome) => self.finish_round(outcome, revision, call.tool(), round),
                _ => self.request_input(call, started, round),
            };
            self.send_response(|out| self.write_response(&id, revision, &outcome, out));
        })
    }
}

/// Guard of a request in flight. When dropped, it removes the request from the table in which cancellations find it.
pub(crate) struct InFlight {
    caller: Arc<ClientState>,
    id: Id<'static>,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        lock(&self.caller.in_flight).remove(&self.id);
    }
}
