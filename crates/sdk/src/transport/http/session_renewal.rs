//! Session renewal: a new session replaces one that the server no longer knows.

use std::sync::Arc;

use ::http::{HeaderValue, Method as Verb};
use bytes::Bytes;
use linchpin_jsonrpc::{CallError, Id, Limits, Message, ResponsePayload, parse, write};
use linchpin_protocol::model::InitializeResult;
use linchpin_protocol::{Method, Revision, wire};
use tokio::sync::oneshot;

use super::body::{ResponseBodyKind, ResponseReader};
use super::connection::HttpConnection;
use super::event_stream::{ResumeState, StreamControl, StreamEnd};
use crate::lock::lock;
use crate::server::{spawn, spawn_abortable};

/// Limits of the JSON in the response to `initialize`.
const INITIALIZE_LIMITS: Limits = Limits { depth: 128, keys: 100_000, values: 2_000_000 };

impl HttpConnection {
    /// Opens a new session to replace the one with this number, unless that has already happened. Concurrent callers
    /// wait for the same renewal. It runs on its own task: the request that noticed the loss may be cancelled, but
    /// the renewal must complete.
    pub(super) async fn renew_session(self: &Arc<Self>, lost_generation: u64) -> Result<(), CallError> {
        let renewal_lock = self.renewing.clone().lock_owned().await;
        let (done, opened) = oneshot::channel();
        {
            let mut state = lock(&self.state);
            if state.generation != lost_generation {
                return Ok(());
            }
            if state.is_closed {
                return Err(CallError::Lost("the client closed the connection".into()));
            }
            let link = self.clone();
            state.renewal_task = Some(spawn_abortable(&self.runtime, async move {
                let _ = done.send(link.open_new_session().await); // the caller may be gone
                drop(renewal_lock);
            }));
        }
        opened.await.unwrap_or_else(|_| Err(CallError::Lost("the client closed the connection".into())))
    }

    async fn open_new_session(self: &Arc<Self>) -> Result<(), CallError> {
        let (initialize, headers) = {
            let state = lock(&self.state);
            (state.initialize.clone(), state.initial_headers(None))
        };
        let no_session_error = || CallError::Lost("there is no session to renew".into());
        let (initialize, revision) =
            (initialize.ok_or_else(no_session_error)?, self.wire.revision().ok_or_else(no_session_error)?);
        self.report_diagnostic(|| "the server no longer knows the session: opening a new one".to_owned());
        let opening = async {
            let response = self.send(Verb::POST, &headers, initialize.line.clone()).await?;
            if !response.status().is_success() {
                return Err(self.response_error(response).await);
            }
            let mut new_session =
                NewSessionGuard { connection: self.clone(), session: self.session_id(response.headers()) };
            let initialize_response = self.read_result(
                &initialize.id,
                ResponseReader::new(response.into_body(), self.http.read_timeout),
            );
            check_revision(&initialize_response.await?, revision)?;
            self.send_initialized(new_session.session.as_ref(), revision).await?;
            self.set_session(new_session.session.take());
            Ok(())
        };
        match tokio::time::timeout(self.http.read_timeout, opening).await {
            Ok(opening) => opening?,
            Err(_) => return Err(CallError::TimedOut(self.http.read_timeout)),
        }
        self.open_listen_stream();
        self.wire.session_renewed();
        Ok(())
    }

    /// Reads the result of a request that is not registered as pending.
    async fn read_result(&self, id: &Id<'_>, mut reading: ResponseReader) -> Result<String, CallError> {
        let limit = self.wire.max_message();
        let mut result = None;
        match reading.kind(false).await.map_err(|broken| broken.into_error(limit))? {
            ResponseBodyKind::Json => {
                let body = reading.read_to_end(limit).await.map_err(|broken| broken.into_error(limit))?;
                result = parse_result(&body, id);
            }
            ResponseBodyKind::Events => {
                let mut tail = ResumeState::default();
                let outcome = self.read_events(&mut reading, &mut tail, |event| {
                    result = parse_result(event.data.as_bytes(), id);
                    if result.is_some() { StreamControl::Done } else { StreamControl::Continue }
                });
                if let StreamEnd::Failed(error) = outcome.await {
                    return Err(error);
                }
            }
            ResponseBodyKind::Empty | ResponseBodyKind::Other => {}
        }
        result.unwrap_or_else(|| {
            Err(CallError::Malformed("the body is not the response to the request".into()))
        })
    }

    async fn send_initialized(
        &self,
        session: Option<&HeaderValue>,
        revision: Revision,
    ) -> Result<(), CallError> {
        let headers = lock(&self.state).headers_in(session, revision);
        let mut line = Vec::new();
        write::notification(Method::Initialized.name(), &mut line, |_| ());
        let response = self.send(Verb::POST, &headers, Bytes::from(line)).await?;
        if response.status().is_success() { Ok(()) } else { Err(self.response_error(response).await) }
    }
}

/// Guard that ends a new HTTP session if it is dropped before the session is in use.
struct NewSessionGuard {
    connection: Arc<HttpConnection>,
    session: Option<HeaderValue>,
}

impl Drop for NewSessionGuard {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            spawn(&self.connection.runtime, self.connection.clone().delete_session(session));
        }
    }
}

/// Returns the result or error if the message is the response to the request with this id.
fn parse_result(message: &[u8], id: &Id<'_>) -> Option<Result<String, CallError>> {
    match parse(message, INITIALIZE_LIMITS) {
        Ok(Message::Response { id: Some(response_id), reply }) if response_id == *id => Some(match reply {
            ResponsePayload::Result(text) => Ok(text.to_owned()),
            ResponsePayload::Error(text) => Err(serde_json::from_str(text)
                .map_or_else(|error| CallError::Malformed(error.to_string()), CallError::Rejected)),
        }),
        _ => None,
    }
}

/// Checks that the new session has the same revision; another revision would require a new connection.
fn check_revision(result: &str, agreed: Revision) -> Result<(), CallError> {
    let result: InitializeResult =
        wire::decode(result).map_err(|invalid| CallError::Malformed(invalid.reason))?;
    if result.protocol_version == agreed.as_str() {
        return Ok(());
    }
    let now = format!("the server changed its revision from {agreed} to \"{:.40}\"", result.protocol_version);
    Err(CallError::Lost(now.into()))
}
