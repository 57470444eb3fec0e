//! Connections to upstream servers: test, connect, disconnect, and the record of the last contact.

use std::sync::Arc;

use jiff::Timestamp;
use linchpin::auth::Secret;
use linchpin::client::Listing;
use linchpin::{CallError, Client, ClientError};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::server_records::Contact;
use super::servers::{ServerView, left_file};
use super::tool_listing::Listed;
use super::{Hub, document, put};
use crate::actor::{Scope, Subject};
use crate::connection::{Proof, Reached};
use crate::error::{self, Error, Result};
use crate::id::{ServerId, TenantId};
use crate::secrets::redact::Hidden;
use crate::server::{Authentication, CredentialMode, Draft, Server};
use crate::store::{Batch, Change, Key, Kind};
use crate::tool::LeftOut;
use crate::tool::names::Slug;

/// Result of a connection test.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Tried {
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
    pub left_out: Vec<LeftOut>,
    /// Duration in milliseconds.
    pub took_ms: u64,
}

impl Hub {
    /// Tests a server configuration without saving it. The form may contain a `secret` beside the server fields.
    pub async fn try_draft(&self, scope: Scope, mut form: Value) -> Result<Tried> {
        scope.person()?;
        let secret = match form.as_object_mut().and_then(|form| form.remove("secret")) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(Secret::new(text)),
            Some(_) => return Err(Error::invalid("secret", "must be a string")),
        };
        secret.as_ref().map_or(Ok(()), super::credentials::check)?;
        let Draft { slug, settings, transport } = Draft::read(form)?;
        let now = self.world.now();
        let slug = slug.or_else(|| Slug::from_name(&settings.name));
        let slug = slug.map_or_else(|| Slug::new("server"), Ok)?;
        let id = ServerId::new(&*self.world);
        let server = Server {
            id,
            slug,
            settings,
            transport,
            is_from_file: false,
            has_left_file: false,
            version: 0,
            created: now,
            updated: now,
        };
        self.try_out(scope, &server, secret.map(Proof::Secret).as_ref(), now).await
    }

    /// Tests a server with a separate connection.
    pub async fn test_server(&self, scope: Scope, name: &str) -> Result<Tried> {
        scope.person()?;
        let server = self.find_server(scope.tenant(), name).await?;
        left_file(&server)?;
        // With credentials per agent, test as the first agent that has one.
        let agents = match server.settings.credentials {
            CredentialMode::Shared => Vec::new(),
            CredentialMode::PerAgent => self.agents_with_credentials(scope.tenant(), &server).await?.0,
        };
        let subject = agents.first().map_or(scope.subject(), |agent| Subject::Agent(*agent));
        let scope = Scope::new(scope.tenant(), subject);
        let credential = self.credential_of(scope, &server).await?;
        let (server, began) = (without_credentials(scope, server, credential.is_some()), self.world.now());
        let server = self.with_secrets(scope.tenant(), server).await?;
        let tried = self.try_out(scope, &server, credential.as_ref().map(|known| &known.proof), began).await;
        self.contacted(scope.tenant(), &server, tried.as_ref().err()).await?;
        tried
    }

    async fn try_out(
        &self,
        scope: Scope,
        server: &Server,
        proof: Option<&Proof>,
        began: Timestamp,
    ) -> Result<Tried> {
        let client = self.connections.try_out(scope, server, proof).await?;
        let hidden = Hidden::of(server, proof, Some(self.keys.own_secrets()));
        let tools = list_tools(&client).await;
        let (said, revision) = (client.server().cloned(), client.revision().as_str().to_owned());
        let instructions = client.instructions().map(|text| hidden.hide_in(text.to_owned()));
        client.close().await;
        let tools = tools.map_err(|error| failed(server, &hidden, "its tools cannot be listed", &error))?;
        let took = self.world.now().duration_since(began).as_millis();
        let listed = Listed::of(tools, &hidden);
        Ok(Tried {
            name: said.as_ref().map(|said| hidden.hide_in(said.name.clone())),
            version: said.map(|said| hidden.hide_in(said.version)),
            revision,
            instructions,
            left_out: listed.left_out(),
            tools: listed.names(),
            took_ms: u64::try_from(took).unwrap_or_default(),
        })
    }

    /// Connects to a server and syncs its tools.
    pub async fn connect_server(&self, scope: Scope, name: &str) -> Result<ServerView> {
        scope.person()?;
        let server = self.find_server(scope.tenant(), name).await?;
        let is_shared = server.settings.credentials == CredentialMode::Shared || !server.settings.enabled;
        // With credentials per agent, a user has none: the sync connects as the agents.
        if is_shared && let Err(error) = self.reach_server(scope, &server, true).await {
            // No connection to a disabled server was attempted, so there is no contact to record.
            if server.settings.enabled {
                self.contacted(scope.tenant(), &server, Some(&error)).await?;
            }
            return Err(error);
        }
        self.sync_server(scope, name, None).await?;
        self.server(scope, name).await
    }

    /// Closes all connections to a server. The next call opens a new one.
    pub async fn disconnect_server(&self, scope: Scope, name: &str) -> Result<ServerView> {
        scope.person()?;
        let server = self.find_server(scope.tenant(), name).await?;
        self.connections.end(scope.tenant(), server.id);
        let entry = self.entry(scope, "server.disconnected").with("server", server.id.to_string());
        self.store.commit(scope.tenant(), Batch::new().audit(entry)).await?;
        self.server(scope, name).await
    }

    /// Returns the connection of a subject to a server for a request. Schedules a sync if the connection is new.
    pub(super) async fn client(&self, scope: Scope, server: &Server) -> Result<Reached> {
        let reached = self.reach_server(scope, server, false).await?;
        if reached.is_new {
            self.look_soon(scope.tenant(), server.id);
        }
        Ok(reached)
    }

    /// Returns the connection of a subject to an enabled server. `insist` bypasses the backoff after a failure.
    pub(super) async fn reach_server(&self, scope: Scope, server: &Server, insist: bool) -> Result<Reached> {
        left_file(server)?;
        if !server.settings.enabled {
            let text = format!("`{}` is disabled: enable it first", server.slug.as_str());
            return Err(Error::new(error::Kind::Conflict, "server_disabled", text));
        }
        let credential = self.credential_of(scope, server).await?;
        let server = without_credentials(scope, server.clone(), credential.is_some());
        let server = self.with_secrets(scope.tenant(), server).await?;
        self.connections.get(scope, &server, credential.as_ref(), insist).await
    }

    /// Records a failed request in the status of the server. If the server was not reached, schedules a sync, which
    /// reconnects.
    pub(super) async fn failed_request(&self, reached: &Reached, error: &ClientError) {
        if self.connections.failed(reached, error).await {
            let (tenant, server) = reached.upstream();
            self.look_soon(tenant, server);
        }
    }

    /// Starts health checks of idle connections.
    pub fn check_connections(self: &Arc<Self>) {
        for reached in self.connections.quiet() {
            let hub = self.clone();
            self.looks.start(async move {
                if hub.connections.is_gone(&reached).await {
                    let (tenant, server) = reached.upstream();
                    hub.look_soon(tenant, server);
                }
            });
        }
    }

    /// Stores the error of a server whose address the egress policy denies, so that it is visible before the first
    /// connection.
    pub(super) async fn store_refusal(&self, tenant: TenantId, id: ServerId) -> Result<()> {
        let server = self.find_server(tenant, &id.to_string()).await?;
        match self.connections.refused(&server) {
            Some(error) => self.contacted(tenant, &server, Some(&error)).await,
            None => Ok(()),
        }
    }

    /// Records the contact with a server: the current time on success, or the error.
    pub(super) async fn contacted(
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
            None => Contact { last_connected: Some(self.world.now()), error: None, of, ..before },
            Some(error) => Contact { error: Some(error.message().to_owned()), of, ..before },
        };
        let document = document(Kind::Contact, id, &contact)?.of(id);
        let is_there = Change::Need(Key::new(Kind::Server, id));
        match self.store.commit(tenant, Batch::new().change(is_there).change(put(document, version))).await {
            // Another contact was recorded concurrently, or the server was removed.
            Err(error) if matches!(error.kind(), error::Kind::Conflict | error::Kind::NotFound) => Ok(()),
            done => done,
        }
    }
}

/// With credentials per agent, other subjects connect without authentication: some servers list their tools without it.
fn without_credentials(scope: Scope, mut server: Server, has_one: bool) -> Server {
    let is_agent = matches!(scope.subject(), Subject::Agent(_));
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
pub(super) fn failed(server: &Server, hidden: &Hidden, what: &str, error: &ClientError) -> Error {
    let code = match error {
        ClientError::Call(CallError::Rejected(_)) => "server_refused",
        ClientError::Malformed { .. } | ClientError::EndlessList { .. } => "server_lies",
        _ => "server_unavailable",
    };
    let text = format!("`{}`: {what}: {error}", server.slug.as_str());
    Error::new(error::Kind::Unavailable, code, crate::tool::pin::visible(&hidden.hide_in(text)))
}
