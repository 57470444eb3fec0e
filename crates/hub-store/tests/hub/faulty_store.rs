//! Store with injected faults: tests hold requests back, lose them, or leave their commit uncertain.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use linchpin_hub_core::audit::{Checkpoint, Head, Row};
use linchpin_hub_core::events::Events;
use linchpin_hub_core::id::{ApprovalId, CallId, TenantId};
use linchpin_hub_core::store::{
    Approval, ApprovalFilter, Batch, Call, CallFilter, Change, Copied, Key, Kind, Page, Paging, Shared,
    Store, Stored,
};
use linchpin_hub_core::{Error, Result};
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, Sender};

use crate::background_task::soon;

/// Request to the store.
pub(crate) enum Asked<'a> {
    Commit(&'a Batch),
    Document(&'a Key),
    Call,
    /// Once per tick of the background loop.
    Abandoned,
}

/// Matches commits with a change that `fits`.
pub(crate) fn change(fits: impl Fn(&Change) -> bool) -> impl Fn(&Asked<'_>) -> bool {
    move |asked| matches!(asked, Asked::Commit(batch) if batch.changes.iter().any(&fits))
}

/// Matches commits that store a document of a kind.
pub(crate) fn put(kind: Kind) -> impl Fn(&Asked<'_>) -> bool {
    change(move |change| matches!(change, Change::Put { document, .. } if document.key.kind == kind))
}

/// Effect of a rule on a request.
#[derive(Clone)]
pub(crate) enum Then {
    /// Held back until the gate is opened.
    Hold(Arc<Gate>),
    /// Executed, then notified.
    Tell(Arc<Notify>),
    /// Not executed; fails with an unknown outcome.
    Lose,
    /// Executed; fails with an unknown outcome.
    Doubt,
    /// Rejected: another hub was first.
    Conflict,
}

/// Gate that holds a request back.
#[derive(Default)]
pub(crate) struct Gate {
    came: Notify,
    go_on: Notify,
}

impl Gate {
    /// Waits until a request is held back.
    pub(crate) async fn came(&self) {
        heard(&self.came).await;
    }

    /// Releases the request.
    pub(crate) fn open(&self) {
        self.go_on.notify_one();
    }
}

/// Waits for a notification, at most 30 s.
pub(crate) async fn heard(told: &Notify) {
    soon(told.notified()).await;
}

struct Rule {
    fits: Box<dyn Fn(&Asked<'_>) -> bool + Send + Sync>,
    then: Then,
    is_once: bool,
}

/// Store with rules for its requests.
pub(crate) struct Gated {
    inner: Arc<dyn Store>,
    rules: Mutex<Vec<Rule>>,
    shared: Option<Shared>,
}

impl Gated {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Gated { inner, rules: Mutex::default(), shared: None })
    }

    /// Creates a store that claims to be shared by several hubs.
    pub(crate) fn shared_by_hubs(inner: Arc<dyn Store>) -> Arc<Self> {
        let shared = Some(Shared::new(Events::default(), "line".to_owned()));
        Arc::new(Gated { inner, rules: Mutex::default(), shared })
    }

    fn rule(&self, fits: impl Fn(&Asked<'_>) -> bool + Send + Sync + 'static, then: Then, is_once: bool) {
        self.rules.lock().unwrap().push(Rule { fits: Box::new(fits), then, is_once });
    }

    /// Holds the next matching request back.
    pub(crate) fn hold(&self, fits: impl Fn(&Asked<'_>) -> bool + Send + Sync + 'static) -> Arc<Gate> {
        let gate = Arc::<Gate>::default();
        self.rule(fits, Then::Hold(gate.clone()), true);
        gate
    }

    /// Notifies of every matching request.
    pub(crate) fn tell(&self, fits: impl Fn(&Asked<'_>) -> bool + Send + Sync + 'static) -> Arc<Notify> {
        let told = Arc::<Notify>::default();
        self.rule(fits, Then::Tell(told.clone()), false);
        told
    }

    /// Applies an effect to the next matching request.
    pub(crate) fn once(&self, fits: impl Fn(&Asked<'_>) -> bool + Send + Sync + 'static, then: Then) {
        self.rule(fits, then, true);
    }

    /// Loses all matching requests.
    pub(crate) fn lose(&self, fits: impl Fn(&Asked<'_>) -> bool + Send + Sync + 'static) {
        self.rule(fits, Then::Lose, false);
    }

    /// Removes all rules.
    pub(crate) fn pass(&self) {
        self.rules.lock().unwrap().clear();
    }

    fn then(&self, asked: &Asked<'_>) -> Option<Then> {
        let mut rules = self.rules.lock().unwrap();
        let first = rules.iter().position(|rule| (rule.fits)(asked))?;
        Some(if rules[first].is_once { rules.remove(first).then } else { rules[first].then.clone() })
    }

    async fn through<T>(&self, asked: Asked<'_>, done: impl Future<Output = Result<T>>) -> Result<T> {
        let lost = Error::new(linchpin_hub_core::Kind::Unavailable, "store_unavailable", "the store is lost");
        match self.then(&asked) {
            None => done.await,
            Some(Then::Hold(gate)) => {
                gate.came.notify_one();
                gate.go_on.notified().await;
                done.await
            }
            Some(Then::Tell(told)) => {
                let done = done.await;
                told.notify_one();
                done
            }
            Some(Then::Lose) => Err(lost),
            Some(Then::Conflict) => Err(Error::new(
                linchpin_hub_core::Kind::Conflict,
                "version_conflict",
                "another hub was first",
            )),
            Some(Then::Doubt) => {
                done.await?;
                Err(lost)
            }
        }
    }
}

#[async_trait]
impl Store for Gated {
    async fn commit(&self, tenant: TenantId, batch: Batch) -> Result<()> {
        self.through(Asked::Commit(&batch), self.inner.commit(tenant, batch.clone())).await
    }

    async fn document(&self, tenant: TenantId, key: &Key) -> Result<Option<Stored>> {
        self.through(Asked::Document(key), self.inner.document(tenant, key)).await
    }

    async fn abandoned(&self, tenant: TenantId) -> Result<Vec<Call>> {
        self.through(Asked::Abandoned, self.inner.abandoned(tenant)).await
    }

    async fn call(&self, tenant: TenantId, id: CallId) -> Result<Option<Call>> {
        self.through(Asked::Call, self.inner.call(tenant, id)).await
    }

    async fn named(&self, tenant: TenantId, kind: Kind, name: &str) -> Result<Option<Stored>> {
        self.inner.named(tenant, kind, name).await
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

    async fn has_calls_before(&self, tenant: TenantId, before: Timestamp) -> Result<bool> {
        self.inner.has_calls_before(tenant, before).await
    }

    fn shared(&self) -> Option<&Shared> {
        self.shared.as_ref().or_else(|| self.inner.shared())
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
