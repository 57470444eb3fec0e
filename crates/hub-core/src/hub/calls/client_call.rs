//! Calls of MCP clients: a call is followed by the request that started it, or by an equal request that the client sends
//! after it was disconnected.

use std::sync::Arc;

use super::Calls;
use super::admit::{CallRequest, StartedCall, SubmittedCall, outcome_of};
use super::handle::{CallOptions, CallerChannel};
use super::records::CallView;
use crate::actor::Actor;
use crate::error::Result;
use crate::id::CallId;
use crate::store::CallStatus;

/// Call of a client that runs, waits for an approval, or has finished.
#[must_use = "a call that was started runs while it is awaited"]
pub struct ClientCall {
    id: CallId,
    caller: CallerChannel,
    state: ClientCallState,
}

enum ClientCallState {
    /// The call waits for an approval, or has finished.
    Recorded(Box<CallView>),
    Running(StartedCall),
}

/// Participation of one request of a client in a call. It ends with [`Calls::leave`], or when the outcome was returned.
#[derive(Debug, Clone)]
pub struct Participation {
    call: CallId,
    caller: CallerChannel,
}

impl ClientCall {
    /// Returns the id of the call.
    pub fn id(&self) -> CallId {
        self.id
    }

    /// Returns the participation of the request in the call.
    pub fn participation(&self) -> Participation {
        Participation { call: self.id, caller: self.caller.clone() }
    }

    /// Returns the finished call, or the call that waits for an approval. A running call runs while this is polled.
    pub async fn outcome(self) -> Result<CallView> {
        match self.state {
            ClientCallState::Recorded(view) => Ok(*view),
            ClientCallState::Running(call) => outcome_of(self.id, call).await,
        }
    }

    /// Like [`Self::outcome`], but the call also runs while this is not polled.
    pub async fn outcome_in_task(self, calls: &Calls) -> Result<CallView> {
        match self.state {
            ClientCallState::Recorded(view) => Ok(*view),
            ClientCallState::Running(call) => calls.outcome_in_task(self.id, call).await,
        }
    }
}

impl Calls {
    /// Starts a call of a client, unless it is rejected or waits for an approval. A request that is equal to one that
    /// still waits for its approval, or for its result, continues that call.
    pub async fn start_for_client(
        self: &Arc<Self>,
        actor: Actor,
        request: CallRequest,
        options: CallOptions,
    ) -> Result<ClientCall> {
        let caller = CallerChannel::new(options);
        let (id, state) = match self.submit(actor, request, caller.clone()).await? {
            SubmittedCall::Recorded(view) => (view.id, ClientCallState::Recorded(view)),
            SubmittedCall::Running(id, call) => (id, ClientCallState::Running(call)),
        };
        Ok(ClientCall { id, caller, state })
    }

    /// Ends the participation of a request whose client is gone, in the background. A running call is cancelled, unless a
    /// user has approved it: its result waits for the client, as an open approval does.
    pub fn leave(self: &Arc<Self>, actor: Actor, participation: Participation) {
        let calls = self.clone();
        self.context.tasks.spawn(async move {
            let Participation { call, caller } = participation;
            let left = match calls.call(actor, call).await {
                Ok(view) if view.approval.is_some() => calls.leave_waiting(actor, call, &caller).await,
                Ok(view) if view.status == CallStatus::Running => {
                    calls.cancel_call(actor, call).await.map(drop)
                }
                Ok(_) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = left {
                tracing::debug!(call.id = %call, %error, "failed to end a call whose client is gone");
            }
        });
    }
}
