//! JSON-RPC batches, in the one revision that has them: the responses are sent as one array.

use std::sync::Arc;
use std::task::Poll;

use linchpin_jsonrpc::write;
use linchpin_jsonrpc::{ErrorObject, Outbox, code};
use linchpin_protocol::version::Feature;

use crate::server::session::Session;
use crate::server::{BoxFuture, Connection};

/// Maximum number of messages in a batch: all responses are buffered until the last one is complete.
const MAX_BATCH_LEN: usize = 1_000;

impl Connection {
    pub(in crate::server) fn batch(self: &Arc<Self>, messages: &[&str]) -> Option<BoxFuture<()>> {
        let revision = self.session().map(Session::revision).or_else(|| self.sessionless_revision());
        if !revision.is_some_and(|revision| revision.has(Feature::Batches)) {
            return self.reject_batch("this revision does not support batches: send one message at a time");
        }
        if self.is_batch() {
            return self.reject_batch("a batch must not contain another batch");
        }
        if messages.len() > MAX_BATCH_LEN {
            return self.reject_batch("a batch may contain at most 1,000 messages: split it");
        }
        let outbox = Arc::new(Outbox::new(usize::MAX, || ()));
        let part = self.batch_part(outbox.clone());
        let mut pending: Vec<_> =
            messages.iter().filter_map(|message| part.receive(message.as_bytes())).collect();
        let connection = self.clone();
        Some(Box::pin(async move {
            // Polled together, because one request may wait for another.
            std::future::poll_fn(|cx| {
                pending.retain_mut(|work| work.as_mut().poll(cx).is_pending());
                if pending.is_empty() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            // A message contains no raw newline, so each newline ends a message.
            let mut lines = Vec::new();
            outbox.take(&mut lines);
            if lines.pop().is_some() {
                connection.responses().wait_for_space().await;
                lines.iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b',');
                connection.send_response(|out| {
                    out.push(b'[');
                    out.extend_from_slice(&lines);
                    out.push(b']');
                });
            }
        }))
    }

    fn reject_batch(&self, message: &str) -> Option<BoxFuture<()>> {
        let error = ErrorObject { code: code::INVALID_REQUEST, message: message.into(), data: None };
        self.record_failure(error.code);
        self.responses().append(|out| write::error(None, self.unknown_id(), &error, out));
        None
    }
}
