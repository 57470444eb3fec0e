//! Several messages in one line, in the revision that has them: one line of answers.

use std::sync::Arc;

use linchpin_jsonrpc::write;
use linchpin_jsonrpc::{ErrorObject, Outbox, code};
use linchpin_protocol::version::Feature;

use super::session::Session;
use super::{BoxFuture, Connection};

impl Connection {
    pub(super) fn batch(self: &Arc<Self>, messages: &[&str]) -> Option<BoxFuture<()>> {
        let batches = |session: &Session| session.revision().has(Feature::Batches);
        if !self.session().is_some_and(batches) {
            let message = "this revision has no batches: send one message per line";
            let error = ErrorObject { code: code::INVALID_REQUEST, message: message.into(), data: None };
            self.outbox().append(|out| write::error(None, self.unknown_id(), &error, out));
            return None;
        }
        let outbox = Arc::new(Outbox::new(usize::MAX, || ()));
        let part = self.part(outbox.clone());
        let waiting: Vec<_> =
            messages.iter().filter_map(|message| part.receive(message.as_bytes())).collect();
        let connection = self.clone();
        Some(Box::pin(async move {
            for work in waiting {
                work.await;
            }
            // Messages hold no raw newline: each one ends a message.
            let mut lines = Vec::new();
            outbox.take(&mut lines);
            if lines.pop().is_some() {
                lines.iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b',');
                connection.outbox().send(|out| {
                    out.push(b'[');
                    out.extend_from_slice(&lines);
                    out.push(b']');
                });
            }
        }))
    }
}
