//! Operations on servers: list, add, update, enable, remove, connect and disconnect, and their environment secrets.

use linchpin::Revision;
use linchpin::auth::Secret;
use serde_json::{Map, Value, json};

use super::directory::NOT_IN_FILE;
use super::records::{ServerRecord, StoredTransport};
use super::views::{ConnectReport, ServerFilter, ServerView};
use crate::actor::Actor;
use crate::agent::Agent;
use crate::approval_rule::ApprovalRule;
use crate::error::{self, Error, Result};
use crate::hub::registry::Registry;
use crate::hub::{delete_children, event_payloads, upsert};
use crate::id::{ServerId, TenantId};
use crate::policy::PolicyReason;
use crate::server::{
    CredentialMode, ProgramSpec, RemoteEndpoint, Server, ServerDraft, ServerSettings, Transport,
};
use crate::store::{Batch, DocumentKey, DocumentKind, StoreChange};
use crate::tool::names::Slug;

/// Maximum number of servers of a tenant.
const MAX_SERVERS: usize = 1_000;
const MSG_NOT_DECLARED: &str = "not in the configuration file any more: add it there, or remove the server";

impl Registry {
    /// Lists the servers of the tenant.
    pub async fn servers(&self, actor: Actor, filter: &ServerFilter) -> Result<Vec<ServerView>> {
        actor.require_user()?;
        let mut views = Vec::new();
        for server in self.servers.list_servers(actor.tenant()).await? {
            let ServerSettings { name, description, enabled, .. } = &server.settings;
            let words = [name, server.slug.as_str(), description.as_deref().unwrap_or_default()];
            let matches_query =
                |q: &String| words.iter().any(|text| text.to_lowercase().contains(&q.to_lowercase()));
            let status = self.upstream.status(actor.tenant(), &server);
            let is_match = filter.q.as_ref().is_none_or(matches_query)
                && filter.enabled.is_none_or(|value| value == *enabled)
                && filter.status.is_none_or(|value| value == status);
            if is_match {
                views.push(self.view_server(actor.tenant(), server).await?);
            }
        }
        Ok(views)
    }

    /// Returns one server by id or slug.
    pub async fn server(&self, actor: Actor, name: &str) -> Result<ServerView> {
        actor.require_user()?;
        let server = self.servers.find_server(actor.tenant(), name).await?;
        self.view_server(actor.tenant(), server).await
    }

    /// Adds a server and schedules a sync.
    pub async fn add_server(&self, actor: Actor, form: Value) -> Result<ServerView> {
        actor.require_user()?;
        let ServerDraft { slug, settings, transport } = ServerDraft::read(form)?;
        let used_slugs: Vec<_> =
            self.servers.list_servers(actor.tenant()).await?.into_iter().map(|server| server.slug).collect();
        if used_slugs.len() >= MAX_SERVERS {
            let text = format!("the limit of {MAX_SERVERS} servers is reached: remove one first");
            return Err(Error::new(error::ErrorKind::LimitExceeded, "too_many_servers", text));
        }
        let slug = match slug {
            Some(slug) if used_slugs.contains(&slug) => {
                let text = format!("a server `{}` already exists: choose another slug", slug.as_str());
                return Err(Error::new(error::ErrorKind::Conflict, "name_taken", text).with_field("slug"));
            }
            Some(slug) => slug,
            None => free_slug(&settings.name, &used_slugs),
        };
        let (id, now) = (ServerId::new(&*self.context.platform), self.context.platform.now());
        let record = ServerRecord {
            slug,
            settings,
            transport: StoredTransport::from_transport(&transport),
            is_configured: false,
            is_undeclared: false,
            created: now,
            updated: now,
        };
        let entry = self
            .context
            .entry(actor, "server.added")
            .with("server", id.to_string())
            .with("slug", record.slug.as_str());
        let batch = Batch::new().change(upsert(record.document(id)?, 0)).audit(entry);
        let (tenant, due) = (actor.tenant(), self.sync_queue.clone());
        self.context
            .commit_then(tenant, batch.with_event(event_payloads::server(id, "added")), move |done| {
                if done.is_ok() {
                    due.add((tenant, id));
                }
            })
            .await?;
        self.upstream.store_egress_error(actor.tenant(), id).await?;
        self.server(actor, &id.to_string()).await
    }

    /// Changes the given fields of a server. Another URL or authentication deletes the stored credentials.
    pub async fn update_server(&self, actor: Actor, name: &str, changes: Value) -> Result<ServerView> {
        actor.require_user()?;
        let server = self.servers.find_server(actor.tenant(), name).await?;
        ensure_not_configured(&server)?;
        let Value::Object(changes) = changes else {
            return Err(Error::invalid("body", "must be an object"));
        };
        if changes.contains_key("slug") {
            return Err(Error::invalid("slug", "cannot be changed: it is part of the names of tools"));
        }
        let mut form = server.to_form();
        form.extend(changes);
        let ServerDraft { settings, transport, .. } = ServerDraft::read(form.into())?;
        let (id, version) = (server.id, server.version);
        self.save_server(actor, id, ServerRecord::from_server(server), version, settings, transport).await?;
        self.upstream.store_egress_error(actor.tenant(), id).await?;
        self.server(actor, &id.to_string()).await
    }

    /// Enables or disables a server.
    pub async fn enable_server(&self, actor: Actor, name: &str, enabled: bool) -> Result<ServerView> {
        self.update_server(actor, name, json!({ "enabled": enabled })).await
    }

    /// Removes a server with its tools, credentials and approval rules. Its calls and audit entries stay.
    pub async fn remove_server(&self, actor: Actor, name: &str) -> Result<()> {
        actor.require_user()?;
        let server = self.servers.find_server(actor.tenant(), name).await?;
        if !server.is_undeclared {
            ensure_not_configured(&server)?;
        }
        self.delete_server(actor, server.id, &server.slug).await
    }

    /// Connects to a server and syncs its tools.
    pub async fn connect_server(&self, actor: Actor, name: &str) -> Result<ConnectReport> {
        actor.require_user()?;
        let server = self.servers.find_server(actor.tenant(), name).await?;
        let is_shared = server.settings.credentials == CredentialMode::Shared || !server.settings.enabled;
        // With credentials per agent, a user has none: the sync connects as the agents.
        if is_shared && let Err(error) = self.upstream.acquire_connection(actor, &server, true).await {
            // No connection to a disabled server was attempted, so there is no contact to record.
            if server.settings.enabled {
                self.servers.record_contact(actor.tenant(), &server, Some(&error)).await?;
            }
            return Err(error);
        }
        let (_, offers) = self.sync(actor, &server, true).await?;
        Ok(ConnectReport { server: self.server(actor, name).await?, offers })
    }

    /// Closes all connections to a server. The next call opens a new one.
    pub async fn disconnect_server(&self, actor: Actor, name: &str) -> Result<ServerView> {
        actor.require_user()?;
        let server = self.servers.find_server(actor.tenant(), name).await?;
        self.upstream.close_server(actor.tenant(), server.id);
        let entry = self.context.entry(actor, "server.disconnected").with("server", server.id.to_string());
        self.context.store.commit(actor.tenant(), Batch::new().audit(entry)).await?;
        self.server(actor, name).await
    }

    /// Stores an environment secret of a stdio server in place of the previous one.
    pub async fn set_env_secret(
        &self,
        actor: Actor,
        server: &str,
        variable: &str,
        secret: &Secret,
    ) -> Result<ServerView> {
        self.upstream.set_env_secret(actor, server, variable, secret).await?;
        self.server(actor, server).await
    }

    /// Deletes an environment secret of a server. The server is stopped and not started again without it.
    pub async fn delete_env_secret(&self, actor: Actor, server: &str, variable: &str) -> Result<ServerView> {
        self.upstream.delete_env_secret(actor, server, variable).await?;
        self.server(actor, server).await
    }

    pub(in crate::hub) async fn delete_server(&self, actor: Actor, id: ServerId, slug: &Slug) -> Result<()> {
        let tenant = actor.tenant();
        let entry = self
            .context
            .entry(actor, "server.removed")
            .with("server", id.to_string())
            .with("slug", slug.as_str());
        let mut batch =
            Batch::new().change(StoreChange::Delete(DocumentKey::new(DocumentKind::Server, id))).audit(entry);
        batch.changes.extend(
            [
                DocumentKind::Tool,
                DocumentKind::Secret,
                DocumentKind::Contact,
                DocumentKind::Lease,
                DocumentKind::Trace,
                DocumentKind::Features,
            ]
            .map(|kind| delete_children(kind, id)),
        );
        batch.changes.extend(self.delete_approval_rules(tenant, id).await?);
        self.upstream
            .commit_server(tenant, batch.with_event(event_payloads::server(id, "removed")), (id, None), false)
            .await
    }

    /// Returns the changes that delete the approval rules for tools of a server. Their parents are agents.
    async fn delete_approval_rules(&self, tenant: TenantId, server: ServerId) -> Result<Vec<StoreChange>> {
        let all = self.context.load_all::<ApprovalRule>(tenant, DocumentKind::ApprovalRule, None).await?;
        let of_server = all.into_iter().filter(|(rule, _)| rule.server == server);
        let key = |rule: ApprovalRule| DocumentKey::new(DocumentKind::ApprovalRule, rule.id);
        Ok(of_server.map(|(rule, _)| StoreChange::Delete(key(rule))).collect())
    }

    /// Stores the new settings and transport of a server and closes its previous connections.
    pub(in crate::hub) async fn save_server(
        &self,
        actor: Actor,
        id: ServerId,
        before: ServerRecord,
        version: u64,
        settings: ServerSettings,
        transport: Transport,
    ) -> Result<()> {
        let (tenant, stored_transport) = (actor.tenant(), StoredTransport::from_transport(&transport));
        let mut entry = self.context.entry(actor, "server.updated").with("server", id.to_string());
        let mut batch = Batch::new();
        // An edit of the configuration file deletes no secret: each is bound to the URL or command and to the
        // authentication that it was stored for, and becomes usable again when those are restored.
        let has_other_authentication = settings.authentication != before.settings.authentication;
        if before.is_configured {
            if has_other_authentication {
                batch.changes =
                    self.upstream.bind_to_client(tenant, id, &before.settings.authentication).await?;
            }
        } else if has_other_authentication || stored_transport.url() != before.transport.url() {
            entry = entry.with("credentials", "dropped");
            batch
                .changes
                .extend([DocumentKind::Secret, DocumentKind::Trace].map(|kind| delete_children(kind, id)));
        }
        let record = ServerRecord {
            settings,
            transport: stored_transport,
            is_undeclared: false,
            updated: self.context.platform.now(),
            ..before
        };
        let batch = batch.change(upsert(record.document(id)?, version)).audit(entry);
        // Set the program before the commit, so that readers of the new version find its program.
        let launch = self.servers.set_program(tenant, id, transport.into_program());
        let (batch, server) =
            (batch.with_event(event_payloads::server(id, "changed")), (id, Some(version + 1)));
        if let Err(error) = self.upstream.commit_server(tenant, batch, server, record.settings.enabled).await
        {
            self.servers.set_program(tenant, id, launch);
            self.upstream.close_server(tenant, id); // it may have been started with the new program
            return Err(error);
        }
        Ok(())
    }

    /// Returns a server that the caller may see, by id or slug. For an agent, a server that it was not granted does not
    /// exist; the attempt is recorded in the audit.
    pub(in crate::hub) async fn visible_server(&self, actor: Actor, name: &str) -> Result<Server> {
        let Some(agent) = actor.agent() else {
            actor.require_user()?;
            return self.servers.find_server(actor.tenant(), name).await;
        };
        let agent = self.context.load::<Agent>(actor.tenant(), DocumentKind::Agent, agent).await?;
        let found = self.servers.find_server_id(actor.tenant(), name).await?;
        let is_selected =
            |id| agent.is_some_and(|(agent, _)| agent.enabled && agent.servers.contains_key(&id));
        if found.is_some_and(is_selected) {
            return self.servers.find_server(actor.tenant(), name).await;
        }
        if let Some(id) = found {
            let entry = self.context.entry(actor, "server.rejected").with("server", id.to_string());
            self.audit.audit_rejection_later(
                actor.tenant(),
                entry.with("reason", PolicyReason::NotSelected.code()),
            );
        }
        Err(Error::not_found("server", crate::text::shorten(name)))
    }

    async fn view_server(&self, tenant: TenantId, server: Server) -> Result<ServerView> {
        let contact = self.servers.contact(tenant, server.id).await?.0;
        let missing_secrets = self.upstream.missing_secrets(tenant, &server).await?;
        let (command, env, secrets) = match &server.transport {
            Transport::Stdio(ProgramSpec { command, args, env, secrets, .. }) => {
                let words = std::iter::once(command).chain(args).cloned().collect();
                (
                    Some(words).filter(|_| !server.is_undeclared),
                    env.keys().cloned().collect(),
                    secrets.iter().cloned().collect(),
                )
            }
            Transport::Http(_) | Transport::Sse(_) => (None, Vec::new(), Vec::new()),
        };
        let (remote, status) = (server.transport.remote().cloned(), self.upstream.status(tenant, &server));
        let settings = server.settings;
        Ok(ServerView {
            id: server.id,
            slug: server.slug.as_str().to_owned(),
            name: settings.name,
            description: settings.description,
            transport: server.transport.name(),
            url: remote.as_ref().map(|remote| remote.url.clone()),
            headers: remote.map(|remote| remote.headers).unwrap_or_default(),
            command,
            env,
            secrets,
            missing_secrets,
            is_configured: server.is_configured,
            is_undeclared: server.is_undeclared,
            authentication: settings.authentication,
            credentials: settings.credentials,
            timeout_ms: u64::try_from(settings.timeout.as_millis()).unwrap_or(u64::MAX),
            retry_attempts: settings.retry_attempts,
            calls_per_minute: settings.calls_per_minute,
            max_concurrent_calls: settings.max_concurrent_calls,
            revision: settings.revision.map(Revision::as_str),
            limits: settings.limits,
            enabled: settings.enabled,
            keep_history: settings.keep_history,
            status,
            // Hide an error of an earlier version: a new credential, for example, may have fixed it.
            error: if server.is_undeclared {
                Some(MSG_NOT_DECLARED.to_owned())
            } else {
                contact.error.filter(|_| [0, server.version].contains(&contact.server_version))
            },
            last_connected: contact.last_connected,
            last_synced: contact.last_synced,
            info: contact.info,
            tools: contact.tools,
            resources: contact.features.map(|counts| counts.resources),
            resource_templates: contact.features.map(|counts| counts.resource_templates),
            prompts: contact.features.map(|counts| counts.prompts),
            skipped: contact.skipped,
            version: server.version,
            created: server.created,
            updated: server.updated,
        })
    }
}

/// Rejects a server that can be changed only in the configuration file.
fn ensure_not_configured(server: &Server) -> Result<()> {
    if !server.is_configured {
        return Ok(());
    }
    ensure_declared(server)?;
    let text = format!(
        "`{0}` is in the configuration file: use `linchpin server …` on the machine of the hub, or edit that file",
        server.slug.as_str()
    );
    Err(Error::new(error::ErrorKind::Conflict, "server_is_configured", text))
}

/// Rejects a server that is not in the configuration file any more.
pub(in crate::hub) fn ensure_declared(server: &Server) -> Result<()> {
    if !server.is_undeclared {
        return Ok(());
    }
    let slug = server.slug.as_str();
    let text = format!(
        "`{slug}` is not in the configuration file any more: add it there again, or remove it with `linchpin server remove {slug}`"
    );
    Err(Error::new(error::ErrorKind::Conflict, NOT_IN_FILE, text))
}

/// Derives a slug that no other server uses from a server name.
fn free_slug(name: &str, used: &[Slug]) -> Slug {
    let preferred =
        Slug::from_name(name).or_else(|| Slug::from_name("server")).unwrap_or_else(|| unreachable!());
    let numbered = (2..).map(|number| preferred.numbered(number));
    std::iter::once(preferred.clone()).chain(numbered).find(|slug| !used.contains(slug)).unwrap_or(preferred)
}

/// Returns the origin (scheme, host and port) of a server, to which credentials are bound.
pub(in crate::hub) fn origin(transport: &Transport) -> Option<String> {
    StoredTransport::from_transport(transport).origin()
}

impl Server {
    /// Returns the settings and transport of this server as JSON, in the form that the API accepts.
    fn to_form(&self) -> Map<String, Value> {
        let mut form = match serde_json::to_value(&self.settings) {
            Ok(Value::Object(form)) => form,
            _ => Map::new(),
        };
        form.insert("transport".into(), self.transport.name().into());
        if let Some(RemoteEndpoint { url, headers }) = self.transport.remote() {
            form.insert("url".into(), url.as_str().into());
            form.insert("headers".into(), json!(headers));
        }
        form
    }
}
