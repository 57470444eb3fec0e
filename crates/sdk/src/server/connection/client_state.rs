//! State of one client that all its requests share, and notifications to it that belong to no request.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use linchpin_jsonrpc::{Id, Outbox, Peer, ResponsePayload, write};
use linchpin_protocol::encode::{Encode, Encoder};
use linchpin_protocol::model::{CancelledParams, ResourceUpdatedParams, TaskStatusParams};
use linchpin_protocol::{Method, Revision};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::super::Service;
use super::super::catalog::ListKind;
use super::super::session::Session;
use super::super::subscriptions::{SubscriptionStreams, change_method};
use super::{NO_REVISION, PendingRequest};
use crate::server::spawn::spawn;

/// State of one client, for the lifetime of its connection or session.
pub(crate) struct ClientState {
    pub(super) service: Service,
    /// Outbox of messages that belong to no request.
    pub(super) outbox: Arc<Outbox>,
    /// Peer for server requests, created on first use: most clients receive none.
    peer: OnceLock<Peer>,
    /// Unique name of the connection, which identifies its tasks if there is no principal.
    pub(super) name: OnceLock<String>,
    pub(super) session: OnceLock<Session>,
    pub(super) streams: SubscriptionStreams,
    /// Requests that are being handled, by id, so that a notification can cancel them.
    pub(super) in_flight: Mutex<HashMap<Id<'static>, PendingRequest>>,
    /// Number of request futures of this client that are running.
    pub(super) active: AtomicUsize,
    pub(super) idle: Notify,
    /// Bit set of the changed lists to announce when the outbox has room.
    deferred_changes: AtomicU8,
    is_subscribed_to_changes: AtomicBool,
    /// Revision of the last message that stated one, for the format of errors about messages without one.
    pub(super) last_revision: AtomicU8,
}

impl ClientState {
    pub(super) fn new(service: Service, outbox: Arc<Outbox>) -> Self {
        ClientState {
            service,
            outbox,
            peer: OnceLock::new(),
            name: OnceLock::new(),
            session: OnceLock::new(),
            streams: SubscriptionStreams::default(),
            in_flight: Mutex::default(),
            active: AtomicUsize::new(0),
            idle: Notify::new(),
            deferred_changes: AtomicU8::new(0),
            is_subscribed_to_changes: AtomicBool::new(false),
            last_revision: AtomicU8::new(NO_REVISION),
        }
    }

    /// Subscribes the client to notifications of changed lists, once.
    pub(super) fn subscribe_to_changes(self: &Arc<Self>) {
        if !self.is_subscribed_to_changes.swap(true, Ordering::AcqRel) {
            self.service.live_catalog().add_client(self);
        }
    }

    /// Closes the streams of the client gracefully: each receives its response.
    #[cfg(feature = "http-server")]
    pub(crate) fn close_streams(&self) {
        self.streams.close();
    }

    pub(super) fn peer(&self) -> &Peer {
        self.peer.get_or_init(|| {
            Peer::new(self.outbox.clone(), self.service.settings().max_in_flight, cancel_server_request)
        })
    }

    /// Delivers a response of the client to the server request that waits for it. Returns `false` if no request waits
    /// for it.
    pub(super) fn deliver_response(&self, id: Option<&Id<'_>>, reply: ResponsePayload<'_>) -> bool {
        self.peer.get().is_some_and(|peer| peer.accept_response(id, reply))
    }

    /// Ends the sending of requests to the client.
    pub(super) fn close_peer(&self, reason: &str) {
        self.peer().close(reason);
    }

    /// Sends a notification to this client, or drops it if the client reads too slowly.
    fn notify(&self, message: impl FnOnce(&mut Vec<u8>)) {
        notify(&self.outbox, message);
    }

    /// Notifies the client of a changed list. If its outbox is full, the notification is sent when there is room:
    /// without it the client would use an outdated list permanently.
    pub(crate) fn list_changed(self: &Arc<Self>, kind: ListKind, runtime: Option<&Handle>) {
        let Some(runtime) = runtime.filter(|_| self.outbox.is_full()) else {
            return self.notify_list_changed(kind);
        };
        let bit = 1 << kind as u8;
        if self.deferred_changes.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
            let caller = self.clone();
            spawn(runtime, async move {
                caller.outbox.wait_for_space().await;
                caller.deferred_changes.fetch_and(!bit, Ordering::AcqRel);
                caller.notify_list_changed(kind);
            });
        }
    }

    fn notify_list_changed(&self, kind: ListKind) {
        if self.session.get().is_some_and(Session::is_initialized) {
            self.notify(|out| write::notification(change_method(kind).name(), out, |_| ()));
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

    /// Returns whether the client is subscribed to any resource.
    pub(crate) fn has_subscriptions(&self) -> bool {
        let mut uris = BTreeSet::new();
        self.collect_subscriptions(&mut uris);
        !uris.is_empty()
    }

    /// Adds the URIs of the resources that the client is subscribed to.
    pub(crate) fn collect_subscriptions(&self, uris: &mut BTreeSet<String>) {
        uris.extend(self.session.get().into_iter().flat_map(Session::subscriptions));
        self.streams.collect_subscriptions(uris);
    }

    pub(crate) fn task_changed(&self, params: &TaskStatusParams) {
        self.streams.task_changed(params, |message| self.notify(message));
    }
}

impl Drop for ClientState {
    fn drop(&mut self) {
        if *self.is_subscribed_to_changes.get_mut() {
            self.service.live_catalog().remove_client(self);
        }
    }
}

/// Queues a notification, or drops it if the client reads too slowly.
pub(super) fn notify(outbox: &Outbox, message: impl FnOnce(&mut Vec<u8>)) {
    if !outbox.try_send(message) {
        tracing::debug!("notification dropped: the client reads too slowly or is gone");
    }
}

/// Notifies the client that a server request was cancelled.
fn cancel_server_request(outbox: &Outbox, id: &Id<'_>, reason: &str) {
    let (request_id, reason) = (Some(id.clone().into_owned()), Some(reason.to_owned()));
    let params = CancelledParams { request_id, reason, meta: None };
    notify(outbox, |out| {
        // Server requests exist only in sessions, and all session-era revisions encode this in the same way.
        let to = |out: &mut Vec<u8>| params.encode(&mut Encoder { out, revision: Revision::LATEST_SESSION });
        write::notification(Method::Cancelled.name(), out, to);
    });
}
