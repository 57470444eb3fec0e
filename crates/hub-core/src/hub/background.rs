//! Background jobs: syncs servers, expires approvals, closes idle connections, prunes old records and signs the audit.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::calls::cancel::CANCEL_EVENT;
use super::registry::tools::sync_schedule::SyncSchedule;
use super::{Hub, event_payloads};
use crate::actor::Subject;
use crate::error::{Error, Result};
use crate::events::Event;

/// Time between two ticks of the background jobs.
const TICK_INTERVAL: Duration = Duration::from_secs(1);
/// Number of background ticks between two checkpoints of the audit.
const CHECKPOINT_TICKS: u64 = 10;
/// Number of background ticks between two removals of expired approval rules, which approve nothing any more.
const EXPIRE_RULES_TICKS: u64 = 60;
/// Number of background ticks between two prunings of old records.
const PRUNE_TICKS: u64 = 3_600;
/// Time limit at shutdown for commits whose callers are gone.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit at shutdown for running calls.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

impl Hub {
    /// Runs the background jobs until `end` completes, then shuts down.
    pub async fn run(self: Arc<Self>, end: impl Future<Output = ()>) {
        let mut ticks = interval(TICK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut end, mut count) = (std::pin::pin!(end), 0_u64);
        let mut schedule = SyncSchedule::new(self.context.platform.now());
        let mut subscription = self.context.events.subscribe_to_changes();
        // Tools may have changed while no hub was running.
        for tenant in log_failure(self.context.store.tenants().await).unwrap_or_default() {
            log_failure(self.registry.schedule_all_syncs(tenant).await);
        }
        loop {
            tokio::select! {
                () = &mut end => break,
                () = self.registry.sync_requested() => self.start_due_syncs(),
                event = subscription.next() => {
                    // After lost events, the servers may have changed.
                    if event.as_ref().map_or(true, |event| event.kind == event_payloads::SERVER_EVENT) {
                        schedule.examine_again();
                    }
                    if let Ok(event) = event {
                        self.handle_cluster_event(&event);
                    }
                }
                _ = ticks.tick() => {
                    self.tick(count, &mut schedule).await;
                    count += 1;
                }
            }
        }
        self.shutdown().await;
    }

    /// Checks in the background whether idle connections to remote servers still work.
    pub fn check_connections(&self) {
        self.upstream.check_connections(&self.background_tasks);
    }

    /// Waits until the store fails permanently and returns the error: the hub has to stop then.
    pub async fn wait_for_store_failure(&self) -> Error {
        self.context.store.wait_for_failure().await
    }

    /// Waits for running calls, stores what is pending, closes all connections and signs the audit.
    pub async fn shutdown(&self) {
        self.background_tasks.shutdown(Duration::ZERO).await; // syncs and pruning have no waiting callers
        let since = self.context.shutdown_started.borrow().map_or(Duration::ZERO, |since| since.elapsed());
        self.context.tasks.shutdown(SHUTDOWN_TIMEOUT.saturating_sub(since)).await;
        self.context.commits.finish(COMMIT_TIMEOUT).await;
        self.calls.resolve_uncertain_starts().await;
        self.calls.flush_deferred().await;
        self.upstream.close_all().await;
        self.audit.flush_rejections(true).await;
        self.identity.flush_rejected_logins(true).await;
        if let Ok(tenants) = self.context.store.tenants().await {
            for tenant in tenants {
                if let Err(error) = self.audit.checkpoint(tenant).await {
                    tracing::warn!(%error, "failed to sign the end of the audit at shutdown");
                }
                self.audit.move_head(tenant).await;
            }
        }
    }

    /// Runs the periodic background jobs of the hub once. A failure for one tenant affects neither the other tenants
    /// nor the other jobs.
    async fn tick(self: &Arc<Self>, count: u64, schedule: &mut SyncSchedule) {
        self.start_due_syncs();
        self.calls.resolve_uncertain_starts().await;
        self.calls.flush_deferred().await;
        self.audit.flush_rejections(false).await;
        self.identity.flush_rejected_logins(false).await;
        self.upstream.close_idle();
        self.check_connections();
        let now = self.context.platform.now();
        let Some(tenants) = log_failure(self.context.store.tenants().await) else { return };
        let sync_interval = self.context.limits().sync_interval;
        let is_due = schedule.is_due(now, sync_interval);
        if is_due {
            schedule.begin(sync_interval);
        }
        for tenant in tenants {
            log_failure(self.calls.expire_approvals(tenant).await);
            log_failure(self.calls.withdraw_lost_requests(tenant).await);
            log_failure(self.calls.recover_calls(tenant).await);
            if count.is_multiple_of(EXPIRE_RULES_TICKS) {
                log_failure(self.calls.expire_approval_rules(tenant).await);
            }
            if count.is_multiple_of(CHECKPOINT_TICKS) {
                log_failure(self.audit.checkpoint(tenant).await);
            }
            self.audit.move_head(tenant).await;
            if count.is_multiple_of(PRUNE_TICKS) {
                let audit = self.audit.clone(); // both may take long and can be aborted between commits
                self.background_tasks.spawn(async move {
                    log_failure(audit.prune_calls(tenant).await);
                    log_failure(audit.archive(tenant).await);
                });
                log_failure(self.upstream.prune_sign_ins(tenant).await);
            }
            if is_due {
                log_failure(self.registry.schedule_due_syncs(tenant, now, schedule).await);
            }
        }
    }

    /// Handles changes that users make, also at another hub: stops a call, closes the connections of a logged-out user,
    /// and ends the subscriptions of a subject whose session or token has ended.
    fn handle_cluster_event(&self, event: &Event) {
        if event.kind == event_payloads::SESSION_EVENT
            && let Some(user) = event.body["user"].as_str().and_then(|user| user.parse().ok())
        {
            self.upstream.close_subject(event.tenant, Subject::User(user));
        }
        if let Some(subject) = event.subject_without_access() {
            self.calls.end_subscriptions(event.tenant, subject);
        }
        if event.kind == CANCEL_EVENT
            && let Some(call) = event.body["call"].as_str().and_then(|call| call.parse().ok())
        {
            self.calls.stop_call(event.tenant, call);
        }
    }

    /// Starts the syncs of servers that are due, each in its own task: an unresponsive server does not delay the
    /// others.
    fn start_due_syncs(self: &Arc<Self>) {
        for looking in self.registry.take_due_syncs() {
            let registry = self.registry.clone();
            self.background_tasks.spawn(async move {
                if let Err(error) = registry.sync_queued(looking.key).await {
                    tracing::info!(server.id = %looking.key.1, %error, "failed to sync the tools of a server");
                }
            });
        }
    }
}

/// Logs the error of a background job, if it failed.
fn log_failure<T>(done: Result<T>) -> Option<T> {
    let log = |error: &Error| tracing::warn!(%error, "background job failed; retrying on the next tick");
    done.inspect_err(log).ok()
}
