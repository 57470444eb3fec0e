//! Subscription streams of stateless clients, and the routing of notifications to them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use linchpin_jsonrpc::{Id, write};
use linchpin_protocol::encode::{Encode, Encoder};
use linchpin_protocol::model::{
    EmptyParams, EmptyResult, Meta, ResourceUpdatedParams, SubscriptionFilter,
    SubscriptionsAcknowledgedParams, TaskStatusParams, key,
};
use linchpin_protocol::{Error as ProtocolError, Method, Revision};
use serde_json::Value;
use tokio::sync::Notify;

use super::catalog::ListKind;
use super::request::cancellation::Cancel;
use super::request::dispatch;
use super::request::result::UnencodedResult;
use super::request::scope::RequestScope;
use super::request::work::RequestFuture;
use super::session::MAX_SUBSCRIPTIONS;
use super::tasks;
use crate::Result;
use crate::lock::lock;

/// Maximum number of notifications that wait for the acknowledgement of a stream.
const MAX_UNSENT: usize = 1_000;

/// Open `subscriptions/listen` streams of one connection.
#[derive(Default)]
pub(crate) struct SubscriptionStreams {
    streams: Mutex<Vec<Arc<SubscriptionStream>>>,
    closing: Notify,
    closed: Mutex<bool>,
}

struct SubscriptionStream {
    id: Id<'static>,
    revision: Revision,
    filter: SubscriptionFilter,
    /// Cancellation state of the stream, which may take a moment to end after the client has cancelled it.
    cancel: Arc<Cancel>,
    /// Notifications that are sent after the acknowledgement, which must be the first message. `None` after it.
    unsent: Mutex<Option<Vec<Vec<u8>>>>,
}

impl SubscriptionStream {
    fn meta(&self) -> Meta {
        let id = match &self.id {
            Id::Number(number) => Value::from(*number),
            Id::String(text) => Value::from(&**text),
        };
        Meta::from_iter([(key::SUBSCRIPTION_ID.to_owned(), id)])
    }

    fn write(&self, method: Method, params: &dyn Encode, out: &mut Vec<u8>) {
        let revision = self.revision;
        write::notification(method.name(), out, |out| params.encode(&mut Encoder { out, revision }));
    }

    fn wants_list(&self, kind: ListKind) -> bool {
        let is_subscribed = match kind {
            ListKind::Tools => self.filter.tools_list_changed,
            ListKind::Prompts => self.filter.prompts_list_changed,
            ListKind::Resources => self.filter.resources_list_changed,
        };
        is_subscribed == Some(true) && !self.cancel.has_ended()
    }

    fn wants_resource(&self, uri: &str) -> bool {
        let mut subscribed = self.filter.resource_subscriptions.iter().flatten();
        subscribed.any(|other| other == uri) && !self.cancel.has_ended()
    }

    /// Writes the acknowledgement and the notifications that waited for it. `out` is locked until all are written, so that
    /// later notifications follow.
    fn acknowledge(&self, out: &mut Vec<u8>) {
        let notifications = self.filter.clone();
        let params = SubscriptionsAcknowledgedParams { notifications, meta: Some(self.meta()) };
        self.write(Method::ListenAcknowledged, &params, out);
        for message in lock(&self.unsent).take().into_iter().flatten() {
            out.push(b'\n');
            out.extend(message);
        }
    }

    /// Sends a notification, after the acknowledgement.
    fn notify(&self, message: &dyn Fn(&mut Vec<u8>), send: &impl Fn(&dyn Fn(&mut Vec<u8>))) {
        if let Some(unsent) = &mut *lock(&self.unsent) {
            if unsent.len() < MAX_UNSENT {
                let mut bytes = Vec::new();
                message(&mut bytes);
                unsent.push(bytes);
            }
            return;
        }
        send(message);
    }
}

/// Returns the method of the notification that a list has changed.
pub(crate) const fn change_method(kind: ListKind) -> Method {
    match kind {
        ListKind::Tools => Method::ToolsChanged,
        ListKind::Prompts => Method::PromptsChanged,
        ListKind::Resources => Method::ResourcesChanged,
    }
}

impl SubscriptionStreams {
    /// Returns the open streams of `subscriptions/listen` requests. The lock is released before sending, because in
    /// memory that runs the client.
    fn open_streams(&self) -> Vec<Arc<SubscriptionStream>> {
        lock(&self.streams).clone()
    }

    /// Notifies the subscribed streams of a changed list. `send` takes one message.
    pub(crate) fn list_changed(&self, kind: ListKind, send: impl Fn(&dyn Fn(&mut Vec<u8>))) {
        for stream in self.open_streams().iter().filter(|stream| stream.wants_list(kind)) {
            let params = EmptyParams { meta: Some(stream.meta()) };
            stream.notify(&|out| stream.write(change_method(kind), &params, out), &send);
        }
    }

    /// Notifies the subscribed streams of a changed resource.
    pub(crate) fn resource_updated(&self, uri: &str, send: impl Fn(&dyn Fn(&mut Vec<u8>))) {
        for stream in self.open_streams().iter().filter(|stream| stream.wants_resource(uri)) {
            let params = ResourceUpdatedParams { uri: uri.to_owned(), meta: Some(stream.meta()) };
            stream.notify(&|out| stream.write(Method::ResourceUpdated, &params, out), &send);
        }
    }

    /// Adds the URIs of the resources that the streams are subscribed to.
    pub(crate) fn collect_subscriptions(&self, uris: &mut BTreeSet<String>) {
        for stream in self.open_streams() {
            uris.extend(stream.filter.resource_subscriptions.iter().flatten().cloned());
        }
    }

    /// Notifies the subscribed streams of a changed task.
    pub(crate) fn task_changed(&self, params: &TaskStatusParams, send: impl Fn(&dyn Fn(&mut Vec<u8>))) {
        let is_interested = |stream: &&Arc<SubscriptionStream>| {
            let mut ids = stream.filter.task_ids.iter().flatten();
            ids.any(|id| *id == params.task.task_id) && !stream.cancel.has_ended()
        };
        for stream in self.open_streams().iter().filter(is_interested) {
            let params = TaskStatusParams { meta: Some(stream.meta()), ..params.clone() };
            stream.notify(&|out| stream.write(Method::TaskUpdated, &params, out), &send);
        }
    }

    /// Closes all streams gracefully: each receives its response.
    pub(crate) fn close(&self) {
        *lock(&self.closed) = true;
        self.closing.notify_waiters();
    }

    async fn closed(&self) {
        let mut notified = std::pin::pin!(self.closing.notified());
        notified.as_mut().enable();
        if !*lock(&self.closed) {
            notified.await;
        }
    }
}

/// Guard that removes a subscription stream from its connection when its request ends.
struct StreamGuard {
    connection: Arc<super::Connection>,
    stream: Arc<SubscriptionStream>,
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        lock(&self.connection.streams().streams).retain(|stream| !Arc::ptr_eq(stream, &self.stream));
        if self.stream.filter.resource_subscriptions.is_some() {
            self.connection.service().live_catalog().subscriptions_changed();
        }
    }
}

/// Opens a notification stream: acknowledged as soon as its subscriptions are made; the response follows when the server
/// closes the stream.
pub(crate) fn listen(scope: &RequestScope<'_>, requested: SubscriptionFilter) -> Result<RequestFuture> {
    if !scope.connection.has_streams() {
        return Err(ProtocolError::InvalidRequest(
            "this connection carries only one response, not a stream of notifications".into(),
        )
        .into());
    }
    if requested.task_ids.is_some() {
        tasks::check_extension(scope)?;
    }
    let sees_task = |id: &str| scope.service.tasks().is_running(id, scope);
    let filter =
        scope.service.accepted_subscriptions(requested, |uri| dispatch::can_subscribe(scope, uri), sees_task);
    let (id, cancel) = (scope.id.clone().into_owned(), scope.cancel());
    let unsent = Mutex::new(Some(Vec::new()));
    let stream = Arc::new(SubscriptionStream { id, revision: scope.revision, filter, cancel, unsent });
    let resources = &stream.filter.resource_subscriptions;
    let forward = scope.service.live_catalog().forward().zip(resources.clone());
    {
        let mut open = lock(&scope.connection.streams().streams);
        let count = |names: &Option<Vec<String>>| names.as_ref().map_or(0, Vec::len);
        let watched = |stream: &SubscriptionStream| {
            1 + count(&stream.filter.resource_subscriptions) + count(&stream.filter.task_ids)
        };
        let current: usize = open.iter().map(|stream| watched(stream)).sum();
        if current + watched(&stream) > MAX_SUBSCRIPTIONS {
            return Err(ProtocolError::Internal(
                "too many subscriptions on this connection: end some first".into(),
            )
            .into());
        }
        if forward.is_none() {
            // Not `notify`, which may drop a message: the acknowledgement must be sent, and be the first one.
            scope.connection.responses().append(|out| stream.acknowledge(out));
        }
        open.push(stream.clone());
    }
    scope.connection.subscribe_to_changes();
    if resources.is_some() {
        scope.service.live_catalog().subscriptions_changed();
    }
    let subscribed = forward.map(|(forward, uris)| forward.subscribe(uris));
    let closing = StreamGuard { connection: scope.connection.clone(), stream };
    Ok(RequestFuture::pending(
        async move {
            if let Some(subscribed) = subscribed {
                tokio::select! {
                    () = subscribed => {}
                    () = closing.connection.streams().closed() => {}
                }
                closing.connection.responses().send(|out| closing.stream.acknowledge(out));
            }
            closing.connection.streams().closed().await;
            Ok(EmptyResult { meta: Some(closing.stream.meta()) })
        },
        UnencodedResult::body,
    ))
}
