//! Catalog of a running server, and the notification of clients about its changes.

use std::any::Any;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;

use tokio::runtime::Handle;

use super::Catalog;
use crate::lock::lock;
use crate::server::forward::{Forward, ForwardedDefinitions};
use crate::server::{ClientState, spawn};
use crate::{Error, Result};

/// Time within which changes of the lists are announced together.
const ANNOUNCE_DELAY: Duration = Duration::from_millis(20);

/// List of definitions whose changes are announced to clients: tools, resources or prompts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ListKind {
    Tools,
    Resources,
    Prompts,
}

#[derive(Default)]
pub(crate) struct LiveCatalog {
    catalog: RwLock<Arc<Catalog>>,
    /// Clients to notify, by their address in memory.
    clients: Mutex<HashMap<usize, Weak<ClientState>>>,
    /// Runtime of the last connection, for changes made outside of any runtime.
    runtime: Mutex<Option<Handle>>,
    pending_changes: Mutex<Vec<ListKind>>,
    /// Objects that must live as long as the server, such as clients of remote servers.
    held_values: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
    /// Receiver of the requests for forwarded definitions.
    forward: OnceLock<Arc<dyn Forward>>,
    /// Whether the receiver will be notified of changed resource subscriptions.
    has_changed_subscriptions: AtomicBool,
}

impl LiveCatalog {
    pub(crate) fn snapshot(&self) -> Arc<Catalog> {
        self.catalog.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the catalog of the running server. Requests in flight retain the snapshot that they started with.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Catalog) -> Result<T>) -> Result<T> {
        let mut catalog = self.catalog.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut catalog))
    }

    /// Sets the receiver of forwarded requests.
    pub(crate) fn set_forward(&self, to: Arc<dyn Forward>) -> Result<()> {
        self.forward.set(to).map_err(|_| Error::setup("`forward` is set more than once"))
    }

    /// Returns the receiver of forwarded requests, if there is one.
    pub(crate) fn forward(&self) -> Option<&Arc<dyn Forward>> {
        self.forward.get()
    }

    /// Replaces the catalog by forwarded definitions. Returns the lists that have changed for a client.
    pub(crate) fn set_forwarded(&self, definitions: ForwardedDefinitions) -> Result<Vec<ListKind>> {
        let to = self.forward().ok_or_else(|| {
            Error::setup("the server has no receiver of forwarded requests: set it with `forward`")
        })?;
        let (next, has_clients) = (definitions.into_catalog(to), !lock(&self.clients).is_empty());
        self.change(|catalog| {
            let changed = [
                (ListKind::Tools, !catalog.tools.has_same_definitions(&next.tools)),
                (
                    ListKind::Resources,
                    !catalog.resources.has_same_definitions(&next.resources)
                        || !catalog.templates.has_same_definitions(&next.templates),
                ),
                (ListKind::Prompts, !catalog.prompts.has_same_definitions(&next.prompts)),
            ];
            *catalog = next;
            let is_announced = |&(_, has_changed): &(ListKind, bool)| has_changed && has_clients;
            Ok(changed.into_iter().filter(is_announced).map(|(kind, _)| kind).collect())
        })
    }

    /// Notifies the receiver of forwarded requests, after a short delay, of the resources that clients are subscribed
    /// to.
    pub(crate) fn subscriptions_changed(self: &Arc<Self>) {
        let (Some(to), Some(runtime)) = (self.forward(), self.runtime()) else { return };
        if self.has_changed_subscriptions.swap(true, Ordering::AcqRel) {
            return;
        }
        let (live, to) = (Arc::downgrade(self), to.clone());
        spawn(&runtime, async move {
            tokio::time::sleep(ANNOUNCE_DELAY).await;
            let mut uris = BTreeSet::new();
            if let Some(live) = live.upgrade() {
                live.has_changed_subscriptions.store(false, Ordering::Release);
                live.clients().iter().for_each(|client| client.collect_subscriptions(&mut uris));
            }
            to.subscriptions_changed(uris);
        });
    }

    /// Retains a value for as long as the server lives.
    pub(crate) fn retain(&self, value: Arc<dyn Any + Send + Sync>) {
        lock(&self.held_values).push(value);
    }

    /// Subscribes a connected client to notifications of changed lists.
    pub(crate) fn add_client(&self, caller: &Arc<ClientState>) {
        if let Ok(runtime) = Handle::try_current() {
            *lock(&self.runtime) = Some(runtime);
        }
        lock(&self.clients).insert(address(caller), Arc::downgrade(caller));
    }

    /// Removes a disconnected client from the list of clients that receive change notifications. A remaining weak
    /// pointer would hold its memory.
    pub(crate) fn remove_client(self: &Arc<Self>, caller: &ClientState) {
        let mut callers = lock(&self.clients);
        callers.remove(&address(caller));
        if callers.capacity() > 64 && callers.capacity() > 8 * callers.len() {
            callers.shrink_to_fit();
        }
        drop(callers);
        if caller.has_subscriptions() {
            self.subscriptions_changed();
        }
    }

    pub(crate) fn clients(&self) -> Vec<Arc<ClientState>> {
        lock(&self.clients).values().filter_map(Weak::upgrade).collect()
    }

    /// Announces a changed list to all clients after a short delay, together with other changes in that time.
    pub(crate) fn announce(self: &Arc<Self>, kind: ListKind) {
        {
            let mut changes = lock(&self.pending_changes);
            if changes.contains(&kind) {
                return;
            }
            changes.push(kind);
            if changes.len() > 1 {
                return; // the task of the first change announces all
            }
        }
        let notifier = ChangeNotifier(self.clone());
        if let Some(runtime) = self.runtime() {
            spawn(&runtime, async move {
                tokio::time::sleep(ANNOUNCE_DELAY).await;
                drop(notifier);
            });
        }
    }

    fn runtime(&self) -> Option<Handle> {
        Handle::try_current().ok().or_else(|| lock(&self.runtime).clone())
    }

    fn notify_clients(&self) {
        let changes = std::mem::take(&mut *lock(&self.pending_changes));
        let runtime = self.runtime();
        for caller in self.clients() {
            for &kind in &changes {
                caller.list_changed(kind, runtime.as_ref());
            }
        }
    }
}

fn address(caller: &ClientState) -> usize {
    std::ptr::from_ref(caller).addr()
}

/// Guard that announces catalog changes when it is dropped: after the delay, or immediately if there is no runtime (any
/// more).
struct ChangeNotifier(Arc<LiveCatalog>);

impl Drop for ChangeNotifier {
    fn drop(&mut self) {
        self.0.notify_clients();
    }
}
