//! Background jobs: syncs servers, expires approvals, closes idle connections, prunes old records and signs the audit.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{MissedTickBehavior, interval};

use super::cancel::CANCEL;
use super::sync_queue::Look;
use super::{Hub, event_payloads};
use crate::actor::{Scope, Subject};
use crate::error::{Error, Result};
use crate::events::Event;
use crate::id::TenantId;

const TICK: Duration = Duration::from_secs(1);
/// Intervals in ticks.
const CHECKPOINT: u64 = 10;
const FORGET: u64 = 3_600;
/// Time limit at shutdown for commits whose callers are gone.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit at shutdown for running calls.
const PATIENCE: Duration = Duration::from_secs(10);

impl Hub {
    /// Runs the background jobs until `end` completes, then shuts down.
    pub async fn run(self: Arc<Self>, end: impl Future<Output = ()>) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut end, mut count, mut synced) = (std::pin::pin!(end), 0_u64, self.world.now());
        let mut heard = self.events.watch_all();
        // Tools may have changed while no hub was running.
        for tenant in said(self.store.tenants().await).unwrap_or_default() {
            said(self.look_at_all(tenant).await);
        }
        loop {
            tokio::select! {
                () = &mut end => break,
                () = self.due.bell.notified() => self.look_at_due(),
                event = heard.next() => {
                    if let Ok(event) = event {
                        self.hear(&event);
                    }
                }
                _ = ticks.tick() => {
                    self.tick(count, &mut synced).await;
                    count += 1;
                }
            }
        }
        self.end().await;
    }

    /// Waits until the store fails permanently and returns the error: the hub has to stop then.
    pub async fn broken(&self) -> Error {
        self.store.broken().await
    }

    /// Waits for running calls, stores what is pending, closes all connections and signs the audit.
    pub async fn end(&self) {
        self.looks.end(Duration::ZERO).await; // syncs and pruning have no waiting callers
        let since = self.ending.borrow().map_or(Duration::ZERO, |since| since.elapsed());
        self.tasks.end(PATIENCE.saturating_sub(since)).await;
        self.commits.finish(COMMIT_TIMEOUT).await;
        self.settle_doubts().await;
        self.keep_late().await;
        self.connections.end_all().await;
        self.keep_denied(true).await;
        self.write_refused(true).await;
        if let Ok(tenants) = self.store.tenants().await {
            for tenant in tenants {
                if let Err(error) = self.checkpoint(tenant).await {
                    tracing::warn!(%error, "failed to sign the end of the audit");
                }
                self.move_head(tenant).await;
            }
        }
    }

    /// Runs the jobs of one tick. A failure for one tenant affects neither the other tenants nor the other jobs.
    async fn tick(self: &Arc<Self>, count: u64, synced: &mut Timestamp) {
        self.look_at_due();
        self.settle_doubts().await;
        self.keep_late().await;
        self.keep_denied(false).await;
        self.write_refused(false).await;
        self.connections.end_idle();
        self.connections.notice_ends();
        self.check_connections();
        let now = self.world.now();
        let is_due = now.duration_since(*synced)
            >= jiff::SignedDuration::try_from(self.options.sync_every).unwrap_or_default();
        if is_due {
            *synced = now;
        }
        for tenant in said(self.store.tenants().await).unwrap_or_default() {
            said(self.expire_approvals(tenant).await);
            said(self.recover_calls(tenant).await);
            if count.is_multiple_of(CHECKPOINT) {
                said(self.checkpoint(tenant).await);
            }
            self.move_head(tenant).await;
            if count.is_multiple_of(FORGET) {
                let hub = self.clone(); // both may take long and can be aborted between commits
                self.looks.start(async move {
                    said(hub.forget_old(tenant).await);
                    said(hub.seal_old(tenant).await);
                });
                for server in said(self.every_server(tenant).await).unwrap_or_default() {
                    said(self.forget_late(tenant, server.id).await);
                }
            }
            if is_due {
                said(self.look_at_all(tenant).await);
            }
        }
    }

    /// Handles requests that users sent to another hub: stops a call, and closes the connections of a logged-out user.
    fn hear(&self, event: &Event) {
        if event.kind == event_payloads::SESSION
            && let Some(user) = event.body["user"].as_str().and_then(|user| user.parse().ok())
        {
            self.connections.end_of(event.tenant, Subject::User(user));
        }
        if event.kind == CANCEL
            && let Some(call) = event.body["call"].as_str().and_then(|call| call.parse().ok())
        {
            self.stop(event.tenant, call);
        }
    }

    /// Schedules a sync of every enabled server.
    async fn look_at_all(&self, tenant: TenantId) -> Result<()> {
        for server in self.every_server(tenant).await?.iter().filter(|server| server.settings.enabled) {
            self.look_soon(tenant, server.id);
        }
        Ok(())
    }

    /// Starts the due syncs, each in its own task: an unresponsive server does not delay the others.
    fn look_at_due(self: &Arc<Self>) {
        for looking in self.due.begin() {
            let hub = self.clone();
            self.looks.start(async move {
                if let Err(error) = hub.look(looking.look).await {
                    tracing::info!(server.id = %looking.look.1, %error, "failed to sync the tools of a server");
                }
            });
        }
    }

    async fn look(&self, (tenant, server): Look) -> Result<()> {
        let server = self.find_server(tenant, &server.to_string()).await?;
        if server.settings.enabled {
            self.sync(Scope::new(tenant, Subject::Hub), &server, false).await?;
        }
        Ok(())
    }
}

/// Logs the error of a background job.
fn said<T>(done: Result<T>) -> Option<T> {
    let say = |error: &Error| tracing::warn!(%error, "background job failed; retrying on the next tick");
    done.inspect_err(say).ok()
}
