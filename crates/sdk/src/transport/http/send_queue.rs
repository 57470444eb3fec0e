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

use super::body::Reading;
use super::connection::Link;
use super::errors;
use super::response::is_unknown_method;
use crate::http::header_names;
use crate::lock::lock;
use crate::server::start;

/// Bytes that may be queued before outgoing messages are left in the outbox.
const HIGH_WATER: usize = 1 << 20;
/// Timeout of sending one message.
const LONGEST: Duration = Duration::from_secs(30);
/// Maximum number of bytes read from a response body.
const REFUSAL: usize = 4 << 10;

#[derive(Default)]
pub(super) struct Lane {
    queue: Mutex<Queue>,
    empty: Notify,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    is_moving: bool,
}

struct Waiting {
    line: Bytes,
    method: Option<Method>,
    /// The request that this message cancels.
    cancels: Option<Id<'static>>,
}

impl Lane {
    pub(super) fn is_full(&self) -> bool {
        lock(&self.queue).bytes > HIGH_WATER
    }

    pub(super) fn push(
        &self,
        of: &Arc<Link>,
        line: Bytes,
        method: Option<Method>,
        cancels: Option<Id<'static>>,
    ) {
        let mut queue = lock(&self.queue);
        queue.bytes += line.len();
        queue.waiting.push_back(Waiting { line, method, cancels });
        if !std::mem::replace(&mut queue.is_moving, true) {
            start(&of.runtime, of.clone().send_waiting());
        }
    }

    fn next(&self) -> Option<Waiting> {
        let mut queue = lock(&self.queue);
        let next = queue.waiting.pop_front();
        if let Some(next) = &next {
            queue.bytes -= next.line.len();
        } else {
            queue.is_moving = false;
            drop(queue);
            self.empty.notify_waiters();
        }
        next
    }

    /// Waits until all messages have been delivered.
    pub(super) async fn idle(&self) {
        loop {
            let mut empty = std::pin::pin!(self.empty.notified());
            empty.as_mut().enable();
            if !lock(&self.queue).is_moving {
                return;
            }
            empty.await;
        }
    }
}

impl Link {
    async fn send_waiting(self: Arc<Self>) {
        let limit = self.http.read_timeout.min(LONGEST);
        while let Some(next) = self.lane.next() {
            let Waiting { line, method, cancels } = next;
            if !self.is_over() {
                let sent = tokio::time::timeout(limit, self.send_one(line, method)).await;
                if let Err(error) = sent.unwrap_or(Err(CallError::TimedOut(limit))) {
                    let what = method.map_or("a response to the server", Method::name);
                    tracing::debug!(%error, what, "failed to deliver a message");
                    self.diagnose(|| format!("{what} was not delivered: {error}"));
                }
            }
            // Only after the notification, since the server could take the closed stream for a lost connection.
            if let Some(id) = cancels {
                self.abort(&id);
            }
            self.take_all(); // messages that waited for room in the queue
        }
    }

    async fn send_one(self: &Arc<Self>, line: Bytes, method: Option<Method>) -> Result<(), CallError> {
        let agreed = self.wire.revision();
        let (mut headers, generation) = {
            let mut state = lock(&self.state);
            let headers = state.headers_now(agreed);
            (headers, state.generation)
        };
        let stateless = agreed.is_some_and(|agreed| agreed.era() == Era::Stateless);
        if let Some(method) = method.filter(|_| stateless) {
            headers.insert(header_names::METHOD, HeaderValue::from_static(method.name()));
        }
        let has_session = headers.contains_key(header_names::SESSION_ID);
        let response = self.send(Verb::POST, &headers, line).await?;
        let status = response.status();
        if status.is_success() {
            if method == Some(Method::Initialized) {
                self.listen();
            }
            // Read the body to its end, so that the connection can be reused.
            Reading::new(response.into_body(), self.http.read_timeout).beginning(REFUSAL).await;
            return Ok(());
        }
        let error = self.refusal(response).await;
        if status == StatusCode::NOT_FOUND && has_session && !is_unknown_method(&error) {
            self.renew(generation).await?;
            return Err(errors::session_not_found("a new one was opened; the message is not sent again"));
        }
        Err(error)
    }
}
