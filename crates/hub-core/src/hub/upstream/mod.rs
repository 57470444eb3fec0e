//! Upstream servers: connections, credentials, environment secrets, OAuth and the egress policy.

pub(super) mod access;
mod commit_effects;
pub(super) mod connect;
pub(super) mod credentials;
mod env_secrets;
pub(super) mod features;
pub mod oauth;
pub(super) mod server_info;
pub(super) mod subscriptions;
pub(super) mod url_elicitations;

use std::sync::Arc;
use std::time::Duration;

use linchpin::client::ListChanged;
use linchpin::egress::Egress;

use self::access::UpstreamAccess;
use self::oauth::OAuthBroker;
use self::subscriptions::Subscriptions;
use self::url_elicitations::UrlElicitations;
use super::audit::Audit;
use super::context::HubContext;
use super::registry::directory::ServerDirectory;
use super::registry::tools::sync_queue::SyncQueue;
use super::snapshots::Snapshots;
use crate::actor::Subject;
use crate::connection::{ConnectionPool, ConnectionStatus};
use crate::id::{ServerId, TenantId};
use crate::server::Server;
use crate::task_set::TaskSet;

/// Access to the upstream servers: open connections, and what they authenticate with.
pub struct Upstream {
    context: Arc<HubContext>,
    servers: Arc<ServerDirectory>,
    connections: Arc<ConnectionPool>,
    access: Snapshots<(TenantId, ServerId, Subject), UpstreamAccess>,
    oauth_broker: OAuthBroker,
    subscriptions: Arc<Subscriptions>,
    url_elicitations: Arc<UrlElicitations>,
    /// Tasks that hold the connections of the subscriptions.
    subscription_tasks: TaskSet,
    /// Servers whose tools are to be listed again.
    sync_queue: Arc<SyncQueue>,
}

impl Upstream {
    pub(in crate::hub) fn new(
        context: Arc<HubContext>,
        audit: &Audit,
        servers: Arc<ServerDirectory>,
        sync_queue: Arc<SyncQueue>,
        egress: Egress,
    ) -> Self {
        let changed = {
            let due = sync_queue.clone();
            // A sync updates the tools and the counts of everything else.
            Arc::new(move |tenant, server, _: ListChanged| due.add((tenant, server)))
        };
        let (platform, events) = (context.platform.clone(), context.events.clone());
        let connections =
            ConnectionPool::new(platform, egress, events, changed, context.options.processes.clone());
        let subscriptions = Arc::<Subscriptions>::default();
        let subscribed = subscriptions.clone();
        let updated = move |tenant, subject, server, uri: &str| {
            subscribed.updated(tenant, subject, server, uri);
        };
        let url_elicitations = Arc::<UrlElicitations>::default();
        let open_elicitations = url_elicitations.clone();
        let completed = move |tenant, subject, server, elicitation: &str| {
            open_elicitations.complete(tenant, subject, server, elicitation);
        };
        let connections = connections
            .on_elicitation_completed(Arc::new(completed))
            .on_denied(audit.denial_recorder())
            .on_resource_updated(Arc::new(updated))
            .with_hub_secrets(context.keys.hub_secrets().clone());
        let access = Snapshots::new(context.generation.clone());
        let (connections, oauth_broker) = (Arc::new(connections), OAuthBroker::default());
        let subscription_tasks = TaskSet::default();
        Upstream {
            context,
            servers,
            connections,
            access,
            oauth_broker,
            subscriptions,
            url_elicitations,
            subscription_tasks,
            sync_queue,
        }
    }

    /// Returns the accepted URL elicitations.
    pub(in crate::hub) fn url_elicitations(&self) -> &UrlElicitations {
        &self.url_elicitations
    }

    pub(in crate::hub) fn change_egress(&self, egress: &Egress) {
        self.connections.change_egress(egress);
    }

    /// Returns the status of the connections to a server.
    pub(in crate::hub) fn status(&self, tenant: TenantId, server: &Server) -> ConnectionStatus {
        if server.settings.enabled {
            self.connections.status(tenant, server.id)
        } else {
            ConnectionStatus::Disabled
        }
    }

    /// Closes the connections to a server.
    pub(in crate::hub) fn close_server(&self, tenant: TenantId, server: ServerId) {
        self.connections.close_server(tenant, server);
    }

    /// Closes the connections to a server that are older than its version. With `stop_now`, their calls are not awaited.
    pub(in crate::hub) fn invalidate(
        &self,
        tenant: TenantId,
        server: ServerId,
        version: Option<u64>,
        stop_now: bool,
    ) {
        self.connections.invalidate(tenant, server, version, stop_now);
    }

    /// Closes the connections of a user or agent.
    pub(in crate::hub) fn close_subject(&self, tenant: TenantId, subject: Subject) {
        self.connections.close_subject(tenant, subject);
    }

    /// Closes idle connections, and forgets the closed ones.
    pub(in crate::hub) fn close_idle(&self) {
        self.connections.close_idle(self.context.limits().connection_idle);
        self.connections.reap_closed();
    }

    /// Returns the resource subscriptions of all subjects.
    pub(in crate::hub) fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    /// Starts the task of a subscription, which ends at the shutdown.
    pub(in crate::hub) fn spawn_subscription(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.subscription_tasks.spawn(task);
    }

    /// Ends all subscriptions and closes all connections.
    pub(in crate::hub) async fn close_all(&self) {
        self.subscription_tasks.shutdown(Duration::ZERO).await;
        self.connections.close_all().await;
    }

    /// Checks in tasks of this set whether idle connections to remote servers still work.
    pub(in crate::hub) fn check_connections(self: &Arc<Self>, tasks: &TaskSet) {
        for connection in self.connections.due_for_check() {
            let upstream = self.clone();
            tasks.spawn(async move {
                if upstream.connections.ping_fails(&connection).await {
                    let (tenant, server) = connection.upstream();
                    upstream.schedule_sync(tenant, server);
                }
            });
        }
    }

    fn schedule_sync(&self, tenant: TenantId, server: ServerId) {
        self.sync_queue.add((tenant, server));
    }
}
