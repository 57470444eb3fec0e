//! Resource subscriptions of users and agents, in memory. Each holds a connection to its server.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::Notify;

use crate::actor::{Actor, Subject};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{ServerId, TenantId};
use crate::lock::lock;

/// Maximum number of subscriptions of a user or agent.
const MAX_SUBSCRIPTIONS: usize = 100;

/// Subscription of the caller to a resource.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "ResourceSubscription")]
pub struct SubscriptionView {
    /// URI of the resource.
    pub uri: String,
    /// Whether updates are received now. After a lost connection the hub subscribes again.
    pub is_connected: bool,
    /// Time at which the subscription was made.
    #[schemars(with = "String")]
    pub created: Timestamp,
}

/// Subscription of a subject to a resource of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::hub) struct SubscriptionKey {
    pub(in crate::hub) tenant: TenantId,
    pub(in crate::hub) subject: Subject,
    pub(in crate::hub) server: ServerId,
    pub(in crate::hub) uri: String,
}

/// State of a subscription that its task and the notifications of the server share.
pub(in crate::hub) struct SubscriptionState {
    created: Timestamp,
    is_connected: AtomicBool,
    /// Notified when the resource was updated.
    pub(in crate::hub) updated: Notify,
    /// Notified when the subscription must end.
    pub(in crate::hub) end: Notify,
}

/// All resource subscriptions of the hub.
#[derive(Default)]
pub(in crate::hub) struct Subscriptions(Mutex<HashMap<SubscriptionKey, Arc<SubscriptionState>>>);

impl SubscriptionKey {
    pub(in crate::hub) fn actor(&self) -> Actor {
        Actor::new(self.tenant, self.subject)
    }
}

impl SubscriptionState {
    pub(in crate::hub) fn set_connected(&self, is_connected: bool) {
        self.is_connected.store(is_connected, Ordering::Relaxed);
    }

    pub(in crate::hub) fn view(&self, uri: &str) -> SubscriptionView {
        let (created, is_connected) = (self.created, self.is_connected.load(Ordering::Relaxed));
        SubscriptionView { uri: uri.to_owned(), is_connected, created }
    }
}

impl Subscriptions {
    /// Adds a subscription. Returns its state and whether it is new.
    pub(in crate::hub) fn add(
        &self,
        key: &SubscriptionKey,
        now: Timestamp,
    ) -> Result<(Arc<SubscriptionState>, bool)> {
        let mut all = lock(&self.0);
        if let Some(state) = all.get(key) {
            return Ok((state.clone(), false));
        }
        let is_own = |other: &&SubscriptionKey| (other.tenant, other.subject) == (key.tenant, key.subject);
        if all.keys().filter(is_own).count() >= MAX_SUBSCRIPTIONS {
            let text = format!(
                "the limit of {MAX_SUBSCRIPTIONS} resource subscriptions is reached: end one of them first"
            );
            return Err(Error::new(ErrorKind::LimitExceeded, "too_many_subscriptions", text));
        }
        let state = Arc::new(SubscriptionState {
            created: now,
            is_connected: AtomicBool::new(false),
            updated: Notify::new(),
            end: Notify::new(),
        });
        all.insert(key.clone(), state.clone());
        Ok((state, true))
    }

    /// Removes a subscription and ends its task. Returns whether there was one.
    pub(in crate::hub) fn remove(&self, key: &SubscriptionKey) -> bool {
        let removed = lock(&self.0).remove(key);
        if let Some(state) = &removed {
            state.end.notify_one();
        }
        removed.is_some()
    }

    /// Removes a subscription that has ended, unless it was replaced by a new one.
    pub(in crate::hub) fn remove_ended(&self, key: &SubscriptionKey, state: &Arc<SubscriptionState>) {
        let mut all = lock(&self.0);
        if all.get(key).is_some_and(|current| Arc::ptr_eq(current, state)) {
            all.remove(key);
        }
    }

    /// Removes the subscriptions of a subject and ends their tasks.
    pub(in crate::hub) fn remove_subject(&self, tenant: TenantId, subject: Subject) {
        let is_removed = |key: &SubscriptionKey| (key.tenant, key.subject) == (tenant, subject);
        for (_, state) in lock(&self.0).extract_if(|key, _| is_removed(key)) {
            state.end.notify_one();
        }
    }

    /// Lists the subscriptions of a subject to resources of a server, by URI.
    pub(in crate::hub) fn list(&self, actor: Actor, server: ServerId) -> Vec<SubscriptionView> {
        let wanted = (actor.tenant(), actor.subject(), server);
        let all = lock(&self.0);
        let own = all.iter().filter(|(key, _)| (key.tenant, key.subject, key.server) == wanted);
        let mut views: Vec<_> = own.map(|(key, state)| state.view(&key.uri)).collect();
        views.sort_unstable_by(|one, other| one.uri.cmp(&other.uri));
        views
    }

    /// Notifies the subscriptions of a subject to this resource, or to one that contains it: a server may report the
    /// update of a part.
    pub(in crate::hub) fn updated(&self, tenant: TenantId, subject: Subject, server: ServerId, uri: &str) {
        for (key, state) in &*lock(&self.0) {
            let is_own = (key.tenant, key.subject, key.server) == (tenant, subject, server);
            if is_own && is_part(uri, &key.uri) {
                state.updated.notify_one();
            }
        }
    }
}

/// Returns whether `uri` is a resource, or a part of it: the rest after its URI begins with a separator.
fn is_part(uri: &str, resource: &str) -> bool {
    let rest = uri.strip_prefix(resource);
    rest.is_some_and(|rest| rest.is_empty() || resource.ends_with('/') || rest.starts_with(['/', '#', '?']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::UserId;

    #[test]
    fn an_update_of_a_part_is_an_update_of_the_whole() {
        for (uri, is_update) in [
            ("file:///a", true),
            ("file:///a/b", true),
            ("file:///a#1", true),
            ("file:///ab", false),
            ("file:///", false),
        ] {
            assert_eq!(is_part(uri, "file:///a"), is_update, "{uri}");
        }
        assert!(is_part("file:///a/b", "file:///a/"));
    }

    #[test]
    fn a_subject_has_a_limited_number_of_subscriptions() {
        let subscriptions = Subscriptions::default();
        let key = |user, number: usize| SubscriptionKey {
            tenant: TenantId::from_u128(1),
            subject: Subject::User(UserId::from_u128(user)),
            server: ServerId::from_u128(1),
            uri: number.to_string(),
        };
        for number in 0..MAX_SUBSCRIPTIONS {
            assert!(subscriptions.add(&key(1, number), Timestamp::UNIX_EPOCH).unwrap().1);
        }
        let error = subscriptions.add(&key(1, 100), Timestamp::UNIX_EPOCH).err().unwrap();
        assert_eq!(error.code(), "too_many_subscriptions");
        assert!(!subscriptions.add(&key(1, 0), Timestamp::UNIX_EPOCH).unwrap().1, "it exists");
        assert!(subscriptions.add(&key(2, 0), Timestamp::UNIX_EPOCH).unwrap().1, "another subject");
        assert!(subscriptions.remove(&key(1, 0)) && !subscriptions.remove(&key(1, 0)));
        assert!(subscriptions.add(&key(1, 100), Timestamp::UNIX_EPOCH).is_ok());
        subscriptions.remove_subject(key(1, 0).tenant, key(1, 0).subject);
        assert_eq!(subscriptions.list(key(1, 0).actor(), key(1, 0).server).len(), 0);
        assert_eq!(subscriptions.list(key(2, 0).actor(), key(2, 0).server).len(), 1);
    }
}
