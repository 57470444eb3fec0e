//! Connections to upstream servers: test, connect, disconnect, and the record of the last contact.

use std::sync::Arc;

use jiff::Timestamp;
use linchpin::auth::Secret;
use linchpin::client::Listing;
use linchpin::{CallError, Client, ClientError};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::server_records::ServerContact;
use super::servers::{ServerView, ensure_declared};
use super::tool_listing::ToolListing;
use super::{Hub, document, upsert};
use crate::actor::{Actor, Subject};
use crate::connection::{AuthMaterial, PooledConnection};
use crate::error::{self, Error, Result};
use crate::id::{ServerId, TenantId};
use crate::secrets::redact::Redactor;
use crate::server::{Authentication, CredentialMode, Server, ServerDraft};
use crate::store::{Batch, DocumentKey, DocumentKind, StoreChange};
use crate::tool::SkippedTool;
use crate::tool::names::Slug;

/// Result of a connection test.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ProbeReport {
    /// Name that the server reports.
    pub name: Option<String>,
    /// Version that the server reports.
    pub version: Option<String>,
    /// Negotiated protocol revision.
    pub revision: String,
    /// Instructions of the server for models.
    pub instructions: Option<String>,
    /// Names of its tools.
    pub tools: Vec<String>,
    /// Tools that the hub cannot use, with the reasons. At most 100.
    pub left_out: Vec<SkippedTool>,
    /// Duration in milliseconds.
    pub took_ms: u64,
}

impl Hub {
    /// Tests a server configuration without saving it. The form may contain a `secret` beside the server fields.
    pub async fn test_draft(&self, actor: Actor, mut form: Value) -> Result<ProbeReport> {
        actor.require_user()?;
        let secret = match form.as_object_mut().and_then(|form| form.remove("secret")) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(Secret::new(text)),
            Some(_) => return Err(Error::invalid("secret", "must be a string")),
        };
        secret.as_ref().map_or(Ok(()), super::credentials::check_secret)?;
        let ServerDraft { slug, settings, transport } = ServerDraft::read(form)?;
        let now = self.world.now();
        let slug = slug.or_else(|| Slug::from_name(&settings.name));
        let slug = slug.map_or_else(|| Slug::new("server"), Ok)?;
        let id = ServerId::new(&*self.world);
        let server = Server {
            id,
            slug,
            settings,
            transport,
            is_configured: false,
            is_undeclared: false,
            version: 0,
            created: now,
            updated: now,
        };
        self.probe(actor, &server, secret.map(AuthMaterial::Secret).as_ref(), now).await
    }

    /// Tests a server with a separate connection.
    pub async fn test_server(&self, actor: Actor, name: &str) -> Result<ProbeReport> {
        actor.require_user()?;
        let server = self.find_server(actor.tenant(), name).await?;
        ensure_declared(&server)?;
        // With credentials per agent, test as the first agent that has one.
        let agents = match server.settings.credentials {
            CredentialMode::Shared => Vec::new(),
            CredentialMode::PerAgent => self.agents_with_credentials(actor.tenant(), &server).await?.0,
        };
        let subject = agents.first().map_or(actor.subject(), |agent| Subject::Agent(*agent));
        let actor = Actor::new(actor.tenant(), subject);
        let credential = self.credential_of(actor, &server).await?;
        let (server, began) = (strip_authentication(actor, server, credential.is_some()), self.world.now());
        let server = self.resolve_env_secrets(actor.tenant(), server).await?;
        let tried = self.probe(actor, &server, credential.as_ref().map(|known| &known.proof), began).await;
        self.record_contact(actor.tenant(), &server, tried.as_ref().err()).await?;
        tried
    }

    async fn probe(
        &self,
        actor: Actor,
        server: &Server,
        proof: Option<&AuthMaterial>,
        began: Timestamp,
    ) -> Result<ProbeReport> {
        let client = self.connections.connect_unpooled(actor, server, proof).await?;
        let hidden = Redactor::for_server(server, proof, Some(self.keys.hub_secrets()));
        let tools = list_tools(&client).await;
        let (said, revision) = (client.server().cloned(), client.revision().as_str().to_owned());
        let instructions = client.instructions().map(|text| hidden.redact_text(text.to_owned()));
        client.close().await;
        let tools =
            tools.map_err(|error| request_error(server, &hidden, "its tools cannot be listed", &error))?;
        let took = self.world.now().duration_since(began).as_millis();
        let listed = ToolListing::from_listing(tools, &hidden);
        Ok(ProbeReport {
            name: said.as_ref().map(|said| hidden.redact_text(said.name.clone())),
            version: said.map(|said| hidden.redact_text(said.version)),
            revision,
            instructions,
            left_out: listed.skipped(),
            tools: listed.names(),
            took_ms: u64::try_from(took).unwrap_or_default(),
        })
    }

    /// Connects to a server and syncs its tools.
    pub async fn connect_server(&self, actor: Actor, name: &str) -> Result<ServerView> {
        actor.require_user()?;
        let server = self.find_server(actor.tenant(), name).await?;
        let is_shared = server.settings.credentials == CredentialMode::Shared || !server.settings.enabled;
        // With credentials per agent, a user has none: the sync connects as the agents.
        if is_shared && let Err(error) = self.acquire_connection(actor, &server, true).await {
            // No connection to a disabled server was attempted, so there is no contact to record.
            if server.settings.enabled {
                self.record_contact(actor.tenant(), &server, Some(&error)).await?;
            }
            return Err(error);
        }
        self.sync_server(actor, name, None).await?;
        self.server(actor, name).await
    }

    /// Closes all connections to a server. The next call opens a new one.
    pub async fn disconnect_server(&self, actor: Actor, name: &str) -> Result<ServerView> {
        actor.require_user()?;
        let server = self.find_server(actor.tenant(), name).await?;
        self.connections.close_server(actor.tenant(), server.id);
        let entry = self.entry(actor, "server.disconnected").with("server", server.id.to_string());
        self.store.commit(actor.tenant(), Batch::new().audit(entry)).await?;
        self.server(actor, name).await
    }

    /// Returns the connection of a subject to a server for a request. Schedules a sync if the connection is new.
    pub(super) async fn connection_for(&self, actor: Actor, server: &Server) -> Result<PooledConnection> {
        let reached = self.acquire_connection(actor, server, false).await?;
        if reached.is_new {
            self.schedule_sync(actor.tenant(), server.id);
        }
        Ok(reached)
    }

    /// Returns the connection of a subject to an enabled server. `insist` bypasses the backoff after a failure.
    pub(super) async fn acquire_connection(
        &self,
        actor: Actor,
        server: &Server,
        insist: bool,
    ) -> Result<PooledConnection> {
        ensure_declared(server)?;
        if !server.settings.enabled {
            let text = format!("`{}` is disabled: enable it first", server.slug.as_str());
            return Err(Error::new(error::ErrorKind::Conflict, "server_disabled", text));
        }
        let credential = self.credential_of(actor, server).await?;
        let server = strip_authentication(actor, server.clone(), credential.is_some());
        let server = self.resolve_env_secrets(actor.tenant(), server).await?;
        self.connections.acquire(actor, &server, credential.as_ref(), insist).await
    }

    /// Records a failed request in the status of the server. If the server was not reached, schedules a sync, which
    /// reconnects.
    pub(super) async fn failed_request(&self, reached: &PooledConnection, error: &ClientError) {
        if self.connections.report_failure(reached, error).await {
            let (tenant, server) = reached.upstream();
            self.schedule_sync(tenant, server);
        }
    }

    /// Starts health checks of idle connections.
    pub fn check_connections(self: &Arc<Self>) {
        for reached in self.connections.due_for_check() {
            let hub = self.clone();
            self.background_tasks.spawn(async move {
                if hub.connections.ping_fails(&reached).await {
                    let (tenant, server) = reached.upstream();
                    hub.schedule_sync(tenant, server);
                }
            });
        }
    }

    /// Stores the error of a server whose address the egress policy denies, so that it is visible before the first
    /// connection.
    pub(super) async fn store_egress_error(&self, tenant: TenantId, id: ServerId) -> Result<()> {
        let server = self.find_server(tenant, &id.to_string()).await?;
        match self.connections.egress_error(&server) {
            Some(error) => self.record_contact(tenant, &server, Some(&error)).await,
            None => Ok(()),
        }
    }

    /// Records the contact with a server: the current time on success, or the error.
    pub(super) async fn record_contact(
        &self,
        tenant: TenantId,
        server: &Server,
        error: Option<&Error>,
    ) -> Result<()> {
        let (id, of) = (server.id, server.version);
        let (before, version) = self.contact(tenant, id).await?;
        if before.of > of {
            return Ok(()); // the server was changed in the meantime
        }
        let contact = match error {
            None => ServerContact { last_connected: Some(self.world.now()), error: None, of, ..before },
            Some(error) => ServerContact { error: Some(error.message().to_owned()), of, ..before },
        };
        let document = document(DocumentKind::Contact, id, &contact)?.with_parent(id);
        let is_there = StoreChange::RequireExists(DocumentKey::new(DocumentKind::Server, id));
        match self.store.commit(tenant, Batch::new().change(is_there).change(upsert(document, version))).await
        {
            // Another contact was recorded concurrently, or the server was removed.
            Err(error) if matches!(error.kind(), error::ErrorKind::Conflict | error::ErrorKind::NotFound) => {
                Ok(())
            }
            done => done,
        }
    }
}

/// With credentials per agent, other subjects connect without authentication: some servers list their tools without it.
fn strip_authentication(actor: Actor, mut server: Server, has_one: bool) -> Server {
    let is_agent = matches!(actor.subject(), Subject::Agent(_));
    if !has_one && !is_agent && server.settings.credentials == CredentialMode::PerAgent {
        server.settings.authentication = Authentication::None;
    }
    server
}

/// Lists all tools of a server. Empty if the server does not declare the capability.
pub(super) async fn list_tools(client: &Client) -> Result<Listing<linchpin::model::Tool>, ClientError> {
    if client.capabilities().tools.is_none() {
        return Ok(Listing::default());
    }
    client.tools().fresh().listing().await
}

/// Builds the error of a failed request, with credentials redacted.
pub(super) fn request_error(server: &Server, hidden: &Redactor, what: &str, error: &ClientError) -> Error {
    let code = match error {
        ClientError::Call(CallError::Rejected(_)) => "server_refused",
        ClientError::Malformed { .. } | ClientError::ListTooLong { .. } => "server_lies",
        _ => "server_unavailable",
    };
    let text = format!("`{}`: {what}: {error}", server.slug.as_str());
    Error::new(
        error::ErrorKind::Unavailable,
        code,
        crate::tool::pin::escape_invisible(&hidden.redact_text(text)),
    )
}
