//! Read cache in front of a store, for the documents that every call reads: servers, tools and agents. Changes go
//! through the cache, or are reported by the store if a peer hub makes them, and invalidate the changed documents.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc::{Receiver, Sender};

use super::{
    About, Approval, ApprovalFilter, Batch, Call, CallFilter, Change, Changed, Copied, Document, Key, Kind,
    Page, Paging, Shared, Store, Stored,
};
use crate::audit::{Checkpoint, Head, Row};
use crate::error::{Error, Result};
use crate::events::{Events, Untold};
use crate::id::{ApprovalId, CallId, TenantId};
use crate::lock::lock;
use crate::task_set::Tasks;

/// Maximum number of cached documents.
const MOST: usize = 10_000;

/// Store with a read cache.
pub struct Cached {
    inner: Arc<dyn Store>,
    known: Arc<Mutex<Known>>,
    events: Events,
    /// Commits that change cached documents. They finish even if the caller stops waiting: until then the store may
    /// hold either version, so that neither may be cached.
    commits: Arc<Tasks>,
}

#[derive(Default)]
struct Known {
    documents: HashMap<(TenantId, Key), Stored>,
    ids: HashMap<(TenantId, Kind, String), String>,
    /// Number of changes. A document that was read before a change is not cached after it.
    changes: u64,
    /// Documents that are being changed, with the number of commits. They are not cached before the last commit has
    /// finished.
    changing: HashMap<(TenantId, About), usize>,
}

/// Guard of a commit that changes cached documents. They may be cached again after it is dropped.
struct ChangingGuard {
    known: Arc<Mutex<Known>>,
    tenant: TenantId,
    changes: Vec<About>,
}

impl ChangingGuard {
    fn new(known: Arc<Mutex<Known>>, tenant: TenantId, changes: Vec<About>) -> Self {
        lock(&known).begin(tenant, &changes);
        ChangingGuard { known, tenant, changes }
    }
}

impl Drop for ChangingGuard {
    fn drop(&mut self) {
        lock(&self.known).end(self.tenant, std::mem::take(&mut self.changes));
    }
}

impl Known {
    fn remember(&mut self, tenant: TenantId, read_at: u64, found: Option<&Stored>) {
        let Some(stored) = found.filter(|stored| stored.document.key.kind.is_remembered()) else { return };
        let Document { key, parent, .. } = &stored.document;
        let is_changing = |about| self.changing.contains_key(&(tenant, about));
        let parts = |parent: &String| is_changing(About::Parts(key.kind, parent.clone()));
        if read_at != self.changes
            || is_changing(About::One(key.clone()))
            || parent.as_ref().is_some_and(parts)
        {
            return;
        }
        if self.documents.len() >= MOST {
            self.documents.clear();
            self.ids.clear();
        }
        let Key { kind, id } = stored.document.key.clone();
        if let Some(name) = &stored.document.name {
            self.ids.insert((tenant, kind, name.clone()), id);
        }
        self.documents.insert((tenant, stored.document.key.clone()), stored.clone());
    }

    fn begin(&mut self, tenant: TenantId, changes: &[About]) {
        self.changes += 1;
        for about in changes {
            *self.changing.entry((tenant, about.clone())).or_default() += 1;
            self.forget_about(tenant, about);
        }
    }

    /// Handles an invalidation by a peer hub. `None` clears the cache.
    fn hear(&mut self, changed: Changed<'_>) {
        self.changes += 1;
        if let Some((tenant, about)) = changed {
            self.forget_about(tenant, about);
        } else {
            self.documents.clear();
            self.ids.clear();
        }
    }

    fn forget_about(&mut self, tenant: TenantId, about: &About) {
        match about {
            About::One(key) => self.forget(tenant, key),
            About::Parts(kind, parent) => {
                let is_part = |stored: &Stored| stored.document.parent.as_ref() == Some(parent);
                let of = self.documents.iter().filter(|((whose, key), stored)| {
                    *whose == tenant && key.kind == *kind && is_part(stored)
                });
                let parts: Vec<_> = of.map(|((_, key), _)| key.clone()).collect();
                for key in &parts {
                    self.forget(tenant, key);
                }
            }
        }
    }

    fn forget(&mut self, tenant: TenantId, key: &Key) {
        let old = self.documents.remove(&(tenant, key.clone()));
        if let Some(name) = old.and_then(|old| old.document.name) {
            self.ids.remove(&(tenant, key.kind, name));
        }
    }

    fn end(&mut self, tenant: TenantId, changes: Vec<About>) {
        self.changes += 1;
        for about in changes {
            if let Entry::Occupied(mut count) = self.changing.entry((tenant, about)) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
    }
}

fn decided_by(change: &Change) -> Vec<About> {
    let Change::Same(all) = change else { return Vec::new() };
    all.iter().map(|(key, _)| About::One(key.clone())).collect()
}

impl Cached {
    /// Creates a cache in front of this store.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        let known: Arc<Mutex<Known>> = Arc::default();
        if let Some(shared) = inner.shared() {
            let known = Arc::downgrade(&known);
            shared.listen(move |changed| {
                if let Some(known) = known.upgrade() {
                    lock(&known).hear(changed);
                }
            });
        }
        let events = inner.shared().map(|shared| shared.events.clone()).unwrap_or_default();
        Cached { inner, known, events, commits: Arc::default() }
    }

    /// Returns the event log of this store, with the events of all hubs.
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// Returns the commits that finish even if their callers stop waiting.
    pub(crate) fn commits(&self) -> &Arc<Tasks> {
        &self.commits
    }

    async fn change(&self, tenant: TenantId, batch: Batch, untold: Untold) -> Result<()> {
        let changes: Vec<_> = batch.changes.iter().filter_map(About::of).collect();
        if changes.is_empty() {
            let decided: Vec<_> = batch.changes.iter().flat_map(decided_by).collect();
            let done = self.inner.commit(tenant, batch).await;
            if done.is_err() {
                // The invalidation by a peer hub may not have arrived yet.
                let mut known = lock(&self.known);
                for about in &decided {
                    known.hear(Some((tenant, about)));
                }
            }
            untold.over(done.is_ok());
            return done;
        }
        let changing = ChangingGuard::new(self.known.clone(), tenant, changes);
        let inner = self.inner.clone();
        let commit = async move {
            let done = inner.commit(tenant, batch).await;
            drop(changing);
            untold.over(done.is_ok());
            done
        };
        self.commits.run(commit).await
    }
}

#[async_trait]
impl Store for Cached {
    async fn commit(&self, tenant: TenantId, mut batch: Batch) -> Result<()> {
        // The store of a cluster distributes the events itself, with the change.
        let is_alone = self.inner.shared().is_none();
        let told = if is_alone { std::mem::take(&mut batch.told) } else { Vec::new() };
        let untold = Untold::new(self.events.clone(), tenant, told);
        self.change(tenant, batch, untold).await
    }

    async fn document(&self, tenant: TenantId, key: &Key) -> Result<Option<Stored>> {
        if !key.kind.is_remembered() {
            return self.inner.document(tenant, key).await;
        }
        let read_at = {
            let known = lock(&self.known);
            if let Some(stored) = known.documents.get(&(tenant, key.clone())) {
                return Ok(Some(stored.clone()));
            }
            known.changes
        };
        let found = self.inner.document(tenant, key).await?;
        lock(&self.known).remember(tenant, read_at, found.as_ref());
        Ok(found)
    }

    async fn named(&self, tenant: TenantId, kind: Kind, name: &str) -> Result<Option<Stored>> {
        let read_at = {
            let known = lock(&self.known);
            let id = known.ids.get(&(tenant, kind, name.to_owned()));
            if let Some(stored) = id.and_then(|id| known.documents.get(&(tenant, Key::new(kind, id)))) {
                return Ok(Some(stored.clone()));
            }
            known.changes
        };
        let found = self.inner.named(tenant, kind, name).await?;
        lock(&self.known).remember(tenant, read_at, found.as_ref());
        Ok(found)
    }

    async fn anywhere(&self, key: &Key) -> Result<Option<(TenantId, Stored)>> {
        self.inner.anywhere(key).await
    }

    async fn documents(
        &self,
        tenant: TenantId,
        kind: Kind,
        parent: Option<&str>,
        paging: &Paging,
    ) -> Result<Page<Stored>> {
        self.inner.documents(tenant, kind, parent, paging).await
    }

    async fn call(&self, tenant: TenantId, id: CallId) -> Result<Option<Call>> {
        self.inner.call(tenant, id).await
    }

    async fn calls(&self, tenant: TenantId, filter: &CallFilter, paging: &Paging) -> Result<Page<Call>> {
        self.inner.calls(tenant, filter, paging).await
    }

    async fn approval(&self, tenant: TenantId, id: ApprovalId) -> Result<Option<Approval>> {
        self.inner.approval(tenant, id).await
    }

    async fn approvals(
        &self,
        tenant: TenantId,
        filter: &ApprovalFilter,
        paging: &Paging,
    ) -> Result<Page<Approval>> {
        self.inner.approvals(tenant, filter, paging).await
    }

    async fn head(&self, tenant: TenantId) -> Result<Head> {
        self.inner.head(tenant).await
    }

    async fn audit(&self, tenant: TenantId, after: u64, limit: usize) -> Result<Vec<Row>> {
        self.inner.audit(tenant, after, limit).await
    }

    async fn checkpoint(&self, tenant: TenantId) -> Result<Option<Checkpoint>> {
        self.inner.checkpoint(tenant).await
    }

    async fn tenants(&self) -> Result<Vec<TenantId>> {
        self.inner.tenants().await
    }

    async fn abandoned(&self, tenant: TenantId) -> Result<Vec<Call>> {
        self.inner.abandoned(tenant).await
    }

    async fn has_calls_before(&self, tenant: TenantId, before: Timestamp) -> Result<bool> {
        self.inner.has_calls_before(tenant, before).await
    }

    fn shared(&self) -> Option<&Shared> {
        self.inner.shared()
    }

    fn ahead(&self) -> SignedDuration {
        self.inner.ahead()
    }

    async fn copy_out(&self, to: Sender<Copied>) -> Result<()> {
        self.inner.copy_out(to).await
    }

    async fn copy_in(&self, from: Receiver<Copied>, count: u64) -> Result<()> {
        self.inner.copy_in(from, count).await
    }

    async fn broken(&self) -> Error {
        self.inner.broken().await
    }
}
