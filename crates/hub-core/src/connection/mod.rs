//! Pool of connections to upstream servers. A connection is opened on demand, shared only by callers with the same key,
//! and closed when it is idle or when its server or credential changes.

mod attempt;
mod callbacks;
mod close;
mod liveness;
mod open;

use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use linchpin::Client;
use linchpin::auth::{Authorize, Secret};
use linchpin::client::Lineage;
use linchpin::egress::Egress;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::attempt::ConnectAttempt;
pub use self::callbacks::{OnDenied, OnElicitationCompleted, OnListChanged, OnResourceUpdated};
use self::open::ServerNotification;
pub(crate) use self::open::{all_capabilities, backoff, is_retryable, with_egress_hint};
use crate::actor::{Actor, Subject};
use crate::error::{Error, ErrorKind, Result};
use crate::events::{EventLog, NewEvent};
use crate::id::{SecretId, ServerId, TenantId};
use crate::lock::lock;
use crate::platform::Platform;
use crate::secrets::hub_secrets::HubSecrets;
use crate::secrets::redact::{IssuedTokens, Redactor};
use crate::server::Server;
use crate::task_set::TaskSet;

/// Lifetime below which a closed connection counts as a failed attempt to connect.
const MIN_STABLE_LIFETIME: Duration = Duration::from_secs(10);
/// Backoff after a failed attempt to connect: first and maximum.
const RECONNECT_BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// Maximum number of concurrent users of a connection to a server.
const MAX_USERS: u32 = 1 << 20;
/// Number of known server versions above which those of servers without connections are forgotten.
const MAX_KNOWN_VERSIONS: usize = 10_000;

/// Key of a connection in the pool: tenant, subject, server, its version and the credential. Callers with different
/// keys use different connections.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ConnectionKey {
    tenant: TenantId,
    subject: Subject,
    server: ServerId,
    /// Version of the server's settings; a change leads to a new connection.
    version: u64,
    credential: Option<(SecretId, u64)>,
}

/// Credential with which a connection authenticates to its server.
#[derive(Clone)]
pub struct ConnectionCredential {
    /// Id of the secret in the vault.
    pub id: SecretId,
    /// Version of the secret, increased by each change.
    pub version: u64,
    /// Secret or OAuth grant that authenticates the connection.
    pub proof: AuthMaterial,
}

/// What a connection authenticates with at its server: a stored secret, or an OAuth grant.
#[derive(Clone)]
pub enum AuthMaterial {
    /// Secret that a user has stored.
    Secret(Secret),
    /// OAuth grant, with its last tokens for redaction.
    OAuth(Arc<dyn Authorize>, Arc<IssuedTokens>),
}

/// Status of the hub's connection to a server, as shown to users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "ConnectionStatus")]
pub enum ConnectionStatus {
    /// No connection is open.
    Disconnected,
    /// A connection is being opened.
    Connecting,
    /// A connection is open.
    Connected,
    /// The connection could not be opened, or its last request did not reach the server.
    Error,
    /// The server is disabled.
    Disabled,
}

/// Options for starting the processes of stdio servers: lineage and supervisor.
#[derive(Debug, Clone, Default)]
pub struct Processes {
    /// Lineage marker that the processes of all stdio servers carry.
    pub lineage: Option<Lineage>,
    /// Program that supervises each stdio server and ends its descendants.
    pub supervisor: Option<PathBuf>,
}

/// Pool of connections to upstream servers, one per subject, server, version of its settings and credential.
pub struct ConnectionPool {
    platform: Arc<dyn Platform>,
    egress: Egress,
    events: EventLog,
    on_list_changed: OnListChanged,
    on_denied: OnDenied,
    on_resource_updated: OnResourceUpdated,
    on_elicitation_completed: OnElicitationCompleted,
    processes: Processes,
    /// Secrets of the hub, which are redacted in the results of servers.
    hub_secrets: Option<Arc<HubSecrets>>,
    slots: Mutex<Slots>,
    /// Connections that are being closed.
    closing: TaskSet,
    /// Newest known version of each server. A caller with an older version fails. Locked only while `slots` is locked.
    newest_versions: Mutex<HashMap<(TenantId, ServerId), u64>>,
}

type Slots = HashMap<ConnectionKey, Arc<Slot>>;

/// Slot of the connection pool: the connection for one key, or its absence.
struct Slot {
    /// State of the connection, locked while it is being opened, so that it is opened once.
    state: tokio::sync::Mutex<SlotState>,
    status: Mutex<SlotStatus>,
    /// Semaphore with one permit per user of the connection; closing the connection waits for all permits.
    users: Arc<Semaphore>,
    /// Semaphore without permits. It is closed when the connection is closed for new uses.
    closing: Semaphore,
    /// Semaphore without permits. It is closed when the connection must end although it is in use.
    force_close: Semaphore,
}

/// Connection of the pool while a request uses it. Dropping it releases its permit.
pub(crate) struct PooledConnection {
    client: Client,
    key: ConnectionKey,
    slot: Arc<Slot>,
    /// Number of the connection within its slot.
    number: u64,
    /// Redactor of results and errors of the server.
    pub(crate) redactor: Arc<Redactor>,
    /// Whether the connection was opened for this request.
    pub(crate) is_new: bool,
    _permit: OwnedSemaphorePermit,
}

impl Deref for PooledConnection {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Slot {
    fn new(now: Timestamp) -> Arc<Self> {
        let status = SlotStatus {
            status: ConnectionStatus::Disconnected,
            last_used: now,
            checked: now,
            is_remote: false,
            egress: None,
        };
        let users = Arc::new(Semaphore::new(MAX_USERS as usize));
        Arc::new(Slot {
            state: tokio::sync::Mutex::default(),
            status: Mutex::new(status),
            users,
            closing: Semaphore::new(0),
            force_close: Semaphore::new(0),
        })
    }

    fn acquire_permit(&self) -> Result<OwnedSemaphorePermit> {
        let text = "the connection to the server has too many concurrent requests or was just closed: retry";
        let busy = |_| Error::new(ErrorKind::Unavailable, "connection_busy", text);
        self.users.clone().try_acquire_owned().map_err(busy)
    }

    /// Returns the open connection of the slot, unless another task is opening it.
    fn pooled(slot: &Arc<Self>, key: &ConnectionKey) -> Option<PooledConnection> {
        let state = slot.state.try_lock().ok()?;
        let client = state.client.clone().filter(|client| !client.is_closed())?;
        let (redactor, number, permit) = (state.redactor.clone(), state.number, slot.acquire_permit().ok()?);
        let (key, slot) = (key.clone(), slot.clone());
        Some(PooledConnection { client, key, slot, number, redactor, is_new: false, _permit: permit })
    }
}

#[derive(Default)]
struct SlotState {
    client: Option<Client>,
    /// Number of connections that were opened in this slot.
    number: u64,
    /// Redactor of results and errors of the server.
    redactor: Arc<Redactor>,
    /// Number of consecutive failures to connect.
    failures: u32,
    /// Last error of connecting to the server, and the end of the backoff.
    last_failure: Option<(Error, Timestamp)>,
    /// Time at which the connection was opened.
    opened: Option<Timestamp>,
}

/// Status of a slot of the connection pool, readable without the async lock.
struct SlotStatus {
    status: ConnectionStatus,
    last_used: Timestamp,
    /// Time of the last check whether the server responds.
    checked: Timestamp,
    /// Whether the server is remote, so that the end of the connection is noticed only by a request.
    is_remote: bool,
    /// Egress policy with which the connection was opened.
    egress: Option<Egress>,
}

impl SlotState {
    /// Records a failed connection attempt and doubles the delay before the next one.
    fn failed(&mut self, error: Error, now: Timestamp) {
        let delay = RECONNECT_BACKOFF.0.saturating_mul(1 << self.failures.min(10)).min(RECONNECT_BACKOFF.1);
        let until = now.saturating_add(delay).unwrap_or(Timestamp::MAX);
        let (number, failures) = (self.number, self.failures + 1);
        *self = SlotState { number, failures, last_failure: Some((error, until)), ..SlotState::default() };
    }
}

fn egress_changed_error() -> Error {
    let text = "the egress policy was changed while connecting: retry";
    Error::new(ErrorKind::Conflict, "egress_changed", text)
}

fn server_changed_error() -> Error {
    Error::new(ErrorKind::Conflict, "server_changed", "the server was changed concurrently: retry")
}

fn is_within(start: Timestamp, now: Timestamp, time: Duration) -> bool {
    Duration::try_from(now.duration_since(start)).is_ok_and(|elapsed| elapsed < time)
}

impl ConnectionPool {
    /// Creates an empty pool of connections to servers.
    pub fn new(
        platform: Arc<dyn Platform>,
        egress: Egress,
        events: EventLog,
        on_list_changed: OnListChanged,
        processes: Processes,
    ) -> Self {
        ConnectionPool {
            platform,
            egress,
            events,
            on_list_changed,
            on_denied: Arc::new(|_, _, _| ()),
            on_resource_updated: Arc::new(|_, _, _, _| ()),
            on_elicitation_completed: Arc::new(|_, _, _, _| ()),
            processes,
            hub_secrets: None,
            slots: Mutex::default(),
            closing: TaskSet::default(),
            newest_versions: Mutex::default(),
        }
    }

    /// Sets the secrets of the hub, which are redacted in the results of servers.
    #[must_use]
    pub(crate) fn with_hub_secrets(self, hub_secrets: Arc<HubSecrets>) -> Self {
        ConnectionPool { hub_secrets: Some(hub_secrets), ..self }
    }

    /// Sets the callback for requests that the egress policy denies.
    #[must_use]
    pub fn on_denied(self, denied: OnDenied) -> Self {
        ConnectionPool { on_denied: denied, ..self }
    }

    /// Sets the callback for updates of resources.
    #[must_use]
    pub fn on_resource_updated(self, updated: OnResourceUpdated) -> Self {
        ConnectionPool { on_resource_updated: updated, ..self }
    }

    /// Sets the callback for completed URL elicitations.
    #[must_use]
    pub fn on_elicitation_completed(self, completed: OnElicitationCompleted) -> Self {
        ConnectionPool { on_elicitation_completed: completed, ..self }
    }

    /// Returns the pooled connection of this subject to this server, and opens it if necessary. Fails during the
    /// backoff after a failed attempt, unless the caller bypasses it.
    pub(crate) async fn acquire(
        &self,
        actor: Actor,
        server: &Server,
        credential: Option<&ConnectionCredential>,
        bypass_backoff: bool,
    ) -> Result<PooledConnection> {
        let key = ConnectionKey {
            tenant: actor.tenant(),
            subject: actor.subject(),
            server: server.id,
            version: server.version,
            credential: credential.map(|credential| (credential.id, credential.version)),
        };
        let (slot, permit) = self.slot(&key)?;
        let mut state = slot.state.lock().await;
        self.require_newest(&lock(&self.slots), &key)?; // the server may have changed while waiting for the lock
        let now = self.platform.now();
        lock(&slot.status).last_used = now;
        if let Some(client) = state.client.as_ref().filter(|client| !client.is_closed()) {
            let (client, redactor, number) = (client.clone(), state.redactor.clone(), state.number);
            drop(state);
            return Ok(PooledConnection {
                client,
                key,
                slot,
                number,
                redactor,
                is_new: false,
                _permit: permit,
            });
        }
        // A connection that closes right after it was opened counts as a failed attempt.
        if state.opened.take().is_some_and(|opened_at| is_within(opened_at, now, MIN_STABLE_LIFETIME)) {
            let text = format!(
                "the server `{}` closed the connection right after it was opened: check its log",
                server.slug.as_str()
            );
            let error = Error::new(ErrorKind::Unavailable, "server_unavailable", text);
            state.failed(error, now);
        } else if state.client.take().is_some() {
            state.failures = 0;
        }
        if let Some((error, until)) =
            state.last_failure.as_ref().filter(|(_, until)| now < *until && !bypass_backoff)
        {
            let wait = until.duration_since(now).as_secs().max(1);
            let text = format!("{}; next attempt in {wait} s", error.message());
            return Err(Error::new(ErrorKind::Unavailable, error.code(), text));
        }
        let trying = ConnectAttempt::start(self, &key, &slot);
        let (tenant, subject, id) = (key.tenant, key.subject, key.server);
        let (changed, updated, completed) = (
            self.on_list_changed.clone(),
            self.on_resource_updated.clone(),
            self.on_elicitation_completed.clone(),
        );
        let notified = move |notification| match notification {
            ServerNotification::ListChanged(list) => changed(tenant, id, list),
            ServerNotification::ResourceUpdated(uri) => updated(tenant, subject, id, &uri),
            ServerNotification::ElicitationCompleted(elicitation) => {
                completed(tenant, subject, id, &elicitation);
            }
        };
        let proof = credential.map(|credential| &credential.proof);
        let redactor = Arc::new(Redactor::for_server(server, proof, self.hub_secrets.as_ref()));
        let egress = self.egress(actor, server.id);
        {
            let mut status = lock(&slot.status);
            (status.egress, status.is_remote) = (Some(egress.clone()), server.transport.remote().is_some());
        }
        // Boxed, as its state is large and every call has this future.
        let open = Box::pin(open::open(server, proof, &redactor, &egress, &self.processes, notified));
        let opened = tokio::select! {
            opened = open => opened,
            _ = slot.force_close.acquire() => Err(server_changed_error()),
        };
        // The egress policy may have changed while the connection was being opened.
        match opened.and_then(|client| egress.is_allowed().then_some(client).ok_or_else(egress_changed_error))
        {
            Ok(client) => {
                // Earlier failures count until the connection is stable.
                let number = state.number + 1;
                *state = SlotState {
                    client: Some(client.clone()),
                    number,
                    redactor: redactor.clone(),
                    failures: state.failures,
                    last_failure: None,
                    opened: Some(self.platform.now()),
                };
                trying.finish(ConnectionStatus::Connected);
                drop(state);
                Ok(PooledConnection { client, key, slot, number, redactor, is_new: true, _permit: permit })
            }
            Err(error) => {
                state.failed(error.clone(), self.platform.now());
                trying.finish(ConnectionStatus::Error);
                Err(error)
            }
        }
    }

    /// Returns the connection slot for a key, and a permit to use it. Slots of the same subject and server with another
    /// version or credential are closed.
    fn slot(&self, key: &ConnectionKey) -> Result<(Arc<Slot>, OwnedSemaphorePermit)> {
        let mut slots = lock(&self.slots);
        self.require_newest(&slots, key)?;
        if !slots.contains_key(key) {
            let is_subject_connection = |other: &ConnectionKey, _: &Slot| {
                (other.tenant, other.subject, other.server) == (key.tenant, key.subject, key.server)
            };
            self.remove(&mut slots, false, is_subject_connection);
        }
        let slot = slots.entry(key.clone()).or_insert_with(|| Slot::new(self.platform.now())).clone();
        let permit = slot.acquire_permit()?; // under the lock: slots in the map are not being closed
        Ok((slot, permit))
    }

    /// Fails if the connection key has an older version of the server than one seen before; records the newest version.
    fn require_newest(&self, slots: &Slots, key: &ConnectionKey) -> Result<()> {
        let mut newest = lock(&self.newest_versions);
        if newest.len() > MAX_KNOWN_VERSIONS {
            let used_servers: HashSet<_> = slots.keys().map(|key| (key.tenant, key.server)).collect();
            newest.retain(|server, _| used_servers.contains(server));
        }
        let newest_version = newest.entry((key.tenant, key.server)).or_insert(key.version);
        *newest_version = key.version.max(*newest_version);
        (*newest_version == key.version).then_some(()).ok_or_else(server_changed_error)
    }

    /// Sets the connection status of a slot. A slot that was removed concurrently is ignored.
    fn set_status(&self, key: &ConnectionKey, slot: &Arc<Slot>, status: ConnectionStatus) {
        let slots = lock(&self.slots);
        if slots.get(key).is_some_and(|current| Arc::ptr_eq(current, slot)) {
            self.publish_status(key, slot, status);
        }
    }

    /// Sets the status of a connection and publishes an event if it has changed. The caller locks `slots`, so that
    /// events are in the order of the changes.
    fn publish_status(&self, key: &ConnectionKey, slot: &Slot, status: ConnectionStatus) {
        if std::mem::replace(&mut lock(&slot.status).status, status) != status {
            let body = json!({"server": key.server, "subject": key.subject.to_string(), "status": status});
            self.events.publish(key.tenant, NewEvent::new("connection", body));
        }
    }

    /// Returns the best connection status of a server among all subjects of the tenant.
    pub fn status(&self, tenant: TenantId, server: ServerId) -> ConnectionStatus {
        let slots = lock(&self.slots);
        let server_slots = slots.iter().filter(|(key, _)| key.tenant == tenant && key.server == server);
        let rank = |status: &ConnectionStatus| match status {
            ConnectionStatus::Connected => 3,
            ConnectionStatus::Connecting => 2,
            ConnectionStatus::Error => 1,
            ConnectionStatus::Disconnected | ConnectionStatus::Disabled => 0,
        };
        server_slots
            .map(|(_, slot)| lock(&slot.status).status)
            .max_by_key(rank)
            .unwrap_or(ConnectionStatus::Disconnected)
    }

    /// Opens a connection to a server outside the pool. The caller closes it.
    pub async fn connect_unpooled(
        &self,
        actor: Actor,
        server: &Server,
        proof: Option<&AuthMaterial>,
    ) -> Result<Client> {
        let (redactor, egress) = (
            Arc::new(Redactor::for_server(server, proof, self.hub_secrets.as_ref())),
            self.egress(actor, server.id),
        );
        open::open(server, proof, &redactor, &egress, &self.processes, |_| {}).await
    }

    /// Returns the egress policy for connections of an actor to a server.
    pub(crate) fn egress(&self, actor: Actor, server: ServerId) -> Egress {
        let callback = self.on_denied.clone();
        self.egress.on_denied(move |denied| callback(actor, server, denied))
    }

    /// Replaces the egress policy of the connection pool. Connections that it denies are closed, and the backoff of
    /// failed ones ends.
    pub(crate) fn change_egress(&self, egress: &Egress) {
        self.egress.reconfigure(egress);
        self.close_where(|_, slot| {
            let status = lock(&slot.status);
            let is_denied = |egress: &Egress| !egress.is_allowed();
            status.status == ConnectionStatus::Error || status.egress.as_ref().is_some_and(is_denied)
        });
    }
}

#[cfg(test)]
mod tests;
