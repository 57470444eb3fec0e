//! Read cache in front of a store, for the documents that every call reads: servers, tools, agents and tokens. Changes go
//! through the cache, or are reported by the store if a peer hub makes them, and invalidate the changed documents.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;

use super::{
    Batch, CacheScope, Document, DocumentKey, DocumentKind, DocumentStore, Invalidation, Page, PageRequest,
    Store, StoreChange, StoreLayer, StoredDocument,
};
use crate::error::Result;
use crate::events::{EventLog, PublishOnCommit};
use crate::id::TenantId;
use crate::lock::lock;
use crate::task_set::TaskSet;

/// Maximum number of cached documents.
const MAX_CACHED_DOCUMENTS: usize = 10_000;

/// Number of changes of the cached documents. What was derived from documents before a change must not be used after it.
#[derive(Debug, Clone, Default)]
pub struct Generation(Arc<AtomicU64>);

impl Generation {
    /// Returns the number of changes so far.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Counts a change.
    pub(crate) fn advance(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// Store wrapper that caches the documents that every call reads: servers, tools and agents.
pub struct CachedStore {
    inner: Arc<dyn Store>,
    cache: Arc<Mutex<CacheState>>,
    events: EventLog,
    /// Running commits that change cached documents. They finish even if the caller stops waiting: until then the store
    /// may hold either version, so that neither may be cached.
    commits: Arc<TaskSet>,
}

#[derive(Default)]
struct CacheState {
    documents: HashMap<(TenantId, DocumentKey), StoredDocument>,
    ids: HashMap<(TenantId, DocumentKind, String), String>,
    /// A document that was read before a change is not cached after it.
    changes: Generation,
    /// Documents that are being changed, with the number of running commits. They are not cached before the last commit
    /// has finished.
    changing: HashMap<(TenantId, CacheScope), usize>,
}

/// Guard that prevents the caching of documents while a commit changes them. They may be cached again after it is
/// dropped.
struct ChangingGuard {
    cache: Arc<Mutex<CacheState>>,
    tenant: TenantId,
    changes: Vec<CacheScope>,
}

impl ChangingGuard {
    fn new(cache: Arc<Mutex<CacheState>>, tenant: TenantId, changes: Vec<CacheScope>) -> Self {
        lock(&cache).begin_change(tenant, &changes);
        ChangingGuard { cache, tenant, changes }
    }
}

impl Drop for ChangingGuard {
    fn drop(&mut self) {
        lock(&self.cache).end_change(self.tenant, std::mem::take(&mut self.changes));
    }
}

impl CacheState {
    fn insert(&mut self, tenant: TenantId, read_at: u64, found: Option<&StoredDocument>) {
        let Some(stored) = found.filter(|stored| stored.document.key.kind.is_cached()) else { return };
        let Document { key, parent, .. } = &stored.document;
        let is_changing = |scope| self.changing.contains_key(&(tenant, scope));
        let parts = |parent: &String| is_changing(CacheScope::Children(key.kind, parent.clone()));
        if read_at != self.changes.get()
            || is_changing(CacheScope::Document(key.clone()))
            || parent.as_ref().is_some_and(parts)
        {
            return;
        }
        if self.documents.len() >= MAX_CACHED_DOCUMENTS {
            self.documents.clear();
            self.ids.clear();
        }
        let DocumentKey { kind, id } = stored.document.key.clone();
        if let Some(name) = &stored.document.name {
            self.ids.insert((tenant, kind, name.clone()), id);
        }
        self.documents.insert((tenant, stored.document.key.clone()), stored.clone());
    }

    fn begin_change(&mut self, tenant: TenantId, changes: &[CacheScope]) {
        self.changes.advance();
        for scope in changes {
            *self.changing.entry((tenant, scope.clone())).or_default() += 1;
            self.invalidate_scope(tenant, scope);
        }
    }

    /// Drops cached documents that a peer hub has changed. `None` clears the cache.
    fn invalidate(&mut self, changed: Invalidation<'_>) {
        self.changes.advance();
        if let Some((tenant, scope)) = changed {
            self.invalidate_scope(tenant, scope);
        } else {
            self.documents.clear();
            self.ids.clear();
        }
    }

    fn invalidate_scope(&mut self, tenant: TenantId, scope: &CacheScope) {
        match scope {
            CacheScope::Document(key) => self.remove(tenant, key),
            CacheScope::Children(kind, parent) => {
                let is_part = |stored: &StoredDocument| stored.document.parent.as_ref() == Some(parent);
                let children = self.documents.iter().filter(|((owner, key), stored)| {
                    *owner == tenant && key.kind == *kind && is_part(stored)
                });
                let parts: Vec<_> = children.map(|((_, key), _)| key.clone()).collect();
                for key in &parts {
                    self.remove(tenant, key);
                }
            }
        }
    }

    fn remove(&mut self, tenant: TenantId, key: &DocumentKey) {
        let old = self.documents.remove(&(tenant, key.clone()));
        if let Some(name) = old.and_then(|old| old.document.name) {
            self.ids.remove(&(tenant, key.kind, name));
        }
    }

    fn end_change(&mut self, tenant: TenantId, changes: Vec<CacheScope>) {
        self.changes.advance();
        for scope in changes {
            if let Entry::Occupied(mut count) = self.changing.entry((tenant, scope)) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
    }
}

fn required_documents(change: &StoreChange) -> Vec<CacheScope> {
    let StoreChange::RequireVersions(all) = change else { return Vec::new() };
    all.iter().map(|(key, _)| CacheScope::Document(key.clone())).collect()
}

impl CachedStore {
    /// Creates a cache in front of this store.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        let cache: Arc<Mutex<CacheState>> = Arc::default();
        if let Some(shared) = inner.shared() {
            let state = Arc::downgrade(&cache);
            shared.on_invalidation(move |changed| {
                if let Some(state) = state.upgrade() {
                    lock(&state).invalidate(changed);
                }
            });
        }
        let events = inner.shared().map(|shared| shared.events.clone()).unwrap_or_default();
        CachedStore { inner, cache, events, commits: Arc::default() }
    }

    /// Returns the event log of this store, with the events of all hubs.
    pub fn events(&self) -> &EventLog {
        &self.events
    }

    /// Returns the counter of changes of the cached documents.
    pub(crate) fn generation(&self) -> Generation {
        lock(&self.cache).changes.clone()
    }

    /// Returns the set of commit tasks, which finish even if their callers stop waiting.
    pub(crate) fn commits(&self) -> &Arc<TaskSet> {
        &self.commits
    }

    async fn commit_changes(&self, tenant: TenantId, batch: Batch, publish: PublishOnCommit) -> Result<()> {
        let changes: Vec<_> = batch.changes.iter().filter_map(CacheScope::of).collect();
        if changes.is_empty() {
            let decided: Vec<_> = batch.changes.iter().flat_map(required_documents).collect();
            let done = self.inner.commit(tenant, batch).await;
            if done.is_err() {
                // The invalidation by a peer hub may not have arrived yet.
                let mut state = lock(&self.cache);
                for scope in &decided {
                    state.invalidate(Some((tenant, scope)));
                }
            }
            publish.finish(done.is_ok());
            return done;
        }
        let changing = ChangingGuard::new(self.cache.clone(), tenant, changes);
        let inner = self.inner.clone();
        let commit = async move {
            let done = inner.commit(tenant, batch).await;
            drop(changing);
            publish.finish(done.is_ok());
            done
        };
        self.commits.run(commit).await
    }
}

impl StoreLayer for CachedStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }
}

#[async_trait]
impl Store for CachedStore {
    async fn commit(&self, tenant: TenantId, mut batch: Batch) -> Result<()> {
        // The store of a cluster distributes the events itself, with the change.
        let is_single_hub = self.inner.shared().is_none();
        let events = if is_single_hub { std::mem::take(&mut batch.events) } else { Vec::new() };
        let publish = PublishOnCommit::new(self.events.clone(), tenant, events);
        self.commit_changes(tenant, batch, publish).await
    }
}

#[async_trait]
impl DocumentStore for CachedStore {
    async fn document(&self, tenant: TenantId, key: &DocumentKey) -> Result<Option<StoredDocument>> {
        if !key.kind.is_cached() {
            return self.inner.document(tenant, key).await;
        }
        let read_at = {
            let state = lock(&self.cache);
            if let Some(stored) = state.documents.get(&(tenant, key.clone())) {
                return Ok(Some(stored.clone()));
            }
            state.changes.get()
        };
        let found = self.inner.document(tenant, key).await?;
        lock(&self.cache).insert(tenant, read_at, found.as_ref());
        Ok(found)
    }

    async fn document_in_any_tenant(&self, key: &DocumentKey) -> Result<Option<(TenantId, StoredDocument)>> {
        self.inner.document_in_any_tenant(key).await
    }

    async fn document_by_name(
        &self,
        tenant: TenantId,
        kind: DocumentKind,
        name: &str,
    ) -> Result<Option<StoredDocument>> {
        let read_at = {
            let state = lock(&self.cache);
            let id = state.ids.get(&(tenant, kind, name.to_owned()));
            if let Some(stored) = id.and_then(|id| state.documents.get(&(tenant, DocumentKey::new(kind, id))))
            {
                return Ok(Some(stored.clone()));
            }
            state.changes.get()
        };
        let found = self.inner.document_by_name(tenant, kind, name).await?;
        lock(&self.cache).insert(tenant, read_at, found.as_ref());
        Ok(found)
    }

    async fn documents(
        &self,
        tenant: TenantId,
        kind: DocumentKind,
        parent: Option<&str>,
        paging: &PageRequest,
    ) -> Result<Page<StoredDocument>> {
        self.inner.documents(tenant, kind, parent, paging).await
    }

    async fn tenants(&self) -> Result<Vec<TenantId>> {
        self.inner.tenants().await
    }
}
