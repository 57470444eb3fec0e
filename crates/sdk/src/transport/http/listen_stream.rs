//! Standalone SSE stream of a session: messages of the server that belong to no request.

use std::sync::Arc;

use linchpin_protocol::Era;

use super::connection::HttpConnection;
use super::event_stream::{ResumeError, ResumeState, StreamControl, StreamEnd};
use super::state::HttpMode;
use crate::lock::lock;
use crate::server::spawn_abortable;

impl HttpConnection {
    /// Opens the standalone event stream of the session and replaces the previous one. Servers may not support it.
    pub(super) fn open_listen_stream(self: &Arc<Self>) {
        let session = self.wire.revision().is_some_and(|revision| revision.era() == Era::Session);
        let mut state = lock(&self.state);
        if !session || state.is_closed || !matches!(state.mode, HttpMode::Streamable) {
            return;
        }
        let resume = ResumeState::with_reconnects(std::mem::take(&mut state.reconnects));
        let task = spawn_abortable(&self.runtime, self.clone().run_listen_stream(state.generation, resume));
        if let Some(before) = state.listen_task.replace(task) {
            before.abort();
        }
    }

    async fn run_listen_stream(self: Arc<Self>, generation: u64, mut resume: ResumeState) {
        let mut was_open = false;
        loop {
            let reason = match self.reopen(&mut resume).await {
                Ok(mut reading) => {
                    was_open = true;
                    let outcome = self.read_events(&mut reading, &mut resume, |event| {
                        if self.deliver(event, None) {
                            return StreamControl::Continue;
                        }
                        let server = self.wire.server_label();
                        tracing::warn!(server, "ignored an event that is not a message");
                        StreamControl::Skip
                    });
                    match outcome.await {
                        StreamEnd::ConnectionLost(reason) => reason,
                        StreamEnd::Failed(error) => {
                            let server = self.wire.server_label();
                            tracing::warn!(server, %error, "failed to read the session stream");
                            error.to_string()
                        }
                        StreamEnd::Done => return,
                    }
                }
                Err(ResumeError::Transient(reason)) => reason,
                Err(ResumeError::SessionLost(lost)) if was_open => {
                    lock(&self.state).reconnects = resume.reconnects();
                    // The new session opens its own stream.
                    if let Err(error) = self.renew_session(lost.min(generation)).await {
                        let server = self.wire.server_label();
                        tracing::warn!(server, %error, "session lost; failed to open a new one");
                    }
                    return;
                }
                // Without an earlier stream in this session, 404 means that there is no stream, not that the session
                // is lost.
                Err(ResumeError::Permanent(_) | ResumeError::SessionLost(_)) => {
                    self.report_diagnostic(|| "the server has no standalone event stream (GET)".to_owned());
                    return;
                }
            };
            let Some(delay) = resume.next_delay(self.http.max_reconnects) else {
                let server = self.wire.server_label();
                tracing::warn!(server, reason, "session stream failed too often; not reopening it");
                self.report_diagnostic(|| format!("the session stream is abandoned: {reason}"));
                return;
            };
            self.report_diagnostic(|| {
                format!("the session stream was cut or could not be opened ({reason}): reconnecting")
            });
            tokio::time::sleep(delay).await;
        }
    }
}
