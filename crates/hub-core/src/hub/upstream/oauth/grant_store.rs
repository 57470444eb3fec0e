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

use super::GrantOwner;
use crate::audit::AuditEntry;
use crate::error::{self, Error, Result};
use crate::hub::context::HubContext;
use crate::hub::upstream::credentials::{grant_binding, matches_binding};
use crate::hub::{document, upsert};
use crate::id::TenantId;
use crate::platform::Platform;
use crate::secrets::redact::IssuedTokens;
use crate::server::Server;
use crate::store::{Batch, Document, DocumentKey, DocumentKind, Store, StoreChange};
use crate::task_set::TaskSet;
use crate::vault::SecretBinding;
use crate::vault::key_ring::KeyRing;

/// Age without a change after which the holder of a lease is considered dead.
const LEASE_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval at which the holder rewrites its lease.
const LEASE_HEARTBEAT: Duration = Duration::from_secs(10);
/// First and longest pause between polls of a held lease. The pause doubles: short leases are noticed early, long ones
/// are polled rarely.
const LEASE_POLL: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

pub(super) struct GrantStore {
    store: Arc<dyn Store>,
    keys: Arc<KeyRing>,
    platform: Arc<dyn Platform>,
    tasks: Arc<TaskSet>,
    owner: GrantOwner,
    label: SecretBinding,
    tokens: Arc<IssuedTokens>,
    /// Version of the grant last read or written by this store.
    last_version: AtomicU64,
    /// Version of the grant that was last read to authenticate a request. A refresh replaces exactly this version.
    version_in_use: AtomicU64,
    /// Whether the grant last read is bound to another URL, client or issuer.
    is_bound_elsewhere: AtomicBool,
}

impl GrantStore {
    pub(super) fn new(
        context: &HubContext,
        owner: GrantOwner,
        server: &Server,
        tokens: Arc<IssuedTokens>,
    ) -> Result<Self> {
        Ok(GrantStore {
            store: context.store.clone(),
            keys: context.keys.clone(),
            platform: context.platform.clone(),
            tasks: context.tasks.clone(),
            owner,
            label: grant_binding(server, owner.agent)?,
            tokens,
            last_version: AtomicU64::new(u64::MAX),
            version_in_use: AtomicU64::default(),
            is_bound_elsewhere: AtomicBool::default(),
        })
    }

    fn key(&self) -> DocumentKey {
        DocumentKey::new(DocumentKind::Secret, self.label.id)
    }

    /// Returns the version of the stored grant, or 0 if there is none.
    pub(super) async fn version(&self) -> Result<u64, AuthError> {
        let found =
            self.store.document(self.owner.tenant, &self.key()).await.map_err(|error| store_error(&error))?;
        Ok(found.map_or(0, |stored| stored.version))
    }

    /// Returns the version of the grant last read or written by this store.
    pub(super) fn last_version(&self) -> u64 {
        self.last_version.load(Ordering::Relaxed)
    }

    /// Sets the version of the grant that this store has last seen. Returns whether it differs from the previous one.
    pub(super) fn replace_last_version(&self, version: u64) -> bool {
        self.last_version.swap(version, Ordering::Relaxed) != version
    }

    /// Reports whether the grant last read is bound to another URL, client or issuer.
    pub(super) fn is_bound_elsewhere(&self) -> bool {
        self.is_bound_elsewhere.load(Ordering::Relaxed)
    }

    async fn read(&self) -> Result<Option<Secret>> {
        let found = self.keys.open_secret(self.owner.tenant, self.label.id).await?;
        let version = found.as_ref().map_or(0, |(.., version)| *version);
        self.last_version.store(version, Ordering::Relaxed);
        self.version_in_use.store(version, Ordering::Relaxed);
        // A grant for another URL, client or issuer is not used.
        let is_found = found.is_some();
        let record =
            found.filter(|(_, saved, _)| matches_binding(saved, &self.label)).map(|(record, ..)| record);
        self.is_bound_elsewhere.store(is_found && record.is_none(), Ordering::Relaxed);
        if let Some(record) = &record {
            self.tokens.add(record);
        }
        Ok(record)
    }

    /// Stores the OAuth grant of a server. Only a sign-in creates one: a refresh neither restores a grant deleted by a
    /// sign-out nor replaces one that another hub has stored after taking over the lease.
    async fn write(&self, record: &Secret, is_sign_in: bool) -> Result<()> {
        let GrantOwner { tenant, server, agent } = self.owner;
        self.tokens.add(record);
        let before = if is_sign_in {
            self.store.document(tenant, &self.key()).await?.map_or(0, |stored| stored.version)
        } else {
            self.version_in_use.load(Ordering::Relaxed)
        };
        if before == 0 && !is_sign_in {
            let text = "the grant was deleted by a sign-out: sign in again";
            return Err(Error::new(error::ErrorKind::Conflict, "signed_out", text));
        }
        let saved = self.keys.seal_secret(tenant, &self.label, &server.to_string(), record, before).await?;
        let action = if before == 0 { "grant.created" } else { "grant.refreshed" };
        let mut entry =
            AuditEntry::new(self.platform.now(), "hub", action).with("server", server.to_string());
        let mut batch =
            Batch::new().change(StoreChange::RequireExists(DocumentKey::new(DocumentKind::Server, server)));
        if let Some(agent) = agent {
            entry = entry.with("agent", agent.to_string());
            batch = batch.change(StoreChange::RequireExists(DocumentKey::new(DocumentKind::Agent, agent)));
        }
        self.store.commit(tenant, batch.change(saved).audit(entry)).await?;
        self.last_version.store(before + 1, Ordering::Relaxed);
        self.version_in_use.store(before + 1, Ordering::Relaxed);
        Ok(())
    }

    /// Stores the OAuth grant of a sign-in in place of the previous one.
    pub(super) async fn replace(&self, record: &Secret) -> Result<()> {
        let _lease = self.acquire_lease().await?;
        self.write(record, true).await
    }

    /// Returns the stored grant without its tokens: client registration and requested scopes.
    pub(super) async fn without_tokens(&self) -> Result<Option<Secret>> {
        let Some(record) = self.read().await? else { return Ok(None) };
        let Ok(Value::Object(mut record)) = serde_json::from_str(record.expose()) else { return Ok(None) };
        record.retain(|name, _| name != "access_token" && name != "refresh_token");
        Ok(Some(Value::Object(record).to_string().into()))
    }

    async fn delete(&self) -> Result<()> {
        match self.store.commit(self.owner.tenant, Batch::new().change(StoreChange::Delete(self.key()))).await
        {
            Err(error) if error.kind() == error::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    async fn acquire_lease(&self) -> Result<RefreshLease> {
        let (tenant, key) = (self.owner.tenant, DocumentKey::new(DocumentKind::Lease, self.label.id));
        let (mut last_lease, mut delay) = ((0, Instant::now()), LEASE_POLL.0);
        loop {
            let found = self.store.document(tenant, &key).await?;
            let (is_held, version) =
                found.map_or((false, 0), |stored| (stored.document.body["is_held"] == true, stored.version));
            if version != last_lease.0 {
                last_lease = (version, Instant::now());
            }
            if !is_held || last_lease.1.elapsed() >= LEASE_TIMEOUT {
                let lease = document(DocumentKind::Lease, self.label.id, &json!({ "is_held": true }))?
                    .with_parent(self.owner.server);
                match self.store.commit(tenant, Batch::new().change(upsert(lease.clone(), version))).await {
                    Ok(()) => {
                        let (release_signal, released) = oneshot::channel();
                        self.tasks.spawn(renew_lease(
                            self.store.clone(),
                            tenant,
                            lease,
                            version + 1,
                            released,
                        ));
                        return Ok(RefreshLease { _release_signal: release_signal });
                    }
                    Err(error) if error.kind() == error::ErrorKind::Conflict => {} // another hub took the lease
                    Err(error) => return Err(error),
                }
            }
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(LEASE_POLL.1);
        }
    }
}

/// Lease of one hub on a stored grant, so that no other hub replaces it at the same time. Released on drop.
struct RefreshLease {
    _release_signal: oneshot::Sender<()>,
}

/// Renews the lease on a grant until its guard is dropped, then releases it unless another hub has taken it.
async fn renew_lease(
    store: Arc<dyn Store>,
    tenant: TenantId,
    mut lease: Document,
    mut version: u64,
    mut released: oneshot::Receiver<()>,
) {
    let mut is_held = true;
    while is_held {
        is_held = tokio::time::timeout(LEASE_HEARTBEAT, &mut released).await.is_err();
        lease.body = json!({ "is_held": is_held });
        match store.commit(tenant, Batch::new().change(upsert(lease.clone(), version))).await {
            Ok(()) => version += 1,
            Err(error) => {
                tracing::debug!(%error, is_held, "failed to write the refresh lease; it expires on its own");
            }
        }
    }
}

pub(super) fn store_error(error: &Error) -> AuthError {
    AuthError::new(AuthErrorKind::Store, error.message())
}

impl TokenStore for GrantStore {
    fn load<'a>(&'a self, _: &'a str) -> AuthFuture<'a, Option<Secret>> {
        Box::pin(async { self.read().await.map_err(|error| store_error(&error)) })
    }

    fn save<'a>(&'a self, _: &'a str, record: Secret) -> AuthFuture<'a, ()> {
        Box::pin(async move { self.write(&record, false).await.map_err(|error| store_error(&error)) })
    }

    fn remove<'a>(&'a self, _: &'a str) -> AuthFuture<'a, ()> {
        Box::pin(async { self.delete().await.map_err(|error| store_error(&error)) })
    }

    fn lock<'a>(&'a self, _: &'a str) -> AuthFuture<'a, Box<dyn Send>> {
        Box::pin(async {
            let lease = self.acquire_lease().await.map_err(|error| store_error(&error))?;
            Ok(Box::new(lease) as Box<dyn Send>)
        })
    }
}
