//! Context that all components of the hub share: platform, store, keys, events, options, task sets and the shutdown
//! signal, with the helpers that read and commit documents.

use std::sync::{Arc, Mutex};

use ring::hmac;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{HubLimits, HubOptions};
use crate::actor::Actor;
use crate::audit::AuditEntry;
use crate::error::{self, Error, Result};
use crate::events::EventLog;
use crate::id::TenantId;
use crate::platform::Platform;
use crate::server::Server;
use crate::store::{
    AuthenticatedStore, Batch, CachedStore, ClusterClock, DocumentKey, DocumentKind, Generation,
    MAX_PAGE_SIZE, Page, PageRequest, Store, StoreAuthenticator, StoreChange, StoredDocument,
};
use crate::task_set::TaskSet;
use crate::tool::ToolRecord;
use crate::vault::KeyFile;
use crate::vault::key_ring::KeyRing;

/// What every component of a hub uses and none of them owns.
pub(in crate::hub) struct HubContext {
    pub(in crate::hub) platform: Arc<dyn Platform>,
    pub(in crate::hub) store: Arc<dyn Store>,
    /// Key that seals the request state of gateway clients. Hubs that share the key file share it.
    pub(in crate::hub) gateway_key: [u8; 32],
    /// Layer of `store` that authenticates the documents.
    pub(in crate::hub) documents: Arc<AuthenticatedStore>,
    pub(in crate::hub) keys: Arc<KeyRing>,
    pub(in crate::hub) events: EventLog,
    pub(in crate::hub) options: HubOptions,
    pub(super) limits: Mutex<HubLimits>,
    /// Number of changes of the cached documents: what is derived from them is valid for one generation.
    pub(in crate::hub) generation: Generation,
    /// Work that finishes even if its caller is dropped.
    pub(in crate::hub) tasks: Arc<TaskSet>,
    /// Store commits that finish even if their callers are dropped.
    pub(in crate::hub) commits: Arc<TaskSet>,
    /// Time at which the shutdown of the hub began, if it has.
    pub(in crate::hub) shutdown_started: watch::Sender<Option<Instant>>,
}

/// Derives the key for request states of gateway clients from the seed of the audit key.
fn derive_gateway_key(audit_seed: &[u8; 32]) -> [u8; 32] {
    let seed = hmac::Key::new(hmac::HMAC_SHA256, audit_seed);
    let derived = hmac::sign(&seed, b"linchpin gateway state 1");
    derived.as_ref().try_into().expect("HMAC-SHA256 has 32 bytes")
}

impl HubContext {
    /// Creates the context of a hub: its documents are authenticated and cached, and its clock is that of the cluster, if there is one.
    pub(in crate::hub) fn new(
        platform: Arc<dyn Platform>,
        store: Arc<dyn Store>,
        keys: KeyFile,
        options: HubOptions,
    ) -> Self {
        let gateway_key = derive_gateway_key(&keys.audit);
        let authenticator = Arc::new(StoreAuthenticator::new(&keys.audit));
        let documents = Arc::new(AuthenticatedStore::new(store, authenticator));
        let store = CachedStore::new(documents.clone());
        let (events, commits) = (store.events().clone(), store.commits().clone());
        let generation = store.generation();
        let store: Arc<dyn Store> = Arc::new(store);
        let platform: Arc<dyn Platform> = match store.shared() {
            Some(_) => Arc::new(ClusterClock::new(platform, store.clone())),
            None => platform,
        };
        let keys = Arc::new(KeyRing::new(store.clone(), platform.clone(), keys));
        let limits = Mutex::new(options.limits);
        HubContext {
            platform,
            store,
            gateway_key,
            documents,
            keys,
            events,
            options,
            limits,
            generation,
            tasks: Arc::default(),
            commits,
            shutdown_started: watch::Sender::new(None),
        }
    }

    /// Loads a document with its version.
    pub(in crate::hub) async fn load<T: DeserializeOwned>(
        &self,
        tenant: TenantId,
        kind: DocumentKind,
        id: impl std::fmt::Display,
    ) -> Result<Option<(T, u64)>> {
        let Some(StoredDocument { document, version }) =
            self.store.document(tenant, &DocumentKey::new(kind, id)).await?
        else {
            return Ok(None);
        };
        Ok(Some((document.parse_body()?, version)))
    }

    /// Loads a document with its version, or fails if there is none.
    pub(in crate::hub) async fn require<T: DeserializeOwned>(
        &self,
        tenant: TenantId,
        kind: DocumentKind,
        id: impl std::fmt::Display,
    ) -> Result<(T, u64)> {
        let missing = Error::not_found(kind.name(), &id);
        self.load(tenant, kind, id).await?.ok_or(missing)
    }

    /// Loads all documents of a kind. Only for kinds that users configure, of which there are few.
    pub(in crate::hub) async fn load_all<T: DeserializeOwned>(
        &self,
        tenant: TenantId,
        kind: DocumentKind,
        parent: Option<&str>,
    ) -> Result<Vec<(T, u64)>> {
        let all = self.load_documents(tenant, kind, parent).await?;
        all.into_iter()
            .map(|StoredDocument { document, version }| Ok((document.parse_body()?, version)))
            .collect()
    }

    pub(in crate::hub) async fn load_documents(
        &self,
        tenant: TenantId,
        kind: DocumentKind,
        parent: Option<&str>,
    ) -> Result<Vec<StoredDocument>> {
        let (mut all, mut paging) = (Vec::new(), PageRequest { after: None, limit: MAX_PAGE_SIZE });
        loop {
            let Page { items, next } = self.store.documents(tenant, kind, parent, &paging).await?;
            all.extend(items);
            match next {
                None => return Ok(all),
                after => paging.after = after,
            }
        }
    }

    /// Deletes a document, if it exists. Succeeds if another caller has deleted it already.
    pub(in crate::hub) async fn delete_if_present(&self, tenant: TenantId, key: DocumentKey) -> Result<()> {
        match self.store.commit(tenant, Batch::new().change(StoreChange::Delete(key))).await {
            Err(error) if error.kind() != error::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Creates an audit entry of this actor.
    pub(in crate::hub) fn entry(&self, actor: Actor, action: &'static str) -> AuditEntry {
        AuditEntry::new(self.platform.now(), &actor.subject().to_string(), action)
    }

    /// Creates the audit entry of a tool.
    pub(in crate::hub) fn tool_entry(
        &self,
        actor: Actor,
        action: &'static str,
        server: &Server,
        tool: &ToolRecord,
    ) -> AuditEntry {
        self.entry(actor, action).with("server", server.id.to_string()).with("tool", tool.name.as_str())
    }

    /// Runs `work` to its end in a tracked task, even if the caller is dropped.
    pub(in crate::hub) async fn detached<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.tasks.run(work).await
    }

    /// Commits a batch, then calls `after_commit` with the result.
    pub(in crate::hub) async fn commit_then(
        &self,
        tenant: TenantId,
        batch: Batch,
        after_commit: impl FnOnce(&Result<()>) + Send + 'static,
    ) -> Result<()> {
        let store = self.store.clone();
        self.detached(async move {
            let done = store.commit(tenant, batch).await;
            after_commit(&done);
            done
        })
        .await
    }
}
