//! What all requests of one client share, and what it is told between them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use linchpin_jsonrpc::{Id, Outbox, Peer, Reply, write};
use linchpin_protocol::encode::{Encode, Encoder};
use linchpin_protocol::model::{CancelledParams, ResourceUpdatedParams, TaskStatusParams};
use linchpin_protocol::{Method, Revision};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::super::Service;
use super::super::background::start;
use super::super::catalog::Kind;
use super::super::session::Session;
use super::super::subscriptions::{Streams, changed};
use super::{NO_REVISION, Pending};

/// One client, as long as its connection or its session lasts.
pub(crate) struct Caller {
    pub(super) service: Service,
    /// Where messages go that belong to no request.
    pub(super) outbox: Arc<Outbox>,
    /// The client, to be asked; most never are.
    peer: OnceLock<Peer>,
    /// Tells connections apart, where one is asked which tasks are its own.
    pub(super) name: OnceLock<String>,
    pub(super) session: OnceLock<Session>,
    pub(super) streams: Streams,
    /// Requests that are being worked on, to give them up.
    pub(super) in_flight: Mutex<HashMap<Id<'static>, Pending>>,
    /// How much work is being driven.
    pub(super) active: AtomicUsize,
    pub(super) idle: Notify,
    /// Changed lists that the client will be told of when there is room, a bit for each kind.
    behind: AtomicU8,
    is_watching: AtomicBool,
    /// The revision of the last message that had one, to shape errors about messages that have none.
    pub(super) last: AtomicU8,
}

impl Caller {
    pub(super) fn new(service: Service, outbox: Arc<Outbox>) -> Self {
        Caller {
            service,
            outbox,
            peer: OnceLock::new(),
            name: OnceLock::new(),
            session: OnceLock::new(),
            streams: Streams::default(),
            in_flight: Mutex::default(),
            active: AtomicUsize::new(0),
            idle: Notify::new(),
            behind: AtomicU8::new(0),
            is_watching: AtomicBool::new(false),
            last: AtomicU8::new(NO_REVISION),
        }
    }

    /// From now on the client is told of changes.
    pub(super) fn watch(self: &Arc<Self>) {
        if !self.is_watching.swap(true, Ordering::AcqRel) {
            self.service.live().watch(self);
        }
    }

    /// Ends the streams of the client in good order: each is answered.
    #[cfg(feature = "http-server")]
    pub(crate) fn close_streams(&self) {
        self.streams.close();
    }

    pub(super) fn peer(&self) -> &Peer {
        self.peer
            .get_or_init(|| Peer::new(self.outbox.clone(), self.service.settings().max_in_flight, withdraw))
    }

    /// Takes in an answer of the client; `false` when nobody waits for it.
    pub(super) fn answer(&self, id: Option<&Id<'_>>, reply: Reply<'_>) -> bool {
        self.peer.get().is_some_and(|peer| peer.answer(id, reply))
    }

    /// The client can no longer be asked.
    pub(super) fn close_peer(&self, reason: &str) {
        self.peer().close(reason);
    }

    /// Sends a notification, unless the client reads too slowly.
    fn notify(&self, message: impl FnOnce(&mut Vec<u8>)) {
        notify(&self.outbox, message);
    }

    /// Tells the client that a list has changed. One that reads slowly is told when there is room: if it missed
    /// this it would keep an old list for ever.
    pub(crate) fn list_changed(self: &Arc<Self>, kind: Kind, runtime: Option<&Handle>) {
        let Some(runtime) = runtime.filter(|_| self.outbox.is_full()) else { return self.tell_changed(kind) };
        let bit = 1 << kind as u8;
        if self.behind.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
            let caller = self.clone();
            start(runtime, async move {
                caller.outbox.room().await;
                caller.behind.fetch_and(!bit, Ordering::AcqRel);
                caller.tell_changed(kind);
            });
        }
    }

    fn tell_changed(&self, kind: Kind) {
        if self.session.get().is_some_and(Session::is_initialized) {
            self.notify(|out| write::notification(changed(kind).name(), out, |_| ()));
        }
        self.streams.list_changed(kind, |message| self.notify(message));
    }

    pub(crate) fn resource_updated(&self, uri: &str) {
        if let Some(session) = self.session.get()
            && session.is_subscribed(uri)
        {
            let params = ResourceUpdatedParams { uri: uri.to_owned(), meta: None };
            let revision = session.revision();
            self.notify(|out| {
                let encode = |out: &mut Vec<u8>| params.encode(&mut Encoder { out, revision });
                write::notification(Method::ResourceUpdated.name(), out, encode);
            });
        }
        self.streams.resource_updated(uri, |message| self.notify(message));
    }

    pub(crate) fn task_changed(&self, params: &TaskStatusParams) {
        self.streams.task_changed(params, |message| self.notify(message));
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        if *self.is_watching.get_mut() {
            self.service.live().forget(self);
        }
    }
}

/// Sends a notification, unless the client reads too slowly.
pub(super) fn notify(outbox: &Outbox, message: impl FnOnce(&mut Vec<u8>)) {
    if !outbox.offer(message) {
        tracing::debug!("a notification was left out: the client reads too slowly or is gone");
    }
}

/// Tells the client that a question is no longer asked.
fn withdraw(outbox: &Outbox, id: &Id<'_>, reason: &str) {
    let (request_id, reason) = (Some(id.clone().into_owned()), Some(reason.to_owned()));
    let params = CancelledParams { request_id, reason, meta: None };
    notify(outbox, |out| {
        // Questions are asked only in sessions, and all of those write this in the same way.
        let to = |out: &mut Vec<u8>| params.encode(&mut Encoder { out, revision: Revision::LATEST_SESSION });
        write::notification(Method::Cancelled.name(), out, to);
    });
}
