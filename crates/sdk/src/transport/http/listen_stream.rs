//! Standalone stream of a session: messages that belong to no request.

use std::sync::Arc;

use linchpin_protocol::Era;

use super::connection::Link;
use super::event_stream::{Ended, Flow, Interrupted, Tail};
use super::state::Way;
use crate::lock::lock;
use crate::server::start_abortable;

impl Link {
    /// Opens the stream and replaces the previous one. Servers may not support it.
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
                        tracing::warn!(server, "ignored an event that is not a message");
                        Flow::Skip
                    });
                    match heard.await {
                        Ended::Cut(reason) => reason,
                        Ended::Fault(error) => {
                            let server = self.wire.server_label();
                            tracing::warn!(server, %error, "failed to read the session stream");
                            error.to_string()
                        }
                        Ended::Done => return,
                    }
                }
                Err(Interrupted::Again(reason)) => reason,
                Err(Interrupted::Session(lost)) if was_open => {
                    lock(&self.state).tries = tail.tries();
                    // The new session opens its own stream.
                    if let Err(error) = self.renew(lost.min(generation)).await {
                        let server = self.wire.server_label();
                        tracing::warn!(server, %error, "session lost; failed to open a new one");
                    }
                    return;
                }
                // Without an earlier stream in this session, 404 means that there is no stream, not that the session
                // is lost.
                Err(Interrupted::Over(_) | Interrupted::Session(_)) => {
                    self.diagnose(|| "the server has no standalone stream".to_owned());
                    return;
                }
            };
            let Some(pause) = tail.pause(self.http.max_reconnects) else {
                let server = self.wire.server_label();
                tracing::warn!(server, reason, "session stream failed too often; not reopening it");
                self.diagnose(|| format!("the session stream is abandoned: {reason}"));
                return;
            };
            self.diagnose(|| format!("the session stream was cut ({reason}): reconnecting"));
            tokio::time::sleep(pause).await;
        }
    }
}
