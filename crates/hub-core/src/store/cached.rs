//! A store that remembers what every call asks for: servers, tools and agents. Whatever changes goes through it, and what
//! changed is forgotten.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;

use super::{
    Approval, ApprovalFilter, Batch, Call, CallFilter, Change, Key, Kind, Page, Paging, Store, Stored,
};
use crate::audit::{Checkpoint, Head, Row};
use crate::error::Result;
use crate::id::{ApprovalId, CallId, TenantId};
use crate::sync::lock;

/// How many documents are remembered.
const MOST: usize = 10_000;

/// A store that remembers.
pub struct Cached {
    inner: Arc<dyn Store>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    documents: HashMap<(TenantId, Key), Stored>,
    ids: HashMap<(TenantId, Kind, String), String>,
    /// Counts the changes: what was read before one is not remembered after it.
    changes: u64,
    /// What is being changed. Whoever changes it may leave before that is done: then it is never remembered again.
    changing: HashMap<(TenantId, Key), usize>,
}

impl Known {
    fn remember(&mut self, tenant: TenantId, read_at: u64, found: Option<&Stored>) {
        let Some(stored) = found.filter(|stored| is_remembered(stored.document.key.kind)) else { return };
        if read_at != self.changes || self.changing.contains_key(&(tenant, stored.document.key.clone())) {
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

    fn begin(&mut self, tenant: TenantId, keys: &[Key]) {
        self.changes += 1;
        for key in keys {
            *self.changing.entry((tenant, key.clone())).or_default() += 1;
            if let Some(name) =
                self.documents.remove(&(tenant, key.clone())).and_then(|old| old.document.name)
            {
                self.ids.remove(&(tenant, key.kind, name));
            }
        }
    }

    fn end(&mut self, tenant: TenantId, keys: Vec<Key>) {
        self.changes += 1;
        for key in keys {
            if let Entry::Occupied(mut count) = self.changing.entry((tenant, key)) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
    }
}

fn is_remembered(kind: Kind) -> bool {
    matches!(kind, Kind::Server | Kind::Tool | Kind::Agent)
}

impl Cached {
    /// Remembers what is in this store.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Cached { inner, known: Mutex::default() }
    }
}

#[async_trait]
impl Store for Cached {
    async fn commit(&self, tenant: TenantId, batch: Batch) -> Result<()> {
        let keys: Vec<Key> = batch.changes.iter().filter_map(changed).cloned().collect();
        if keys.is_empty() {
            return self.inner.commit(tenant, batch).await;
        }
        lock(&self.known).begin(tenant, &keys);
        let done = self.inner.commit(tenant, batch).await;
        lock(&self.known).end(tenant, keys);
        done
    }

    async fn document(&self, tenant: TenantId, key: &Key) -> Result<Option<Stored>> {
        if !is_remembered(key.kind) {
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
}

/// The document that a change is about, if it is one that is remembered.
fn changed(change: &Change) -> Option<&Key> {
    let key = match change {
        Change::Put { document, .. } => &document.key,
        Change::Remove(key) => key,
        _ => return None,
    };
    is_remembered(key.kind).then_some(key)
}
