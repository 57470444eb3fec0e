//! Grant store: grants encrypted in the store, bound to the origin of the server, one per server and agent.
//!
//! A hub refreshes a token under a lease, so that hubs on one database refresh one after the other. A lease is a
//! document that its holder rewrites periodically. If it stays unchanged for 30 s, measured by the clock of the
//! waiting hub, its holder is considered dead.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use linchpin::auth::{AuthError, AuthErrorKind, AuthFuture, Secret, TokenStore};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Whose;
use crate::audit::Entry;
use crate::error::{self, Error, Result};
use crate::hub::credentials::{fits, grant_label};
use crate::hub::{Hub, document, put};
use crate::id::TenantId;
use crate::platform::World;
use crate::secrets::redact::Tokens;
use crate::server::Server;
use crate::store::{Batch, Change, Document, Key, Kind, Store};
use crate::task_set::Tasks;
use crate::vault::Label;
use crate::vault::key_ring::Keys;

/// Age without a change after which the holder of a lease is considered dead.
const LEASE: Duration = Duration::from_secs(30);
/// Interval at which the holder rewrites its lease.
const ALIVE: Duration = Duration::from_secs(10);
/// First and longest pause between polls of a held lease. The pause doubles: short leases are noticed early, long ones
/// are polled rarely.
const LOOKS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

pub(super) struct Grants {
    store: Arc<dyn Store>,
    keys: Arc<Keys>,
    world: Arc<dyn World>,
    tasks: Arc<Tasks>,
    whose: Whose,
    label: Label,
    tokens: Arc<Tokens>,
    /// Version of the grant last read or written by this store.
    seen: AtomicU64,
    /// Version of the grant last read for use. A refresh replaces exactly this version.
    read: AtomicU64,
    /// Whether the grant last read is bound to another URL, client or issuer.
    is_elsewhere: AtomicBool,
}

impl Grants {
    pub(super) fn new(hub: &Hub, whose: Whose, server: &Server, tokens: Arc<Tokens>) -> Result<Self> {
        Ok(Grants {
            store: hub.store.clone(),
            keys: hub.keys.clone(),
            world: hub.world.clone(),
            tasks: hub.tasks.clone(),
            whose,
            label: grant_label(server, whose.2)?,
            tokens,
            seen: AtomicU64::new(u64::MAX),
            read: AtomicU64::default(),
            is_elsewhere: AtomicBool::default(),
        })
    }

    fn key(&self) -> Key {
        Key::new(Kind::Secret, self.label.id)
    }

    /// Returns the version of the stored grant, or 0 if there is none.
    pub(super) async fn version(&self) -> Result<u64, AuthError> {
        let found = self.store.document(self.whose.0, &self.key()).await.map_err(|error| failed(&error))?;
        Ok(found.map_or(0, |stored| stored.version))
    }

    /// Returns the version of the grant last read or written by this store.
    pub(super) fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// Records `version` as seen and reports whether it was new.
    pub(super) fn has_changed(&self, version: u64) -> bool {
        self.seen.swap(version, Ordering::Relaxed) != version
    }

    /// Reports whether the grant last read is bound to another URL, client or issuer.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.is_elsewhere.load(Ordering::Relaxed)
    }

    async fn read(&self) -> Result<Option<Secret>> {
        let found = self.keys.open(self.whose.0, self.label.id).await?;
        let version = found.as_ref().map_or(0, |(.., version)| *version);
        self.seen.store(version, Ordering::Relaxed);
        self.read.store(version, Ordering::Relaxed);
        // A grant for another URL, client or issuer is not used.
        let is_found = found.is_some();
        let record = found.filter(|(_, kept, _)| fits(kept, &self.label)).map(|(record, ..)| record);
        self.is_elsewhere.store(is_found && record.is_none(), Ordering::Relaxed);
        if let Some(record) = &record {
            self.tokens.add(record);
        }
        Ok(record)
    }

    /// Stores a grant. Only a sign-in creates one: a refresh neither restores a grant deleted by a sign-out nor
    /// replaces one that another hub has stored after taking over the lease.
    async fn write(&self, record: &Secret, is_sign_in: bool) -> Result<()> {
        let (tenant, server, agent) = self.whose;
        self.tokens.add(record);
        let before = if is_sign_in {
            self.store.document(tenant, &self.key()).await?.map_or(0, |stored| stored.version)
        } else {
            self.read.load(Ordering::Relaxed)
        };
        if before == 0 && !is_sign_in {
            let text = "the grant was deleted by a sign-out: sign in again";
            return Err(Error::new(error::Kind::Conflict, "signed_out", text));
        }
        let kept = self.keys.seal(tenant, &self.label, &server.to_string(), record, before).await?;
        let action = if before == 0 { "grant.given" } else { "grant.renewed" };
        let mut entry = Entry::new(self.world.now(), "hub", action).with("server", server.to_string());
        let mut batch = Batch::new().change(Change::Need(Key::new(Kind::Server, server)));
        if let Some(agent) = agent {
            entry = entry.with("agent", agent.to_string());
            batch = batch.change(Change::Need(Key::new(Kind::Agent, agent)));
        }
        self.store.commit(tenant, batch.change(kept).audit(entry)).await?;
        self.seen.store(before + 1, Ordering::Relaxed);
        self.read.store(before + 1, Ordering::Relaxed);
        Ok(())
    }

    /// Stores the grant of a sign-in in place of the previous one.
    pub(super) async fn replace(&self, record: &Secret) -> Result<()> {
        let _lease = self.take_lease().await?;
        self.write(record, true).await
    }

    /// Returns the stored grant without its tokens: client registration and requested scopes.
    pub(super) async fn without_tokens(&self) -> Result<Option<Secret>> {
        let Some(record) = self.read().await? else { return Ok(None) };
        let Ok(Value::Object(mut record)) = serde_json::from_str(record.expose()) else { return Ok(None) };
        record.retain(|name, _| name != "access_token" && name != "refresh_token");
        Ok(Some(Value::Object(record).to_string().into()))
    }

    async fn forget(&self) -> Result<()> {
        match self.store.commit(self.whose.0, Batch::new().change(Change::Remove(self.key()))).await {
            Err(error) if error.kind() == error::Kind::NotFound => Ok(()),
            done => done,
        }
    }

    async fn take_lease(&self) -> Result<Lease> {
        let (tenant, key) = (self.whose.0, Key::new(Kind::Lease, self.label.id));
        let (mut seen, mut pause) = ((0, Instant::now()), LOOKS.0);
        loop {
            let found = self.store.document(tenant, &key).await?;
            let (is_held, version) =
                found.map_or((false, 0), |stored| (stored.document.body["is_held"] == true, stored.version));
            if version != seen.0 {
                seen = (version, Instant::now());
            }
            if !is_held || seen.1.elapsed() >= LEASE {
                let lease =
                    document(Kind::Lease, self.label.id, &json!({ "is_held": true }))?.of(self.whose.1);
                match self.store.commit(tenant, Batch::new().change(put(lease.clone(), version))).await {
                    Ok(()) => {
                        let (held, over) = oneshot::channel();
                        self.tasks.start(hold(self.store.clone(), tenant, lease, version + 1, over));
                        return Ok(Lease { _held: held });
                    }
                    Err(error) if error.kind() == error::Kind::Conflict => {} // another hub took the lease
                    Err(error) => return Err(error),
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LOOKS.1);
        }
    }
}

/// Guard of the refresh lease. The lease is released on drop.
struct Lease {
    _held: oneshot::Sender<()>,
}

/// Rewrites a lease until its guard is dropped, then releases it unless another hub has taken it.
async fn hold(
    store: Arc<dyn Store>,
    tenant: TenantId,
    mut lease: Document,
    mut version: u64,
    mut over: oneshot::Receiver<()>,
) {
    let mut is_held = true;
    while is_held {
        is_held = tokio::time::timeout(ALIVE, &mut over).await.is_err();
        lease.body = json!({ "is_held": is_held });
        match store.commit(tenant, Batch::new().change(put(lease.clone(), version))).await {
            Ok(()) => version += 1,
            Err(error) => {
                tracing::debug!(%error, is_held, "failed to write the refresh lease; it expires on its own");
            }
        }
    }
}

pub(super) fn failed(error: &Error) -> AuthError {
    AuthError::new(AuthErrorKind::Store, error.message())
}

impl TokenStore for Grants {
    fn load<'a>(&'a self, _: &'a str) -> AuthFuture<'a, Option<Secret>> {
        Box::pin(async { self.read().await.map_err(|error| failed(&error)) })
    }

    fn save<'a>(&'a self, _: &'a str, record: Secret) -> AuthFuture<'a, ()> {
        Box::pin(async move { self.write(&record, false).await.map_err(|error| failed(&error)) })
    }

    fn remove<'a>(&'a self, _: &'a str) -> AuthFuture<'a, ()> {
        Box::pin(async { self.forget().await.map_err(|error| failed(&error)) })
    }

    fn lock<'a>(&'a self, _: &'a str) -> AuthFuture<'a, Box<dyn Send>> {
        Box::pin(async {
            let lease = self.take_lease().await.map_err(|error| failed(&error))?;
            Ok(Box::new(lease) as Box<dyn Send>)
        })
    }
}
