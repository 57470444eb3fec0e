//! Pool of upstream connections. A connection is opened on demand, shared only by callers with the same key, and closed
//! when it is idle or when its server or credential changes.

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
use linchpin::client::{Changed, Lineage};
use linchpin::egress::{Denied, Egress};
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) use self::open::{allowing, backoff, may_pass};
use crate::actor::{Scope, Subject};
use crate::error::{Error, Kind, Result};
use crate::events::{Events, Told};
use crate::id::{SecretId, ServerId, TenantId};
use crate::lock::lock;
use crate::platform::World;
use crate::secrets::hub_secrets::OwnSecrets;
use crate::secrets::redact::{Hidden, Tokens};
use crate::server::Server;
use crate::task_set::Tasks;

/// Minimum lifetime of a stable connection. One that closes sooner counts as a failed attempt.
const SHORT: Duration = Duration::from_secs(10);
/// Backoff after a failed attempt to connect: first and maximum.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// Maximum number of concurrent users of a connection.
const MOST_USERS: u32 = 1 << 20;
/// Number of servers whose newest version is held in memory.
const MOST_KNOWN: usize = 10_000;

/// Key of a connection. Callers with different keys use different connections.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    tenant: TenantId,
    subject: Subject,
    server: ServerId,
    /// Version of the server's settings.
    version: u64,
    credential: Option<(SecretId, u64)>,
}

/// Credential of a connection.
#[derive(Clone)]
pub struct Credential {
    /// Id of the secret.
    pub id: SecretId,
    /// Version, increased by each change.
    pub version: u64,
    /// Secret or grant.
    pub proof: Proof,
}

/// Secret or grant that authenticates a connection.
#[derive(Clone)]
pub enum Proof {
    /// Secret that a user has stored.
    Secret(Secret),
    /// OAuth grant, with its last tokens for redaction.
    OAuth(Arc<dyn Authorize>, Arc<Tokens>),
}

/// Connection status of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "ConnectionStatus")]
pub enum Status {
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

/// Callback for changes of the lists of a server.
pub type OnChanged = Arc<dyn Fn(TenantId, ServerId, Changed) + Send + Sync>;

/// Callback for requests that the egress policy denies, with the actor and the server.
pub type OnDenied = Arc<dyn Fn(Scope, ServerId, &Denied<'_>) + Send + Sync>;

/// Options for starting stdio servers.
#[derive(Debug, Clone, Default)]
pub struct Processes {
    /// Lineage that all processes carry.
    pub lineage: Option<Lineage>,
    /// Supervisor program of each process.
    pub supervisor: Option<PathBuf>,
}

/// Pool of connections.
pub struct Connections {
    world: Arc<dyn World>,
    egress: Egress,
    events: Events,
    changed: OnChanged,
    denied: OnDenied,
    processes: Processes,
    /// Secrets of the hub, which are redacted in the results of servers.
    own: Option<Arc<OwnSecrets>>,
    slots: Mutex<Slots>,
    /// Connections that are being closed.
    endings: Tasks,
    /// Newest known version of each server. A caller with an older version fails. Locked only while `slots` is locked.
    newest: Mutex<HashMap<(TenantId, ServerId), u64>>,
}

type Slots = HashMap<Key, Arc<Slot>>;

/// Slot of one connection in the pool.
struct Slot {
    /// Locked while the connection is being opened, so that it is opened once.
    line: tokio::sync::Mutex<Line>,
    seen: Mutex<Seen>,
    /// One permit per user of the connection. Closing it waits for all permits.
    users: Arc<Semaphore>,
    /// Semaphore without permits. It is closed when the connection must end although it is in use.
    cut: Semaphore,
}

/// Connection in use. Dropping it releases its permit.
pub(crate) struct Reached {
    client: Client,
    key: Key,
    slot: Arc<Slot>,
    /// Number of the connection within its slot.
    number: u64,
    /// Redactor of results and errors of the server.
    pub(crate) hidden: Arc<Hidden>,
    /// Whether the connection was opened for this request.
    pub(crate) is_new: bool,
    _use: OwnedSemaphorePermit,
}

impl Deref for Reached {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Slot {
    fn new(now: Timestamp) -> Arc<Self> {
        let seen =
            Seen { status: Status::Disconnected, used: now, checked: now, is_remote: false, egress: None };
        let users = Arc::new(Semaphore::new(MOST_USERS as usize));
        Arc::new(Slot {
            line: tokio::sync::Mutex::default(),
            seen: Mutex::new(seen),
            users,
            cut: Semaphore::new(0),
        })
    }

    fn begin_use(&self) -> Result<OwnedSemaphorePermit> {
        let text = "the connection has too many concurrent users or was just closed: retry";
        let busy = |_| Error::new(Kind::Unavailable, "connection_busy", text);
        self.users.clone().try_acquire_owned().map_err(busy)
    }

    /// Returns the open connection, unless another task is opening it.
    fn reached(slot: &Arc<Self>, key: &Key) -> Option<Reached> {
        let line = slot.line.try_lock().ok()?;
        let client = line.client.clone().filter(|client| !client.is_closed())?;
        let (hidden, number, using) = (line.hidden.clone(), line.number, slot.begin_use().ok()?);
        let (key, slot) = (key.clone(), slot.clone());
        Some(Reached { client, key, slot, number, hidden, is_new: false, _use: using })
    }
}

#[derive(Default)]
struct Line {
    client: Option<Client>,
    /// Number of connections that were opened in this slot.
    number: u64,
    /// Redactor of results and errors of the server.
    hidden: Arc<Hidden>,
    /// Number of consecutive failures.
    failures: u32,
    /// Last error, and the end of the backoff.
    last: Option<(Error, Timestamp)>,
    /// Time at which the connection was opened.
    opened: Option<Timestamp>,
}

/// Status of a slot, readable without the async lock.
struct Seen {
    status: Status,
    used: Timestamp,
    /// Time of the last check whether the server responds.
    checked: Timestamp,
    /// Whether the connection is remote: its end is noticed only by a request.
    is_remote: bool,
    /// Egress policy with which the connection was opened.
    egress: Option<Egress>,
}

impl Line {
    /// Records a failure and doubles the backoff.
    fn failed(&mut self, error: Error, now: Timestamp) {
        let pause = PAUSES.0.saturating_mul(1 << self.failures.min(10)).min(PAUSES.1);
        let until = now.saturating_add(pause).unwrap_or(Timestamp::MAX);
        let (number, failures) = (self.number, self.failures + 1);
        *self = Line { number, failures, last: Some((error, until)), ..Line::default() };
    }
}

fn changed_way() -> Error {
    let text = "the egress policy was changed while connecting: retry";
    Error::new(Kind::Conflict, "egress_changed", text)
}

fn changed_server() -> Error {
    Error::new(Kind::Conflict, "server_changed", "the server was changed concurrently: retry")
}

fn is_within(begin: Timestamp, now: Timestamp, time: Duration) -> bool {
    Duration::try_from(now.duration_since(begin)).is_ok_and(|passed| passed < time)
}

impl Connections {
    /// Creates an empty pool.
    pub fn new(
        world: Arc<dyn World>,
        egress: Egress,
        events: Events,
        changed: OnChanged,
        processes: Processes,
    ) -> Self {
        Connections {
            world,
            egress,
            events,
            changed,
            denied: Arc::new(|_, _, _| ()),
            processes,
            own: None,
            slots: Mutex::default(),
            endings: Tasks::default(),
            newest: Mutex::default(),
        }
    }

    /// Redacts the secrets of the hub in the results of servers.
    #[must_use]
    pub(crate) fn masking(self, own: Arc<OwnSecrets>) -> Self {
        Connections { own: Some(own), ..self }
    }

    /// Sets the callback for requests that the egress policy denies.
    #[must_use]
    pub fn on_denied(self, denied: OnDenied) -> Self {
        Connections { denied, ..self }
    }

    /// Returns the connection of this subject to this server, and opens it if necessary. Fails during the backoff after
    /// a failed attempt, unless the caller bypasses it.
    pub(crate) async fn get(
        &self,
        scope: Scope,
        server: &Server,
        credential: Option<&Credential>,
        insist: bool,
    ) -> Result<Reached> {
        let key = Key {
            tenant: scope.tenant(),
            subject: scope.subject(),
            server: server.id,
            version: server.version,
            credential: credential.map(|credential| (credential.id, credential.version)),
        };
        let (slot, using) = self.slot(&key)?;
        let mut line = slot.line.lock().await;
        self.is_newest(&lock(&self.slots), &key)?; // the server may have changed while waiting for the lock
        let now = self.world.now();
        lock(&slot.seen).used = now;
        if let Some(client) = line.client.as_ref().filter(|client| !client.is_closed()) {
            let (client, hidden, number) = (client.clone(), line.hidden.clone(), line.number);
            drop(line);
            return Ok(Reached { client, key, slot, number, hidden, is_new: false, _use: using });
        }
        // A connection that closes right after it was opened counts as a failed attempt.
        if line.opened.take().is_some_and(|opened| is_within(opened, now, SHORT)) {
            let text = format!("`{}` closed the connection right after it was opened", server.slug.as_str());
            let error = Error::new(Kind::Unavailable, "server_unavailable", text);
            line.failed(error, now);
        } else if line.client.take().is_some() {
            line.failures = 0;
        }
        if let Some((error, until)) = line.last.as_ref().filter(|(_, until)| now < *until && !insist) {
            let wait = until.duration_since(now).as_secs().max(1);
            let text = format!("{}; next attempt in {wait} s", error.message());
            return Err(Error::new(Kind::Unavailable, error.code(), text));
        }
        let trying = Trying::begin(self, &key, &slot);
        let (told, tenant, id) = (self.changed.clone(), key.tenant, key.server);
        let changed = move |changed| told(tenant, id, changed);
        let proof = credential.map(|credential| &credential.proof);
        let hidden = Arc::new(Hidden::of(server, proof, self.own.as_ref()));
        let egress = self.egress(scope, server.id);
        {
            let mut seen = lock(&slot.seen);
            (seen.egress, seen.is_remote) = (Some(egress.clone()), server.transport.place().is_some());
        }
        let opened = tokio::select! {
            opened = open::open(server, proof, &hidden, &egress, &self.processes, changed) => opened,
            _ = slot.cut.acquire() => Err(changed_server()),
        };
        // The egress policy may have changed while the connection was being opened.
        match opened.and_then(|client| egress.is_allowed().then_some(client).ok_or_else(changed_way)) {
            Ok(client) => {
                // Earlier failures count until the connection is stable.
                let number = line.number + 1;
                *line = Line {
                    client: Some(client.clone()),
                    number,
                    hidden: hidden.clone(),
                    failures: line.failures,
                    last: None,
                    opened: Some(self.world.now()),
                };
                trying.end(Status::Connected);
                drop(line);
                Ok(Reached { client, key, slot, number, hidden, is_new: true, _use: using })
            }
            Err(error) => {
                line.failed(error.clone(), self.world.now());
                trying.end(Status::Error);
                Err(error)
            }
        }
    }

    /// Returns the slot for a key. Slots of the same subject and server with another version or credential are closed.
    fn slot(&self, key: &Key) -> Result<(Arc<Slot>, OwnedSemaphorePermit)> {
        let mut slots = lock(&self.slots);
        self.is_newest(&slots, key)?;
        if !slots.contains_key(key) {
            let is_of = |other: &Key, _: &Slot| {
                (other.tenant, other.subject, other.server) == (key.tenant, key.subject, key.server)
            };
            self.remove(&mut slots, false, is_of);
        }
        let slot = slots.entry(key.clone()).or_insert_with(|| Slot::new(self.world.now())).clone();
        let using = slot.begin_use()?; // under the lock: slots in the map are not being closed
        Ok((slot, using))
    }

    /// Verifies that the key has the newest version of the server, and records it.
    fn is_newest(&self, slots: &Slots, key: &Key) -> Result<()> {
        let mut newest = lock(&self.newest);
        if newest.len() > MOST_KNOWN {
            let used: HashSet<_> = slots.keys().map(|key| (key.tenant, key.server)).collect();
            newest.retain(|server, _| used.contains(server));
        }
        let known = newest.entry((key.tenant, key.server)).or_insert(key.version);
        *known = key.version.max(*known);
        (*known == key.version).then_some(()).ok_or_else(changed_server)
    }

    /// Sets the status of a slot. A slot that was removed concurrently is ignored.
    fn set_status(&self, key: &Key, slot: &Arc<Slot>, status: Status) {
        let slots = lock(&self.slots);
        if slots.get(key).is_some_and(|current| Arc::ptr_eq(current, slot)) {
            self.say(key, slot, status);
        }
    }

    /// Sets the status and publishes an event. The caller locks `slots`, so that events are in the order of the
    /// changes.
    fn say(&self, key: &Key, slot: &Slot, status: Status) {
        if std::mem::replace(&mut lock(&slot.seen).status, status) != status {
            let body = json!({"server": key.server, "subject": key.subject.to_string(), "status": status});
            self.events.publish(key.tenant, Told::new("connection", body));
        }
    }

    /// Returns the best connection status of a server among all subjects of the tenant.
    pub fn status(&self, tenant: TenantId, server: ServerId) -> Status {
        let slots = lock(&self.slots);
        let of = slots.iter().filter(|(key, _)| key.tenant == tenant && key.server == server);
        let rank = |status: &Status| match status {
            Status::Connected => 3,
            Status::Connecting => 2,
            Status::Error => 1,
            Status::Disconnected | Status::Disabled => 0,
        };
        of.map(|(_, slot)| lock(&slot.seen).status).max_by_key(rank).unwrap_or(Status::Disconnected)
    }

    /// Opens a connection outside the pool. The caller closes it.
    pub async fn try_out(&self, scope: Scope, server: &Server, proof: Option<&Proof>) -> Result<Client> {
        let (hidden, egress) =
            (Arc::new(Hidden::of(server, proof, self.own.as_ref())), self.egress(scope, server.id));
        open::open(server, proof, &hidden, &egress, &self.processes, |_| {}).await
    }

    /// Returns the egress policy for connections of an actor to a server.
    pub(crate) fn egress(&self, scope: Scope, server: ServerId) -> Egress {
        let told = self.denied.clone();
        self.egress.on_denied(move |denied| told(scope, server, denied))
    }

    /// Replaces the egress policy. Connections that it denies are closed, and the backoff of failed ones ends.
    pub(crate) fn change_egress(&self, egress: &Egress) {
        self.egress.change(egress);
        self.end_where(|_, slot| {
            let seen = lock(&slot.seen);
            let is_denied = |egress: &Egress| !egress.is_allowed();
            seen.status == Status::Error || seen.egress.as_ref().is_some_and(is_denied)
        });
    }
}

/// Guard of an attempt to connect. If the caller stops waiting, it is dropped and the status becomes `disconnected`.
struct Trying<'a> {
    connections: &'a Connections,
    key: &'a Key,
    slot: &'a Arc<Slot>,
    end: Status,
}

impl<'a> Trying<'a> {
    fn begin(connections: &'a Connections, key: &'a Key, slot: &'a Arc<Slot>) -> Self {
        connections.set_status(key, slot, Status::Connecting);
        Trying { connections, key, slot, end: Status::Disconnected }
    }

    fn end(mut self, status: Status) {
        self.end = status;
    }
}

impl Drop for Trying<'_> {
    fn drop(&mut self) {
        self.connections.set_status(self.key, self.slot, self.end);
    }
}

#[cfg(test)]
mod tests;
