//! Resource subscriptions: subscribe, list and unsubscribe. A task per subscription holds the connection, publishes
//! updates, subscribes again after a lost connection, and ends when the subject loses access.

use std::sync::Arc;
use std::time::Duration;

use linchpin::client::Subscription;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

use super::Calls;
use super::resources_prompts::{ReadOperation, check_uri};
use crate::actor::{Actor, Subject};
use crate::agent::Agent;
use crate::connection::PooledConnection;
use crate::error::{Error, ErrorKind, Result};
use crate::hub::event_payloads;
use crate::hub::upstream::connect::request_error;
use crate::hub::upstream::subscriptions::{SubscriptionKey, SubscriptionState, SubscriptionView};
use crate::id::TenantId;
use crate::server::Server;
use crate::store::Batch;

/// Minimum interval between two events of a subscription: updates in between are one event.
const MIN_EVENT_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which a subscription checks whether its connection is still the current one.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// Delay before a lost subscription is made again: first and maximum.
const RETRY_BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

const SUBSCRIPTION: ReadOperation = ReadOperation {
    name: "resource",
    field: "uri",
    read_action: "resource.subscribed",
    denied_action: "resource.rejected",
    is_selected: Agent::may_read,
};

/// Subscription at the server, with the connection that it holds.
struct OpenSubscription {
    connection: PooledConnection,
    subscription: Subscription,
}

impl OpenSubscription {
    /// Waits until updates do not arrive over this connection any more.
    async fn lost(&mut self) {
        let mut checks = interval(CHECK_INTERVAL);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.connection.closing() => return,
                () = self.subscription.ended() => return,
                _ = checks.tick() => if !self.connection.is_current() { return },
            }
        }
    }
}

impl Calls {
    /// Subscribes the caller to updates of a resource, which are published as events. Does nothing if the caller is
    /// subscribed to it.
    pub async fn subscribe(
        self: &Arc<Self>,
        actor: Actor,
        server: &str,
        uri: &str,
    ) -> Result<SubscriptionView> {
        check_uri(uri)?;
        let server = self.admit(actor, server, &SUBSCRIPTION, uri).await?;
        let (tenant, subject) = (actor.tenant(), actor.subject());
        let key = SubscriptionKey { tenant, subject, server: server.id, uri: uri.to_owned() };
        let subscriptions = self.upstream.subscriptions();
        let (state, is_new) = subscriptions.add(&key, self.context.platform.now())?;
        if is_new {
            let guard = EndedGuard { calls: self.clone(), key: key.clone(), state: state.clone() };
            // If this fails or the caller stops waiting, the guard removes the subscription.
            let open = self.open_subscription(actor, &server, uri).await?;
            state.set_connected(true);
            self.upstream.spawn_subscription(guard.hold(open));
        }
        Ok(state.view(uri))
    }

    /// Ends a subscription of the caller.
    pub async fn unsubscribe(&self, actor: Actor, server: &str, uri: &str) -> Result<()> {
        check_uri(uri)?;
        let server = self.registry.visible_server(actor, server).await?;
        let (tenant, subject) = (actor.tenant(), actor.subject());
        let key = SubscriptionKey { tenant, subject, server: server.id, uri: uri.to_owned() };
        if !self.upstream.subscriptions().remove(&key) {
            return Err(Error::not_found("subscription", crate::text::shorten(uri)));
        }
        let entry = self.context.entry(actor, "resource.unsubscribed");
        let entry = entry.with("server", server.id.to_string()).with("uri", uri);
        self.context.store.commit(tenant, Batch::new().audit(entry)).await
    }

    /// Lists the caller's subscriptions to resources of a server.
    pub async fn subscriptions(&self, actor: Actor, server: &str) -> Result<Vec<SubscriptionView>> {
        let server = self.registry.visible_server(actor, server).await?;
        Ok(self.upstream.subscriptions().list(actor, server.id))
    }

    /// Ends all subscriptions of a subject, for example after a logout.
    pub(in crate::hub) fn end_subscriptions(&self, tenant: TenantId, subject: Subject) {
        self.upstream.subscriptions().remove_subject(tenant, subject);
    }

    /// Subscribes at the server, over the connection of the subject.
    async fn open_subscription(&self, actor: Actor, server: &Server, uri: &str) -> Result<OpenSubscription> {
        let connection = self.upstream.connection_for(actor, server).await?;
        let capability = connection.capabilities().resources.as_ref();
        if capability.and_then(|resources| resources.subscribe) != Some(true) {
            let text = format!("the server `{}` does not offer resource subscriptions", server.slug.as_str());
            return Err(Error::new(ErrorKind::Conflict, "subscriptions_not_supported", text));
        }
        match connection.subscribe(uri).await {
            Ok(subscription) => Ok(OpenSubscription { connection, subscription }),
            Err(error) => {
                self.upstream.failed_request(&connection, &error).await;
                let failure = "failed to subscribe to the resource";
                Err(request_error(server, &connection.redactor, failure, &error))
            }
        }
    }

    /// Subscribes again, if the subject still has access to the server.
    async fn reopen_subscription(&self, key: &SubscriptionKey) -> Result<OpenSubscription> {
        let actor = key.actor();
        let server = self.registry.visible_server(actor, &key.server.to_string()).await?;
        let agent = self.reading_agent(actor).await?;
        if agent.is_some_and(|(agent, _)| !agent.may_read(server.id, &key.uri)) {
            return Err(Error::not_found("resource", crate::text::shorten(&key.uri)));
        }
        self.open_subscription(actor, &server, &key.uri).await
    }
}

/// Guard that removes a subscription when its task ends.
struct EndedGuard {
    calls: Arc<Calls>,
    key: SubscriptionKey,
    state: Arc<SubscriptionState>,
}

impl Drop for EndedGuard {
    fn drop(&mut self) {
        self.calls.upstream.subscriptions().remove_ended(&self.key, &self.state);
    }
}

impl EndedGuard {
    /// Publishes the updates of the resource until the subscription ends.
    async fn hold(self, open: OpenSubscription) {
        let mut open = Some(open);
        let mut next_event = Instant::now();
        loop {
            if let Some(mut open) = open.take() {
                let is_ended = loop {
                    tokio::select! {
                        biased;
                        () = self.state.end.notified() => break true,
                        () = open.lost() => break false,
                        () = self.next_update(next_event) => {
                            self.publish("resource.updated");
                            next_event = Instant::now() + MIN_EVENT_INTERVAL;
                        }
                    }
                };
                if is_ended {
                    return self.publish_end();
                }
            }
            self.state.set_connected(false);
            open = tokio::select! {
                () = self.state.end.notified() => return self.publish_end(),
                open = self.reopen() => open,
            };
            if open.is_none() {
                return self.publish_end();
            }
            self.state.set_connected(true);
            self.state.updated.notify_one(); // the resource may have been updated in between
        }
    }

    /// Waits for an update, and at least until this time.
    async fn next_update(&self, not_before: Instant) {
        sleep_until(not_before).await;
        self.state.updated.notified().await;
    }

    /// Subscribes again, with backoff, until it succeeds. Returns `None` if the subject has no access any more.
    async fn reopen(&self) -> Option<OpenSubscription> {
        let mut delay = RETRY_BACKOFF.0;
        loop {
            match self.calls.reopen_subscription(&self.key).await {
                Ok(open) => return Some(open),
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    tracing::debug!(server.id = %self.key.server, %error, "failed to subscribe to a resource again; retrying");
                }
                // The server was changed at this moment: read it again.
                Err(error) if ["server_changed", "egress_changed"].contains(&error.code()) => {}
                Err(error) => {
                    tracing::info!(server.id = %self.key.server, %error, "resource subscription ended");
                    return None;
                }
            }
            sleep(delay).await;
            delay = RETRY_BACKOFF.1.min(2 * delay);
        }
    }

    /// Removes the subscription and publishes that it has ended.
    fn publish_end(&self) {
        self.calls.upstream.subscriptions().remove_ended(&self.key, &self.state);
        self.publish("resource.subscription_ended");
    }

    fn publish(&self, kind: &'static str) {
        let SubscriptionKey { tenant, subject, server, uri } = &self.key;
        self.calls.context.events.publish(*tenant, event_payloads::resource(kind, *server, uri, *subject));
    }
}
