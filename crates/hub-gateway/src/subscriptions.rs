//! Resource subscriptions of the clients of all surfaces: one subscription in the hub for each caller and resource,
//! however many clients are subscribed to it. A subscription that fails or is lost is made again after a while.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use linchpin_hub_core::Actor;
use linchpin_hub_core::hub::Hub;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::forwarder::Forwarder;

/// Delay before a subscription that failed or was lost is made again.
pub(crate) const RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum time for which the response to a subscription of a client waits for the server.
const MAX_SUBSCRIBE_WAIT: Duration = Duration::from_secs(2);
/// Maximum number of subscriptions that are made at the same time: an unresponsive server does not delay the others.
const MAX_OPENING: usize = 32;

/// Subscription of a caller to a resource: slug of the server and upstream URI.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SubscriptionKey {
    pub(crate) actor: Actor,
    pub(crate) server: String,
    pub(crate) uri: String,
}

/// State of a subscription in the hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SubscriptionState {
    Opening,
    Open,
    /// The subscription failed or was lost; it is made again after this time.
    Lost(Instant),
    /// The subscription is being ended. If a client wants it again, it is made after that.
    Closing,
}

/// Subscriptions of all surfaces.
#[derive(Clone)]
pub(crate) struct Subscriptions {
    hub: Arc<Hub>,
    states: Arc<Mutex<HashMap<SubscriptionKey, SubscriptionState>>>,
    opening: Arc<Semaphore>,
    /// Notified when the subscriptions of a client have changed.
    pub(crate) changed: Arc<Notify>,
    /// Notified when a subscription was made or has failed.
    settled: Arc<Notify>,
}

impl Subscriptions {
    pub(crate) fn new(hub: Arc<Hub>) -> Self {
        let opening = Arc::new(Semaphore::new(MAX_OPENING));
        Subscriptions {
            hub,
            states: Arc::default(),
            opening,
            changed: Arc::default(),
            settled: Arc::default(),
        }
    }

    fn states(&self) -> MutexGuard<'_, HashMap<SubscriptionKey, SubscriptionState>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until subscriptions that clients want were made, or have failed now. Waits no longer than
    /// [`MAX_SUBSCRIBE_WAIT`] for an unresponsive server.
    pub(crate) async fn wait_until_settled(&self, keys: Vec<SubscriptionKey>) {
        // One that failed before is made again now.
        let is_lost = |key: &SubscriptionKey, state: &SubscriptionState| {
            matches!(state, SubscriptionState::Lost(_)) && keys.contains(key)
        };
        self.states().retain(|key, state| !is_lost(key, state));
        self.changed.notify_one();
        let made = async {
            loop {
                let mut settled = std::pin::pin!(self.settled.notified());
                settled.as_mut().enable();
                if self.are_settled(&keys) {
                    return;
                }
                settled.await;
            }
        };
        if timeout(MAX_SUBSCRIBE_WAIT, made).await.is_err() {
            tracing::debug!("a server does not respond to a subscription of a gateway client");
        }
    }

    fn are_settled(&self, keys: &[SubscriptionKey]) -> bool {
        let states = self.states();
        keys.iter().all(|key| match states.get(key) {
            Some(SubscriptionState::Open | SubscriptionState::Lost(_)) => true,
            Some(SubscriptionState::Opening | SubscriptionState::Closing) | None => false,
        })
    }

    /// Makes the subscriptions that clients want and the hub does not have, and ends those that no client wants, in
    /// tasks of the set.
    pub(crate) fn update(&self, forwarders: &[Arc<Forwarder>], tasks: &mut JoinSet<()>) {
        // Locked first: a subscription that a client is waiting for must not be taken for one that no client wants.
        let (mut states, now) = (self.states(), Instant::now());
        let wanted: HashSet<_> = forwarders.iter().flat_map(|forwarder| forwarder.subscriptions()).collect();
        states.retain(|key, state| {
            if wanted.contains(key) || *state == SubscriptionState::Closing {
                return true;
            }
            let is_opening = *state == SubscriptionState::Opening;
            if !is_opening {
                *state = SubscriptionState::Closing;
                tasks.spawn(self.clone().unsubscribe(key.clone()));
            }
            !is_opening // one that is being opened is ended when it is open
        });
        for key in wanted {
            let is_due = match states.get(&key) {
                None => true,
                Some(SubscriptionState::Lost(retry)) => *retry <= now,
                Some(_) => false,
            };
            if is_due {
                states.insert(key.clone(), SubscriptionState::Opening);
                tasks.spawn(self.clone().subscribe(key));
            }
        }
    }

    async fn subscribe(self, key: SubscriptionKey) {
        let Ok(_opening) = self.opening.acquire().await else { return };
        let subscribed = self.hub.calls().subscribe(key.actor, &key.server, &key.uri).await;
        let next = match &subscribed {
            Ok(_) => SubscriptionState::Open,
            Err(error) => {
                tracing::debug!(server = key.server, %error, "failed to subscribe to a resource for a gateway client");
                SubscriptionState::Lost(Instant::now() + RETRY_INTERVAL)
            }
        };
        let is_wanted = match self.states().entry(key.clone()) {
            Entry::Occupied(mut state) => {
                state.insert(next);
                true
            }
            Entry::Vacant(state) => {
                if subscribed.is_ok() {
                    state.insert(SubscriptionState::Closing);
                }
                false
            }
        };
        self.settled.notify_waiters();
        if !is_wanted && subscribed.is_ok() {
            self.clone().unsubscribe(key).await; // the last client unsubscribed in the meantime
        }
    }

    async fn unsubscribe(self, key: SubscriptionKey) {
        let ended = self.hub.calls().unsubscribe(key.actor, &key.server, &key.uri).await;
        if let Err(error) = ended {
            tracing::debug!(server = key.server, %error, "failed to unsubscribe from a resource for a gateway client");
        }
        self.states().remove(&key);
        self.changed.notify_one();
    }

    /// Records that the hub has ended a subscription.
    pub(crate) fn lost(&self, key: &SubscriptionKey) {
        if let Some(state @ SubscriptionState::Open) = self.states().get_mut(key) {
            *state = SubscriptionState::Lost(Instant::now() + RETRY_INTERVAL);
        }
    }
}
