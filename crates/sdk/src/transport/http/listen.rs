//! The stream of messages that belong to no request, in a session.

use std::sync::Arc;

use linchpin_protocol::Era;

use super::link::Link;
use super::state::Way;
use super::stream::{Ended, Flow, Interrupted, Tail};
use crate::server::start_abortable;
use crate::sync::lock;

impl Link {
    /// Opens it, in place of the one before. Servers may have none.
    pub(super) fn listen(self: &Arc<Self>) {
        let session = self.wire.revision().is_some_and(|revision| revision.era() == Era::Session);
        let mut state = lock(&self.state);
        if !session || state.is_over || !matches!(state.way, Way::Streamable) {
            return;
        }
        let tail = Tail::after(std::mem::take(&mut state.tries));
        let task = start_abortable(&self.runtime, self.clone().listen_on(state.generation, tail));
        if let Some(before) = state.listening.replace(task) {
            before.abort();
        }
    }

    async fn listen_on(self: Arc<Self>, generation: u64, mut tail: Tail) {
        let mut was_open = false;
        loop {
            let reason = match self.take_up(&mut tail).await {
                Ok(mut reading) => {
                    was_open = true;
                    let heard = self.follow(&mut reading, &mut tail, |event| {
                        if self.deliver(event) {
                            return Flow::Go;
                        }
                        let server = self.wire.server_label();
                        tracing::warn!(server, "an event of the session stream is not a message");
                        Flow::Skip
                    });
                    match heard.await {
                        Ended::Cut(reason) => reason,
                        Ended::Fault(error) => {
                            let server = self.wire.server_label();
                            tracing::warn!(server, %error, "cannot read the session stream");
                            error.to_string()
                        }
                        Ended::Done => return,
                    }
                }
                Err(Interrupted::Again(reason)) => reason,
                Err(Interrupted::Session(lost)) if was_open => {
                    lock(&self.state).tries = tail.tries();
                    // Another stream is opened with the new session.
                    if let Err(error) = self.renew(lost.min(generation)).await {
                        let server = self.wire.server_label();
                        tracing::warn!(server, %error, "the session was lost and cannot be reopened");
                    }
                    return;
                }
                // What is not found in a session that had no stream yet is the stream, not the session.
                Err(Interrupted::Over(_) | Interrupted::Session(_)) => {
                    self.diagnose(|| "the server has no stream for what belongs to no request".to_owned());
                    return;
                }
            };
            let Some(pause) = tail.pause(self.http.max_reconnects) else {
                let server = self.wire.server_label();
                tracing::warn!(server, reason, "the session stream failed too often and is not reopened");
                self.diagnose(|| format!("the stream of the session is given up: {reason}"));
                return;
            };
            self.diagnose(|| format!("the stream of the session was cut ({reason}): it is taken up again"));
            tokio::time::sleep(pause).await;
        }
    }
}
