//! Being told of changes: by a subscription in a session, by a stream in the stateless era.

use std::sync::Arc;
use std::time::Duration;

use linchpin_jsonrpc::CallError;
use linchpin_protocol::encode::to_vec;
use linchpin_protocol::model::{
    EmptyResult, ListCapability, SubscribeParams, SubscriptionFilter, SubscriptionsListenParams,
};
use linchpin_protocol::{Era, Method};
use tokio::sync::{Notify, oneshot};

use super::core::{Core, Options};
use super::{Client, ClientError};
use crate::server::start;
use crate::sync::lock;

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
        let (core, revision) = (&self.core, self.revision());
        let params = to_vec(&SubscriptionsListenParams { notifications, meta: None }, revision);
        let acknowledged = Arc::new(Notify::new());
        let mut call = core.peer.request(Method::Listen.name(), Duration::MAX, |number, out| {
            lock(&core.acknowledged).insert(number, acknowledged.clone());
            core.write_params(revision, &params, None, &Options::default(), out);
        })?;
        let number = call.number();
        let timeout = core.settings.timeout;
        let opened = tokio::select! {
            () = acknowledged.notified() => Ok(()),
            ended = &mut call => Err(ended.err().unwrap_or(CallError::Lost("the server closed the stream".into()))),
            () = tokio::time::sleep(timeout) => Err(CallError::TimedOut(timeout)),
        };
        lock(&core.acknowledged).remove(&number);
        opened?;
        let (stream, given_up) = oneshot::channel();
        start(&core.runtime, async move {
            tokio::select! {
                // The call is dropped, which tells the server.
                _ = given_up => {}
                ended = call => {
                    tracing::warn!(error = ?ended.err(), "the server ended a stream: changes are told no more");
                }
            }
        });
        Ok(Subscription { _stream: Some(stream), resource: None })
    }
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
