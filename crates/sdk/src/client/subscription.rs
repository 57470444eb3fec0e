//! Being told of changes: by a subscription in a session, by a stream in the stateless era.

use std::sync::Arc;
use std::time::Duration;

use linchpin_jsonrpc::{Call as Stream, CallError};
use linchpin_protocol::encode::to_vec;
use linchpin_protocol::model::{
    EmptyResult, ListCapability, SubscribeParams, SubscriptionFilter, SubscriptionsListenParams,
};
use linchpin_protocol::{Era, Method};
use tokio::sync::{Notify, oneshot};

use super::core::{Core, Options};
use super::handlers::Changed;
use super::inbox::Inbox;
use super::repeat::is_lost;
use super::{Client, ClientError};
use crate::server::start;
use crate::sync::lock;

/// How often in a row a stream that was cut is opened again, and the first and longest pause before that.
const MAX_TRIES: u32 = 20;
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// Changes are told for as long as this is kept.
#[must_use = "nothing is told any more once this is dropped"]
pub struct Subscription {
    /// Dropped with this; then the stream is given up.
    _stream: Option<oneshot::Sender<()>>,
    resource: Option<(Arc<Core>, String)>,
}

impl Client {
    /// Watches a resource: the handler of [`super::ClientBuilder::on_resource_updated`] is told of its changes.
    pub async fn subscribe(&self, uri: impl Into<String>) -> Result<Subscription, ClientError> {
        let uri = uri.into();
        if self.revision().era() == Era::Stateless {
            let filter = SubscriptionFilter {
                resource_subscriptions: Some(vec![uri]),
                ..SubscriptionFilter::default()
            };
            return self.listen(filter).await;
        }
        let params = SubscribeParams { uri: uri.clone(), meta: None };
        self.send::<EmptyResult>(Method::Subscribe, &params).await?;
        *lock(&self.core.subscribed).entry(uri.clone()).or_default() += 1;
        Ok(Subscription { _stream: None, resource: Some((self.core.clone(), uri)) })
    }

    /// In the stateless era changes of lists are told on a stream; in a session they come by themselves.
    pub(super) async fn watch_lists(&self) -> Result<(), ClientError> {
        let can = self.capabilities();
        let tells = |list: &Option<ListCapability>| list.as_ref().and_then(|list| list.list_changed);
        let filter = SubscriptionFilter {
            tools_list_changed: tells(&can.tools),
            prompts_list_changed: tells(&can.prompts),
            resources_list_changed: can.resources.as_ref().and_then(|list| list.list_changed),
            resource_subscriptions: None,
            task_ids: None,
        };
        if self.revision().era() == Era::Stateless && filter != SubscriptionFilter::default() {
            let stream = self.listen(filter).await?;
            let _ = self.watching.set(stream);
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
        let (stream, given_up) = oneshot::channel();
        start(&self.core.runtime, async move {
            tokio::select! {
                // The call is dropped, which tells the server.
                _ = given_up => {}
                error = keep(&core, &params, &notifications, call) => {
                    tracing::warn!(?error, "the server ended a stream: changes are told no more");
                }
            }
        });
        Ok(Subscription { _stream: Some(stream), resource: None })
    }
}

/// Opens a stream of notifications and waits until the server has acknowledged it.
async fn open(core: &Core, params: &[u8]) -> Result<Stream, CallError> {
    let acknowledged = Arc::new(Notify::new());
    let mut call = core.peer.request(Method::Listen.name(), Duration::MAX, |number, out| {
        lock(&core.acknowledged).insert(number, acknowledged.clone());
        core.write_params(core.revision(), params, None, &Options::default(), out);
    })?;
    let number = call.number();
    let timeout = core.settings.timeout;
    let opened = tokio::select! {
        biased; // a stream that was acknowledged was open, even if it has ended since
        () = acknowledged.notified() => Ok(()),
        ended = &mut call => Err(ended.err().unwrap_or(CallError::Lost("the server closed the stream".into()))),
        () = tokio::time::sleep(timeout) => Err(CallError::TimedOut(timeout)),
    };
    lock(&core.acknowledged).remove(&number);
    opened.map(|()| call)
}

/// Waits for the end of a stream. One that was cut is opened again, where the transport can lose one alone; what may
/// have changed meanwhile counts as changed.
async fn keep(
    core: &Arc<Core>,
    params: &[u8],
    filter: &SubscriptionFilter,
    mut call: Stream,
) -> Option<CallError> {
    loop {
        let mut error = call.await.err()?;
        let mut tries = 0;
        call = loop {
            let later = tries > 0 && !matches!(error, CallError::Rejected(_) | CallError::Closed(_));
            if !(is_lost(&error) || later) || core.carrier().is_none() || tries == MAX_TRIES {
                return Some(error);
            }
            tokio::time::sleep(PAUSES.0.saturating_mul(1 << tries).min(PAUSES.1)).await;
            tries += 1;
            match open(core, params).await {
                Ok(call) => break call,
                Err(again) => error = again,
            }
        };
        tracing::debug!("a stream that was cut is open again");
        missed(core, filter);
    }
}

/// Tells of everything that a stream tells of.
fn missed(core: &Arc<Core>, filter: &SubscriptionFilter) {
    let inbox = Inbox(core.clone());
    let lists = [
        (filter.tools_list_changed, Changed::Tools),
        (filter.prompts_list_changed, Changed::Prompts),
        (filter.resources_list_changed, Changed::Resources),
    ];
    lists.into_iter().filter(|(told, _)| *told == Some(true)).for_each(|(_, list)| inbox.changed(list));
    filter.resource_subscriptions.iter().flatten().for_each(|uri| inbox.updated(uri.clone()));
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let Some((core, uri)) = self.resource.take() else { return };
        {
            let mut subscribed = lock(&core.subscribed);
            let watching = subscribed.get_mut(&uri).map_or(0, |watching| {
                *watching -= 1;
                *watching
            });
            if watching > 0 {
                return; // somebody else still does
            }
            subscribed.remove(&uri);
        }
        start(&core.runtime.clone(), async move {
            let (revision, method) = (core.revision(), Method::Unsubscribe.name());
            let params = to_vec(&SubscribeParams { uri, meta: None }, revision);
            if let Err(error) = core.ask(revision, method, &params, &Options::default()).await {
                tracing::debug!(%error, "a subscription could not be ended");
            }
        });
    }
}
