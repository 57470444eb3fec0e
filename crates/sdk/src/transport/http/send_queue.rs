//! Queue of messages without a response: notifications, and responses to the server. They are sent one at a time, so
//! that they arrive in order.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::http::header::HeaderValue;
use ::http::{Method as Verb, StatusCode};
use bytes::Bytes;
use linchpin_jsonrpc::{CallError, Id};
use linchpin_protocol::{Era, Method};
use tokio::sync::Notify;

use super::body::ResponseReader;
use super::connection::HttpConnection;
use super::errors;
use super::response::is_unknown_method;
use crate::http::header_names;
use crate::lock::lock;
use crate::server::spawn;

/// Bytes that may be queued before outgoing messages are left in the outbox.
const HIGH_WATER: usize = 1 << 20;
/// Timeout of sending one queued message, which expects no response, by HTTP POST.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of bytes read from the response to a message that expects none.
const MAX_RESPONSE_BYTES: usize = 4 << 10;

#[derive(Default)]
pub(super) struct SendQueue {
    queue: Mutex<Queue>,
    empty: Notify,
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<QueuedMessage>,
    bytes: usize,
    is_sending: bool,
}

struct QueuedMessage {
    line: Bytes,
    method: Option<Method>,
    /// Id of the request that this message cancels.
    cancels: Option<Id<'static>>,
}

impl SendQueue {
    pub(super) fn is_full(&self) -> bool {
        lock(&self.queue).bytes > HIGH_WATER
    }

    pub(super) fn push(
        &self,
        connection: &Arc<HttpConnection>,
        line: Bytes,
        method: Option<Method>,
        cancels: Option<Id<'static>>,
    ) {
        let mut queue = lock(&self.queue);
        queue.bytes += line.len();
        queue.messages.push_back(QueuedMessage { line, method, cancels });
        if !std::mem::replace(&mut queue.is_sending, true) {
            spawn(&connection.runtime, connection.clone().send_queued());
        }
    }

    fn next(&self) -> Option<QueuedMessage> {
        let mut queue = lock(&self.queue);
        let next = queue.messages.pop_front();
        if let Some(next) = &next {
            queue.bytes -= next.line.len();
        } else {
            queue.is_sending = false;
            drop(queue);
            self.empty.notify_waiters();
        }
        next
    }

    /// Waits until all queued messages have been delivered to the server.
    pub(super) async fn wait_until_empty(&self) {
        loop {
            let mut empty = std::pin::pin!(self.empty.notified());
            empty.as_mut().enable();
            if !lock(&self.queue).is_sending {
                return;
            }
            empty.await;
        }
    }
}

impl HttpConnection {
    async fn send_queued(self: Arc<Self>) {
        let limit = self.http.read_timeout.min(SEND_TIMEOUT);
        while let Some(next) = self.send_queue.next() {
            let QueuedMessage { line, method, cancels } = next;
            if !self.is_closed() {
                let sent = tokio::time::timeout(limit, self.send_one(line, method)).await;
                if let Err(error) = sent.unwrap_or(Err(CallError::TimedOut(limit))) {
                    let message_name = method.map_or("a response to the server", Method::name);
                    tracing::debug!(%error, message_name, "failed to deliver a message");
                    self.report_diagnostic(|| format!("{message_name} was not delivered: {error}"));
                }
            }
            // Only after the notification, since the server could take the closed stream for a lost connection.
            if let Some(id) = cancels {
                self.abort(&id);
            }
            self.dispatch_outgoing(); // messages that waited for room in the queue
        }
    }

    async fn send_one(self: &Arc<Self>, line: Bytes, method: Option<Method>) -> Result<(), CallError> {
        let revision = self.wire.revision();
        let (mut headers, generation) = {
            let mut state = lock(&self.state);
            let headers = state.current_headers(revision);
            (headers, state.generation)
        };
        let stateless = revision.is_some_and(|revision| revision.era() == Era::Stateless);
        if let Some(method) = method.filter(|_| stateless) {
            headers.insert(header_names::METHOD, HeaderValue::from_static(method.name()));
        }
        let has_session = headers.contains_key(header_names::SESSION_ID);
        let response = self.send(Verb::POST, &headers, line).await?;
        let status = response.status();
        if status.is_success() {
            if method == Some(Method::Initialized) {
                self.open_listen_stream();
            }
            // Read the body to its end, so that the connection can be reused.
            ResponseReader::new(response.into_body(), self.http.read_timeout)
                .read_start(MAX_RESPONSE_BYTES)
                .await;
            return Ok(());
        }
        let error = self.response_error(response).await;
        if status == StatusCode::NOT_FOUND && has_session && !is_unknown_method(&error) {
            self.renew_session(generation).await?;
            return Err(errors::session_not_found("a new session was opened; the message is not sent again"));
        }
        Err(error)
    }
}
