//! Calls of MCP clients: a call is followed by the request that started it, or by an equal request that the client sends
//! after it was disconnected.

use std::sync::Arc;

use super::Calls;
use super::admit::{CallRequest, StartedCall, SubmittedCall, outcome_of};
use super::handle::{CallOptions, CallerChannel};
use super::records::CallView;
use super::waiting_requests::CLIENT_LOST_TIMEOUT;
use crate::actor::Actor;
use crate::error::Result;
use crate::id::CallId;
use crate::store::CallStatus;

/// Call of a client that runs, waits for an approval, or has finished.
#[must_use = "a call that was started runs while it is awaited"]
pub struct ClientCall {
    id: CallId,
    state: ClientCallState,
}

enum ClientCallState {
    /// The call waits for an approval, or has finished.
    Recorded(Box<CallView>),
    Running(StartedCall),
}

impl ClientCall {
    /// Returns the id of the call.
    pub fn id(&self) -> CallId {
        self.id
    }

    /// Returns the finished call, or the call that waits for an approval.
    pub async fn outcome(self) -> Result<CallView> {
        match self.state {
            ClientCallState::Recorded(view) => Ok(*view),
            ClientCallState::Running(call) => outcome_of(self.id, call).await,
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
        Ok(match self.submit(actor, request, CallerChannel::new(options)).await? {
            SubmittedCall::Recorded(view) => {
                ClientCall { id: view.id, state: ClientCallState::Recorded(view) }
            }
            SubmittedCall::Running(id, call) => ClientCall { id, state: ClientCallState::Running(call) },
        })
    }

    /// Ends the participation of a client that is gone, in the background: its running call is cancelled, and a call
    /// that waits for an approval waits [`CLIENT_LOST_TIMEOUT`] for the client to return.
    pub fn leave(self: &Arc<Self>, actor: Actor, call: CallId) {
        let calls = self.clone();
        self.context.tasks.spawn(async move {
            let left = match calls.call(actor, call).await {
                Ok(view) if view.status == CallStatus::Running => {
                    calls.cancel_call(actor, call).await.map(drop)
                }
                Ok(_) => {
                    calls.pending_callers.remove(actor.tenant(), call);
                    calls.attend(actor, call, CLIENT_LOST_TIMEOUT).await
                }
                Err(error) => Err(error),
            };
            if let Err(error) = left {
                tracing::debug!(call.id = %call, %error, "failed to end a call whose client is gone");
            }
        });
    }
}
