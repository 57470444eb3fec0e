//! Connections to upstream servers: tests, connections of callers, and the tool list as one caller sees it.

use std::sync::Arc;

use jiff::Timestamp;
use linchpin::auth::Secret;
use linchpin::client::Listing;
use linchpin::{CallError, Client, ClientError, ErrorObject};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::actor::{Actor, Subject};
use crate::connection::{AuthMaterial, PooledConnection, backoff, is_retryable};
use crate::error::{self, Error, Result};
use crate::hub::registry::servers::ensure_declared;
use crate::hub::registry::tools::listing::ToolListing;
use crate::hub::upstream::Upstream;
use crate::hub::upstream::features::{FeatureDefinitions, OfferedFeatures};
use crate::hub::upstream::server_info::{ServerInfo, ServerReport};
use crate::id::{ServerId, TenantId};
use crate::secrets::redact::Redactor;
use crate::server::{Authentication, CredentialMode, Server, ServerDraft};
use crate::tool::SkippedTool;
use crate::tool::names::Slug;

/// Maximum number of tools of a server.
const MAX_TOOLS: usize = 10_000;

/// Result of a test connection to a server: its identity, and the names of what it offers.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ProbeReport {
    /// What the server reports of itself.
    #[serde(flatten)]
    pub info: ServerInfo,
    /// Names of the tools of the server.
    pub tools: Vec<String>,
    /// Names of the resources, resource templates and prompts of the server.
    #[serde(flatten)]
    pub features: OfferedFeatures,
    /// Tools that the hub would skip, with the reasons. At most 100.
    pub skipped: Vec<SkippedTool>,
    /// Duration of the probe in milliseconds.
    pub duration_ms: u64,
}

impl Upstream {
    /// Tests the configuration of a new server by connecting to it, without saving it. The form may contain a `secret`
    /// beside the server fields.
    pub async fn test_draft(&self, actor: Actor, mut form: Value) -> Result<ProbeReport> {
        actor.require_user()?;
        let secret = match form.as_object_mut().and_then(|form| form.remove("secret")) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(Secret::new(text)),
            Some(_) => return Err(Error::invalid("secret", "must be a string")),
        };
        secret.as_ref().map_or(Ok(()), super::credentials::check_secret)?;
        let ServerDraft { slug, settings, transport } = ServerDraft::read(form)?;
        let now = self.context.platform.now();
        let slug = slug.or_else(|| Slug::from_name(&settings.name));
        let slug = slug.map_or_else(|| Slug::new("server"), Ok)?;
        let id = ServerId::new(&*self.context.platform);
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

    /// Tests a server by opening a separate connection and listing its tools.
    pub async fn test_server(&self, actor: Actor, name: &str) -> Result<ProbeReport> {
        actor.require_user()?;
        let server = self.servers.find_server(actor.tenant(), name).await?;
        ensure_declared(&server)?;
        // With credentials per agent, test as the first agent that has one.
        let agents = match server.settings.credentials {
            CredentialMode::Shared => Vec::new(),
            CredentialMode::PerAgent => self.agents_with_credentials(actor.tenant(), &server).await?.0,
        };
        let subject = agents.first().map_or(actor.subject(), |agent| Subject::Agent(*agent));
        let actor = Actor::new(actor.tenant(), subject);
        let credential = self.load_credential(actor, &server).await?;
        let (server, started) =
            (strip_authentication(actor, server, credential.is_some()), self.context.platform.now());
        let server = self.resolve_env_secrets(actor.tenant(), server).await?;
        let report = self
            .probe(actor, &server, credential.as_ref().map(|credential| &credential.proof), started)
            .await;
        self.servers.record_contact(actor.tenant(), &server, report.as_ref().err()).await?;
        report
    }

    async fn probe(
        &self,
        actor: Actor,
        server: &Server,
        proof: Option<&AuthMaterial>,
        started: Timestamp,
    ) -> Result<ProbeReport> {
        let client = self.connections.connect_unpooled(actor, server, proof).await?;
        let redactor = Redactor::for_server(server, proof, Some(self.context.keys.hub_secrets()));
        let (tools, info) = (list_tools(&client).await, ServerInfo::of(&client, &redactor));
        let features = FeatureDefinitions::list(&client, &redactor).await.map(|listed| listed.names());
        client.close().await;
        let tools = tools.map_err(|error| {
            request_error(server, &redactor, "the tools of the server cannot be listed", &error)
        })?;
        let features = features.map_err(|error| {
            request_error(
                server,
                &redactor,
                "the resources and prompts of the server cannot be listed",
                &error,
            )
        })?;
        let duration_ms = self.context.platform.now().duration_since(started).as_millis();
        let listed = ToolListing::from_listing(tools, &redactor);
        Ok(ProbeReport {
            info,
            features,
            skipped: listed.skipped(),
            tools: listed.names(),
            duration_ms: u64::try_from(duration_ms).unwrap_or_default(),
        })
    }

    /// Returns the connection of a user or agent to a server, to send a request. Schedules a sync if the connection is
    /// new.
    pub(in crate::hub) async fn connection_for(
        &self,
        actor: Actor,
        server: &Server,
    ) -> Result<PooledConnection> {
        let connection = self.acquire_connection(actor, server, false).await?;
        if connection.is_new {
            self.schedule_sync(actor.tenant(), server.id);
        }
        Ok(connection)
    }

    /// Returns the connection of a user or agent to an enabled server; fails if the server is disabled.
    /// `bypass_backoff` skips the backoff after a failure.
    pub(in crate::hub) async fn acquire_connection(
        &self,
        actor: Actor,
        server: &Server,
        bypass_backoff: bool,
    ) -> Result<PooledConnection> {
        ensure_declared(server)?;
        if !server.settings.enabled {
            let text = format!("the server `{}` is disabled: enable it first", server.slug.as_str());
            return Err(Error::new(error::ErrorKind::Conflict, "server_disabled", text));
        }
        let access = self.upstream_access(actor, server).await?;
        self.connections.acquire(actor, &access.server, access.credential.as_ref(), bypass_backoff).await
    }

    /// Records a failed request in the status of the server. If the server was not reached, schedules a sync, which
    /// reconnects.
    pub(in crate::hub) async fn failed_request(&self, connection: &PooledConnection, error: &ClientError) {
        if self.connections.report_failure(connection, error).await {
            let (tenant, server) = connection.upstream();
            self.schedule_sync(tenant, server);
        }
    }

    /// Lists the tools of a server as one subject, with what else the server reports to it.
    pub(in crate::hub) async fn list_as(
        &self,
        actor: Actor,
        server: &Server,
        bypass_backoff: bool,
    ) -> Result<(Listing<linchpin::model::Tool>, ServerReport, Arc<Redactor>)> {
        let mut attempts = 0;
        loop {
            // The hub itself may use any open connection.
            let live = self.connections.find_open(actor.tenant(), server);
            let client = match live.filter(|_| actor.subject() == Subject::Hub) {
                Some(live) => live,
                // A user's request connects at once; the hub's own waits for the backoff after a failure.
                None => self.acquire_connection(actor, server, bypass_backoff).await?,
            };
            match list_tools(&client).await {
                Ok(tools) if tools.items.len() > MAX_TOOLS => {
                    let text = format!(
                        "`{}` lists {} tools; the limit is {MAX_TOOLS}",
                        server.slug.as_str(),
                        tools.items.len()
                    );
                    return Err(Error::new(error::ErrorKind::Unavailable, "too_many_tools", text));
                }
                Ok(tools) => {
                    let redactor = client.redactor.clone();
                    // A failure to list resources and prompts must not affect the tools.
                    let log = |error: &ClientError| {
                        tracing::debug!(server.id = %server.id, %error, "failed to list the resources or prompts of a server");
                    };
                    let features = FeatureDefinitions::list(&client, &redactor).await.inspect_err(log).ok();
                    let own = actor.agent().zip(features.clone()).into_iter().collect();
                    let info = ServerInfo::of(&client, &redactor);
                    let report = ServerReport { info, features, by_agent: own };
                    return Ok((tools, report, redactor));
                }
                Err(error) if attempts < server.settings.retry_attempts && is_retryable(&error) => {
                    tokio::time::sleep(backoff(attempts)).await;
                    attempts += 1;
                }
                Err(error) => {
                    self.connections.report_failure(&client, &error).await;
                    return Err(request_error(
                        server,
                        &client.redactor,
                        "the tools of the server cannot be listed",
                        &error,
                    ));
                }
            }
        }
    }

    /// Stores the error of a server whose address the egress policy denies, so that it is visible before the first
    /// connection.
    pub(in crate::hub) async fn store_egress_error(&self, tenant: TenantId, id: ServerId) -> Result<()> {
        let server = self.servers.find_server(tenant, &id.to_string()).await?;
        match self.connections.egress_error(&server) {
            Some(error) => self.servers.record_contact(tenant, &server, Some(&error)).await,
            None => Ok(()),
        }
    }
}

/// Removes the authentication settings for a subject that is not an agent and has no credential, if credentials are per
/// agent: some servers list their tools without authentication.
pub(in crate::hub) fn strip_authentication(actor: Actor, mut server: Server, has_credential: bool) -> Server {
    let is_agent = matches!(actor.subject(), Subject::Agent(_));
    if !has_credential && !is_agent && server.settings.credentials == CredentialMode::PerAgent {
        server.settings.authentication = Authentication::None;
    }
    server
}

/// Lists all tools of a server. Empty if the server does not declare the capability.
pub(in crate::hub) async fn list_tools(
    client: &Client,
) -> Result<Listing<linchpin::model::Tool>, ClientError> {
    if client.capabilities().tools.is_none() {
        return Ok(Listing::default());
    }
    client.tools().fresh().listing().await
}

/// Builds the error of a failed request, with credentials redacted.
pub(in crate::hub) fn request_error(
    server: &Server,
    redactor: &Redactor,
    failure: &str,
    error: &ClientError,
) -> Error {
    let code = match error {
        ClientError::Call(CallError::Rejected(_)) => "server_rejected_request",
        ClientError::Malformed { .. } | ClientError::ListTooLong { .. } => "server_protocol_error",
        _ => "server_unavailable",
    };
    let text = format!("`{}`: {failure}: {error}", server.slug.as_str());
    Error::new(
        error::ErrorKind::Unavailable,
        code,
        crate::text::escape_invisible(&redactor.redact_text(text)),
    )
    .with_rejection(rejection(error, redactor))
}

/// Returns the JSON-RPC error of a server, with secrets redacted.
pub(in crate::hub) fn rejection(error: &ClientError, redactor: &Redactor) -> Option<ErrorObject> {
    let ClientError::Call(CallError::Rejected(ErrorObject { code, message, data })) = error else {
        return None;
    };
    let data = data.clone().map(|data| redactor.redact(data));
    Some(ErrorObject { code: *code, message: redactor.redact_text(message.clone()), data })
}
