//! Connections to servers: opened when they are needed, shared by nobody but those with the same key, and ended when
//! nobody needs them or anything about them changes.

mod check;
mod end;
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
use crate::error::{Error, Kind, Result};
use crate::events::{Events, Told};
use crate::hidden::{Hidden, Tokens};
use crate::id::{SecretId, ServerId, TenantId};
use crate::own::OwnSecrets;
use crate::scope::{Scope, Subject};
use crate::server::Server;
use crate::sync::lock;
use crate::tasks::Tasks;
use crate::world::World;

/// A connection that ends sooner is one that could not be opened.
const SHORT: Duration = Duration::from_secs(10);
/// How long a server that cannot be connected to is left alone: at first, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// More do not use one connection at once.
const MOST_USERS: u32 = 1 << 20;
/// Of how many servers it is remembered which version is the newest.
const MOST_KNOWN: usize = 10_000;

/// What a connection belongs to. Whatever differs makes it another one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    tenant: TenantId,
    subject: Subject,
    server: ServerId,
    /// The version of the server's settings.
    version: u64,
    credential: Option<(SecretId, u64)>,
}

/// What proves who asks on a connection, and which one it is.
#[derive(Clone)]
pub struct Credential {
    /// Its id.
    pub id: SecretId,
    /// Counts its changes.
    pub version: u64,
    /// What proves who asks.
    pub proof: Proof,
}

/// What proves who asks.
#[derive(Clone)]
pub enum Proof {
    /// A secret that somebody has entered.
    Secret(Secret),
    /// What somebody has signed in for, with the tokens of that.
    OAuth(Arc<dyn Authorize>, Arc<Tokens>),
}

/// How a server is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "ConnectionStatus")]
pub enum Status {
    /// Not at all.
    Disconnected,
    /// It is being tried.
    Connecting,
    /// It is.
    Connected,
    /// It could not be opened, or the last request on it did not reach the server.
    Error,
    /// The server is disabled.
    Disabled,
}

/// Told when the lists of a server change.
pub type OnChanged = Arc<dyn Fn(TenantId, ServerId, Changed) + Send + Sync>;

/// Told what is denied on the way to a server, and whose way it was.
pub type OnDenied = Arc<dyn Fn(Scope, ServerId, &Denied<'_>) + Send + Sync>;

/// How stdio servers are started.
#[derive(Debug, Clone, Default)]
pub struct Processes {
    /// Mark that all of them carry.
    pub lineage: Option<Lineage>,
    /// Program that supervises each of them.
    pub supervisor: Option<PathBuf>,
}

/// All connections.
pub struct Connections {
    world: Arc<dyn World>,
    egress: Egress,
    events: Events,
    changed: OnChanged,
    denied: OnDenied,
    processes: Processes,
    /// Secrets of the hub that are masked in what servers return.
    own: Option<Arc<OwnSecrets>>,
    slots: Mutex<Slots>,
    /// Connections that are being ended.
    endings: Tasks,
    /// The newest version of each server that was heard of: whoever comes with an older one comes too late. Taken under
    /// the lock of all slots.
    newest: Mutex<HashMap<(TenantId, ServerId), u64>>,
}

type Slots = HashMap<Key, Arc<Slot>>;

/// The place of one connection.
struct Slot {
    /// Held while it is being opened, so that it is opened once.
    line: tokio::sync::Mutex<Line>,
    seen: Mutex<Seen>,
    /// Whoever uses it has one of these; whoever ends it waits for all of them.
    users: Arc<Semaphore>,
    /// Has no permits. It is closed when the connection must end although it is in use.
    cut: Semaphore,
}

/// A connection, for as long as somebody needs it.
pub(crate) struct Reached {
    client: Client,
    key: Key,
    slot: Arc<Slot>,
    /// Which of the connections of the slot it is.
    number: u64,
    /// What must not be seen of what comes from it.
    pub(crate) hidden: Arc<Hidden>,
    /// Whether it was opened for this.
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
        let text = "too many use the connection at once, or it has just been ended: try again";
        let busy = |_| Error::new(Kind::Unavailable, "connection_busy", text);
        self.users.clone().try_acquire_owned().map_err(busy)
    }

    /// The open connection, unless another task is just opening it.
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
    /// Counts the connections that were opened here.
    number: u64,
    /// What must not be seen of what comes from it.
    hidden: Arc<Hidden>,
    /// How often in a row it could not be opened, and why.
    failures: u32,
    last: Option<(Error, Timestamp)>,
    /// When it was opened.
    opened: Option<Timestamp>,
}

/// What can be seen without waiting.
struct Seen {
    status: Status,
    used: Timestamp,
    /// When it was last checked whether the server answers.
    checked: Timestamp,
    /// Whether it is a connection over the network, whose end is noticed by a request alone.
    is_remote: bool,
    /// The way out, as it was gone.
    egress: Option<Egress>,
}

impl Line {
    /// It is left alone for a while: longer each time.
    fn failed(&mut self, error: Error, now: Timestamp) {
        let pause = PAUSES.0.saturating_mul(1 << self.failures.min(10)).min(PAUSES.1);
        let until = now.saturating_add(pause).unwrap_or(Timestamp::MAX);
        let (number, failures) = (self.number, self.failures + 1);
        *self = Line { number, failures, last: Some((error, until)), ..Line::default() };
    }
}

fn changed_way() -> Error {
    let text = "what may be reached was changed meanwhile: try again";
    Error::new(Kind::Conflict, "egress_changed", text)
}

fn changed_server() -> Error {
    Error::new(Kind::Conflict, "server_changed", "the server was changed meanwhile: try again")
}

fn is_within(begin: Timestamp, now: Timestamp, time: Duration) -> bool {
    Duration::try_from(now.duration_since(begin)).is_ok_and(|passed| passed < time)
}

impl Connections {
    /// None yet.
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

    /// Masks the secrets of the hub in what servers return.
    #[must_use]
    pub(crate) fn masking(self, own: Arc<OwnSecrets>) -> Self {
        Connections { own: Some(own), ..self }
    }

    /// Has somebody told what is denied.
    #[must_use]
    pub fn on_denied(self, denied: OnDenied) -> Self {
        Connections { denied, ..self }
    }

    /// The connection of this subject to this server, opened if it is not. A server that could not be connected to a
    /// moment ago is left alone, unless `insist`.
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
        self.is_newest(&lock(&self.slots), &key)?; // it may have been waited for
        let now = self.world.now();
        lock(&slot.seen).used = now;
        if let Some(client) = line.client.as_ref().filter(|client| !client.is_closed()) {
            let (client, hidden, number) = (client.clone(), line.hidden.clone(), line.number);
            drop(line);
            return Ok(Reached { client, key, slot, number, hidden, is_new: false, _use: using });
        }
        // One that ends as soon as it is open is as good as one that cannot be opened.
        if line.opened.take().is_some_and(|opened| is_within(opened, now, SHORT)) {
            let text = format!("`{}` ended as soon as it was connected to", server.slug.as_str());
            let error = Error::new(Kind::Unavailable, "server_unavailable", text);
            line.failed(error, now);
        } else if line.client.take().is_some() {
            line.failures = 0;
        }
        if let Some((error, until)) = line.last.as_ref().filter(|(_, until)| now < *until && !insist) {
            let wait = until.duration_since(now).as_secs().max(1);
            let text = format!("{}; it is tried again in {wait} s", error.message());
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
        // The way may have been changed meanwhile.
        match opened.and_then(|client| egress.is_allowed().then_some(client).ok_or_else(changed_way)) {
            Ok(client) => {
                // What failed before counts until it has stayed open for a while.
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

    /// The place for a connection. One under another version of the same is over: what it knew has changed.
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
        let using = slot.begin_use()?; // under the lock: what is in the map is not being ended
        Ok((slot, using))
    }

    /// A server that was changed or removed is not reached as it was before.
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

    /// What becomes of a connection that has been ended meanwhile is nobody's concern.
    fn set_status(&self, key: &Key, slot: &Arc<Slot>, status: Status) {
        let slots = lock(&self.slots);
        if slots.get(key).is_some_and(|current| Arc::ptr_eq(current, slot)) {
            self.say(key, slot, status);
        }
    }

    /// Under the lock of all slots, so that events come in the order in which things happen.
    fn say(&self, key: &Key, slot: &Slot, status: Status) {
        if std::mem::replace(&mut lock(&slot.seen).status, status) != status {
            let body = json!({"server": key.server, "subject": key.subject.to_string(), "status": status});
            self.events.publish(key.tenant, Told::new("connection", body));
        }
    }

    /// How a server is connected, for anybody of the tenant: the best there is.
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

    /// Tries a server beside all connections. It is for the caller to close it.
    pub async fn try_out(&self, scope: Scope, server: &Server, proof: Option<&Proof>) -> Result<Client> {
        let (hidden, egress) =
            (Arc::new(Hidden::of(server, proof, self.own.as_ref())), self.egress(scope, server.id));
        open::open(server, proof, &hidden, &egress, &self.processes, |_| {}).await
    }

    /// The way out, for somebody on the way to a server.
    pub(crate) fn egress(&self, scope: Scope, server: ServerId) -> Egress {
        let told = self.denied.clone();
        self.egress.on_denied(move |denied| told(scope, server, denied))
    }

    /// Goes another way out. What would not have been opened on it is ended, and what could not be opened is tried again.
    pub(crate) fn change_egress(&self, egress: &Egress) {
        self.egress.change(egress);
        self.end_where(|_, slot| {
            let seen = lock(&slot.seen);
            let is_denied = |egress: &Egress| !egress.is_allowed();
            seen.status == Status::Error || seen.egress.as_ref().is_some_and(is_denied)
        });
    }
}

/// A connection that is being opened. Whoever wants it may leave meanwhile; then it is not opened any more.
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
