//! Store with injected faults: tests hold requests back, lose them, or leave their commit uncertain.

use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use linchpin_hub_core::audit::{ChainHead, Checkpoint, StoredAuditEntry};
use linchpin_hub_core::events::EventLog;
use linchpin_hub_core::id::{ApprovalId, CallId, TenantId};
use linchpin_hub_core::store::{
    Approval, ApprovalFilter, AuditFilter, AuditStore, Batch, CallFilter, CallRecord, CallStore, Cluster,
    DocumentKey, DocumentKind, DocumentStore, MaintenanceStore, Page, PageRequest, SnapshotItem, Store,
    StoreChange, StoredDocument,
};
use linchpin_hub_core::{Error, Result};
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, Sender};

use crate::background_task::within_timeout;

/// Request to the store.
pub(crate) enum StoreRequest<'a> {
    Commit(&'a Batch),
    Document(&'a DocumentKey),
    Call,
    /// Once per tick of the background loop.
    Abandoned,
}

/// Matches commits with a change that `fits`.
pub(crate) fn commits(fits: impl Fn(&StoreChange) -> bool) -> impl Fn(&StoreRequest<'_>) -> bool {
    move |asked| matches!(asked, StoreRequest::Commit(batch) if batch.changes.iter().any(&fits))
}

/// Matches commits that store a document of a kind.
pub(crate) fn stores(kind: DocumentKind) -> impl Fn(&StoreRequest<'_>) -> bool {
    commits(move |change| matches!(change, StoreChange::Put { document, .. } if document.key.kind == kind))
}

/// Effect of a rule on a request.
#[derive(Clone)]
pub(crate) enum Effect {
    /// Held back until the gate is opened.
    Hold(Arc<Gate>),
    /// Executed, then notified.
    Notify(Arc<Notify>),
    /// Not executed; fails with an unknown outcome.
    Lose,
    /// Executed; fails with an unknown outcome.
    Uncertain,
    /// Rejected: another hub was first.
    Conflict,
}

/// Gate that holds a request back.
#[derive(Default)]
pub(crate) struct Gate {
    reached: Notify,
    released: Notify,
}

impl Gate {
    /// Waits until a request is held back.
    pub(crate) async fn reached(&self) {
        notified(&self.reached).await;
    }

    /// Releases the request.
    pub(crate) fn open(&self) {
        self.released.notify_one();
    }
}

/// Waits for a notification, at most 30 s.
pub(crate) async fn notified(told: &Notify) {
    within_timeout(told.notified()).await;
}

struct Rule {
    fits: Box<dyn Fn(&StoreRequest<'_>) -> bool + Send + Sync>,
    effect: Effect,
    is_once: bool,
}

/// Store with rules for its requests.
pub(crate) struct FaultyStore {
    inner: Arc<dyn Store>,
    rules: Mutex<Vec<Rule>>,
    shared: Option<Cluster>,
}

impl FaultyStore {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(FaultyStore { inner, rules: Mutex::default(), shared: None })
    }

    /// Creates a store that claims to be shared by several hubs.
    pub(crate) fn shared_by_hubs(inner: Arc<dyn Store>) -> Arc<Self> {
        let shared = Some(Cluster::new(EventLog::default(), "line".to_owned()));
        Arc::new(FaultyStore { inner, rules: Mutex::default(), shared })
    }

    fn rule(
        &self,
        fits: impl Fn(&StoreRequest<'_>) -> bool + Send + Sync + 'static,
        then: Effect,
        is_once: bool,
    ) {
        self.rules.lock().unwrap().push(Rule { fits: Box::new(fits), effect: then, is_once });
    }

    /// Holds the next matching request back.
    pub(crate) fn hold(&self, fits: impl Fn(&StoreRequest<'_>) -> bool + Send + Sync + 'static) -> Arc<Gate> {
        let gate = Arc::<Gate>::default();
        self.rule(fits, Effect::Hold(gate.clone()), true);
        gate
    }

    /// Notifies of every matching request.
    pub(crate) fn notify(
        &self,
        fits: impl Fn(&StoreRequest<'_>) -> bool + Send + Sync + 'static,
    ) -> Arc<Notify> {
        let told = Arc::<Notify>::default();
        self.rule(fits, Effect::Notify(told.clone()), false);
        told
    }

    /// Applies an effect to the next matching request.
    pub(crate) fn once(
        &self,
        fits: impl Fn(&StoreRequest<'_>) -> bool + Send + Sync + 'static,
        then: Effect,
    ) {
        self.rule(fits, then, true);
    }

    /// Loses all matching requests.
    pub(crate) fn lose(&self, fits: impl Fn(&StoreRequest<'_>) -> bool + Send + Sync + 'static) {
        self.rule(fits, Effect::Lose, false);
    }

    /// Removes all rules.
    pub(crate) fn clear_rules(&self) {
        self.rules.lock().unwrap().clear();
    }

    fn next_effect(&self, asked: &StoreRequest<'_>) -> Option<Effect> {
        let mut rules = self.rules.lock().unwrap();
        let first = rules.iter().position(|rule| (rule.fits)(asked))?;
        Some(if rules[first].is_once { rules.remove(first).effect } else { rules[first].effect.clone() })
    }

    async fn run<T>(&self, asked: StoreRequest<'_>, done: impl Future<Output = Result<T>>) -> Result<T> {
        let lost =
            Error::new(linchpin_hub_core::ErrorKind::Unavailable, "store_unavailable", "the store is lost");
        match self.next_effect(&asked) {
            None => done.await,
            Some(Effect::Hold(gate)) => {
                gate.reached.notify_one();
                gate.released.notified().await;
                done.await
            }
            Some(Effect::Notify(told)) => {
                let done = done.await;
                told.notify_one();
                done
            }
            Some(Effect::Lose) => Err(lost),
            Some(Effect::Conflict) => Err(Error::new(
                linchpin_hub_core::ErrorKind::Conflict,
                "version_conflict",
                "another hub was first",
            )),
            Some(Effect::Uncertain) => {
                done.await?;
                Err(lost)
            }
        }
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn commit(&self, tenant: TenantId, batch: Batch) -> Result<()> {
        self.run(StoreRequest::Commit(&batch), self.inner.commit(tenant, batch.clone())).await
    }
}

#[async_trait]
impl DocumentStore for FaultyStore {
    async fn document(&self, tenant: TenantId, key: &DocumentKey) -> Result<Option<StoredDocument>> {
        self.run(StoreRequest::Document(key), self.inner.document(tenant, key)).await
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
        self.inner.document_by_name(tenant, kind, name).await
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

#[async_trait]
impl CallStore for FaultyStore {
    async fn call(&self, tenant: TenantId, id: CallId) -> Result<Option<CallRecord>> {
        self.run(StoreRequest::Call, self.inner.call(tenant, id)).await
    }

    async fn calls(
        &self,
        tenant: TenantId,
        filter: &CallFilter,
        paging: &PageRequest,
    ) -> Result<Page<CallRecord>> {
        self.inner.calls(tenant, filter, paging).await
    }

    async fn approval(&self, tenant: TenantId, id: ApprovalId) -> Result<Option<Approval>> {
        self.inner.approval(tenant, id).await
    }

    async fn approvals(
        &self,
        tenant: TenantId,
        filter: &ApprovalFilter,
        paging: &PageRequest,
    ) -> Result<Page<Approval>> {
        self.inner.approvals(tenant, filter, paging).await
    }

    async fn abandoned_calls(&self, tenant: TenantId) -> Result<Vec<CallRecord>> {
        self.run(StoreRequest::Abandoned, self.inner.abandoned_calls(tenant)).await
    }

    async fn has_calls_before(&self, tenant: TenantId, before: Timestamp) -> Result<bool> {
        self.inner.has_calls_before(tenant, before).await
    }
}

#[async_trait]
impl AuditStore for FaultyStore {
    async fn audit_head(&self, tenant: TenantId) -> Result<ChainHead> {
        self.inner.audit_head(tenant).await
    }

    async fn audit_entries(
        &self,
        tenant: TenantId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<StoredAuditEntry>> {
        self.inner.audit_entries(tenant, after, limit).await
    }

    async fn find_audit_entries(
        &self,
        tenant: TenantId,
        filter: &AuditFilter,
        numbers: RangeInclusive<u64>,
        limit: usize,
    ) -> Result<Vec<StoredAuditEntry>> {
        self.inner.find_audit_entries(tenant, filter, numbers, limit).await
    }

    async fn checkpoint(&self, tenant: TenantId) -> Result<Option<Checkpoint>> {
        self.inner.checkpoint(tenant).await
    }
}

#[async_trait]
impl MaintenanceStore for FaultyStore {
    fn shared(&self) -> Option<&Cluster> {
        self.shared.as_ref().or_else(|| self.inner.shared())
    }

    fn clock_offset(&self) -> SignedDuration {
        self.inner.clock_offset()
    }

    async fn export_snapshot(&self, to: Sender<SnapshotItem>) -> Result<()> {
        self.inner.export_snapshot(to).await
    }

    async fn import_snapshot(&self, from: Receiver<SnapshotItem>, count: u64) -> Result<()> {
        self.inner.import_snapshot(from, count).await
    }

    async fn wait_for_failure(&self) -> Error {
        self.inner.wait_for_failure().await
    }
}
