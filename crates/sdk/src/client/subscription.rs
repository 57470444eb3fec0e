//! Change notifications: resource subscriptions in a session, a notification stream in the stateless era.

use std::sync::Arc;
use std::time::Duration;

use linchpin_jsonrpc::{Call as Stream, CallError};
use linchpin_protocol::encode::to_vec;
use linchpin_protocol::model::{
    EmptyResult, ListCapability, SubscribeParams, SubscriptionFilter, SubscriptionsListenParams,
};
use linchpin_protocol::{Era, Method};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::core::{ClientCore, RequestOptions};
use super::handlers::ListChanged;
use super::inbox::Inbox;
use super::retry::may_have_been_processed;
use super::{Client, ClientError};
use crate::lock::lock;
use crate::server::spawn;

/// Maximum consecutive attempts to reopen a stream.
const MAX_ATTEMPTS: u32 = 20;
/// First and longest delay before an attempt to reopen a stream.
const RETRY_BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));
/// How long a subscription stream must stay open for its count of failed attempts to start again at zero.
const STABLE_AFTER: Duration = Duration::from_secs(10);

/// Subscription of a client to changes of a resource or of lists. Dropping it ends the notifications.
#[must_use = "a subscription ends when it is dropped"]
pub struct Subscription {
    /// Open subscription stream; dropping it closes the stream.
    stream: Option<oneshot::Sender<()>>,
    resource: Option<(Arc<ClientCore>, String)>,
}

impl Subscription {
    /// Waits until the notification stream has ended and was not reopened. In a session there is no such stream: this
    /// never returns, and the subscription ends with the connection ([`Client::is_closed`]).
    pub async fn ended(&mut self) {
        match &mut self.stream {
            Some(stream) => stream.closed().await,
            None => std::future::pending().await,
        }
    }
}

impl Client {
    /// Subscribes to updates of a resource. Its updates go to the callback of
    /// [`super::ClientBuilder::on_resource_updated`].
    pub async fn subscribe(&self, uri: impl Into<String>) -> Result<Subscription, ClientError> {
        let uri = uri.into();
        if self.revision().era() == Era::Stateless {
            let filter = SubscriptionFilter {
                resource_subscriptions: Some(vec![uri]),
                ..SubscriptionFilter::default()
            };
            return self.listen(filter).await;
        }
        // Count it before the request: a concurrent unsubscription sees it, and dropping this future releases it.
        *lock(&self.core.subscriptions).entry(uri.clone()).or_default() += 1;
        let params = SubscribeParams { uri: uri.clone(), meta: None };
        let mut subscription = Subscription { stream: None, resource: Some((self.core.clone(), uri)) };
        match self.typed_call::<EmptyResult>(Method::Subscribe, &params).await {
            Ok(_) => Ok(subscription),
            Err(error) => {
                if matches!(error, ClientError::Call(CallError::Rejected(_))) {
                    subscription.resource.take().map(|(core, uri)| release(&core, &uri)); // nothing to unsubscribe
                }
                Err(error)
            }
        }
    }

    /// Subscribes to changes of the tool, resource and prompt lists. The stateless era needs a stream, which is opened
    /// only if the server announces changes of at least one list; a session needs no request.
    pub(super) async fn subscribe_lists(&self) -> Result<(), ClientError> {
        let capabilities = self.capabilities();
        // `false` is equivalent to an absent member.
        let announced = |list_changed: Option<bool>| list_changed.filter(|announced| *announced);
        let is_announced = |list: &Option<ListCapability>| announced(list.as_ref()?.list_changed);
        let filter = SubscriptionFilter {
            tools_list_changed: is_announced(&capabilities.tools),
            prompts_list_changed: is_announced(&capabilities.prompts),
            resources_list_changed: capabilities
                .resources
                .as_ref()
                .and_then(|list| announced(list.list_changed)),
            resource_subscriptions: None,
            task_ids: None,
        };
        if self.revision().era() == Era::Stateless && filter != SubscriptionFilter::default() {
            let stream = self.listen(filter).await?;
            let _ = self.list_stream.set(stream);
        }
        Ok(())
    }

    async fn listen(&self, notifications: SubscriptionFilter) -> Result<Subscription, ClientError> {
        let core = self.core.clone();
        let params = to_vec(
            &SubscriptionsListenParams { notifications: notifications.clone(), meta: None },
            self.revision(),
        );
        let call = open(&core, &params).await?;
        let (stream, dropped) = oneshot::channel();
        spawn(&self.core.runtime, async move {
            tokio::select! {
                // Dropping the call cancels it on the server.
                _ = dropped => {}
                error = reopen_loop(&core, &params, &notifications, call) => {
                    let server = core.server_label();
                    tracing::warn!(server, ?error, "subscription stream ended; no further changes are received");
                }
            }
        });
        Ok(Subscription { stream: Some(stream), resource: None })
    }
}

/// Opens a notification stream and waits for its acknowledgement.
async fn open(core: &ClientCore, params: &[u8]) -> Result<Stream, CallError> {
    let acknowledged = Arc::new(Notify::new());
    let mut waiter = AckWaiter { core, number: None };
    let mut call = core.peer.request(Method::Listen.name(), Duration::MAX, |number, out| {
        waiter.number = Some(number);
        lock(&core.ack_waiters).insert(number, acknowledged.clone());
        core.write_params(core.revision(), params, None, &RequestOptions::default(), out);
    })?;
    let timeout = core.settings.timeout;
    let open_result = tokio::select! {
        biased; // an acknowledged stream was open, even if it has closed since
        () = acknowledged.notified() => Ok(()),
        ended = &mut call => Err(ended.err().unwrap_or(CallError::Lost("the server ended the subscription before it acknowledged it".into()))),
        () = tokio::time::sleep(timeout) => Err(CallError::TimedOut(timeout)),
    };
    open_result.map(|()| call)
}

/// Guard that removes the waiter for the acknowledgement of a subscription stream on drop.
struct AckWaiter<'a> {
    core: &'a ClientCore,
    number: Option<i64>,
}

impl Drop for AckWaiter<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            lock(&self.core.ack_waiters).remove(&number);
        }
    }
}

/// Reopens a stream whenever it ends: after a graceful end, since the server may be restarting, and after a loss, if
/// the transport can lose a single stream. Everything that may have changed in between is reported as changed.
async fn reopen_loop(
    core: &Arc<ClientCore>,
    params: &[u8],
    filter: &SubscriptionFilter,
    mut call: Stream,
) -> Option<CallError> {
    let mut attempts = 0;
    loop {
        let since = Instant::now();
        let mut error = call.await.err();
        if since.elapsed() >= STABLE_AFTER {
            attempts = 0;
        }
        let mut is_refused = false;
        call = loop {
            let may_retry = match &error {
                None => true,
                Some(CallError::Rejected(_) | CallError::Closed(_)) => false,
                Some(error) => {
                    core.per_request_transport().is_some() && (is_refused || may_have_been_processed(error))
                }
            };
            if !may_retry || attempts == MAX_ATTEMPTS {
                return error;
            }
            tokio::time::sleep(RETRY_BACKOFF.0.saturating_mul(1 << attempts).min(RETRY_BACKOFF.1)).await;
            attempts += 1;
            match open(core, params).await {
                Ok(call) => break call,
                Err(refused) => (error, is_refused) = (Some(refused), true),
            }
        };
        tracing::debug!("subscription stream reopened");
        report_all_changed(core, filter);
    }
}

/// Reports all lists and resources of a change stream as changed, since notifications may have been lost.
fn report_all_changed(core: &Arc<ClientCore>, filter: &SubscriptionFilter) {
    let inbox = Inbox(core.clone());
    let lists = [
        (filter.tools_list_changed, ListChanged::Tools),
        (filter.prompts_list_changed, ListChanged::Prompts),
        (filter.resources_list_changed, ListChanged::Resources),
    ];
    lists
        .into_iter()
        .filter(|(is_subscribed, _)| *is_subscribed == Some(true))
        .for_each(|(_, list)| inbox.on_list_changed(list));
    filter.resource_subscriptions.iter().flatten().for_each(|uri| inbox.on_resource_updated(uri.clone()));
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let Some((core, uri)) = self.resource.take() else { return };
        if release(&core, &uri) {
            spawn(&core.runtime.clone(), async move { sync_subscription(&core, &uri).await });
        }
    }
}

/// Decrements the subscription count of a resource. Returns whether it was the last subscription.
fn release(core: &ClientCore, uri: &str) -> bool {
    let mut subscribed = lock(&core.subscriptions);
    if let Some(count) = subscribed.get_mut(uri).filter(|count| **count > 1) {
        *count -= 1;
        return false; // other subscriptions remain
    }
    subscribed.remove(uri);
    true
}

/// Unsubscribes from a resource that has no subscriptions any more. Requests may overtake each other: if a new
/// subscription was made in the meantime, the server may have ended that one, so subscribe again.
async fn sync_subscription(core: &ClientCore, uri: &str) {
    let revision = core.revision();
    let params = to_vec(&SubscribeParams { uri: uri.to_owned(), meta: None }, revision);
    let is_watched = || lock(&core.subscriptions).contains_key(uri);
    let mut is_subscribed = true;
    while is_watched() != is_subscribed {
        is_subscribed = !is_subscribed;
        let method = if is_subscribed { Method::Subscribe } else { Method::Unsubscribe }.name();
        if let Err(error) = core.request(revision, method, &params, &RequestOptions::default()).await {
            tracing::debug!(%error, method, "failed to update the resource subscription");
            return;
        }
    }
}
