//! Server credentials: write-only, decrypted only for requests to the origin that they are bound to.

use jiff::Timestamp;
use linchpin::auth::Secret;
use schemars::JsonSchema;
use serde::Serialize;

use crate::actor::{Actor, Subject};
use crate::agent::Agent;
use crate::connection::{AuthMaterial, ConnectionCredential};
use crate::digest::Digest;
use crate::error::{self, Error, Result};
use crate::hub::registry::records::ServerRecord;
use crate::hub::registry::servers::origin;
use crate::hub::upstream::Upstream;
use crate::hub::{event_payloads, upsert};
use crate::id::{AgentId, SecretId, ServerId, TenantId};
use crate::server::{Authentication, CredentialMode, Server};
use crate::store::{Batch, DocumentKey, DocumentKind, StoreChange};
use crate::vault::SecretBinding;
use crate::vault::key_ring::SealedSecret;

const MAX_SECRET_LEN: usize = 16_384;
/// Kind of an OAuth grant in the vault.
const KIND_GRANT: &str = "oauth";
/// Kind of an OAuth client secret in the vault.
const KIND_CLIENT_SECRET: &str = "oauth-client";
/// Text between origin and client in the binding of an OAuth secret.
const CLIENT_SEPARATOR: &str = " as ";

/// Stored credential of a server as shown to users, without the secret.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CredentialView {
    /// Kind: `bearer`, `api-key`, `basic`, or `oauth-client` (client secret at an authorization server).
    pub kind: String,
    /// Origin that the credential may be sent to.
    pub bound_to: String,
    /// Agent that uses the credential. Absent for a shared one.
    #[schemars(with = "Option<String>")]
    pub agent: Option<AgentId>,
    /// Current name of that agent.
    pub agent_name: Option<String>,
    /// Version of the credential, incremented by each change.
    pub version: u64,
    /// Time at which the hub created this response.
    #[schemars(with = "String")]
    pub as_of: Timestamp,
}

impl Upstream {
    /// Returns the metadata of a server credential, shared or of an agent.
    pub async fn credential(
        &self,
        actor: Actor,
        server: &str,
        agent: Option<AgentId>,
    ) -> Result<CredentialView> {
        actor.require_user()?;
        let server = self.servers.find_server(actor.tenant(), server).await?;
        let id = secret_id(server.id, agent);
        let missing = || {
            let (owner, option) =
                if agent.is_some() { (" of this agent", " --agent NAME") } else { ("", "") };
            let text = format!(
                "no credential{owner} is stored for this server: set it with `linchpin server credential set {}{option}`",
                server.slug.as_str()
            );
            Error::new(error::ErrorKind::NotFound, "not_found", text)
        };
        let (record, version): (SealedSecret, _) =
            self.context.load(actor.tenant(), DocumentKind::Secret, id).await?.ok_or_else(missing)?;
        let SealedSecret { kind, bound_to, .. } = record;
        self.view_credential(actor, (kind, bound_to), agent, version).await
    }

    async fn view_credential(
        &self,
        actor: Actor,
        (kind, bound_to): (String, String),
        agent: Option<AgentId>,
        version: u64,
    ) -> Result<CredentialView> {
        let agent_name = match agent {
            Some(id) => self.context.load::<Agent>(actor.tenant(), DocumentKind::Agent, id).await?,
            None => None,
        };
        let (agent_name, as_of) = (agent_name.map(|(agent, _)| agent.name), self.context.platform.now());
        Ok(CredentialView { kind, bound_to, agent, agent_name, version, as_of })
    }

    /// Stores the credential of a server, shared or of an agent, in place of the previous one. It is bound to the
    /// current origin of the server.
    pub async fn set_credential(
        &self,
        actor: Actor,
        server: &str,
        agent: Option<AgentId>,
        secret: &Secret,
    ) -> Result<CredentialView> {
        actor.require_user()?;
        let tenant = actor.tenant();
        let server = self.servers.find_server(tenant, server).await?;
        let label = credential_binding(&server, agent)?;
        check_secret(secret)?;
        if let Some(agent) = agent {
            self.context.require::<Agent>(tenant, DocumentKind::Agent, agent).await?;
        }
        let before: Option<(SealedSecret, u64)> =
            self.context.load(tenant, DocumentKind::Secret, label.id).await?;
        let version = before.map_or(0, |(_, version)| version);
        let change =
            self.context.keys.seal_secret(tenant, &label, &server.id.to_string(), secret, version).await?;
        let mut entry = self.context.entry(actor, "credential.set").with("server", server.id.to_string());
        entry = entry.with("bound_to", label.bound_to.as_str());
        if let Some(agent) = agent {
            entry = entry.with("agent", agent.to_string());
        }
        let mut batch = Batch::new().audit(entry);
        batch.changes.extend(
            agent.map(|agent| StoreChange::RequireExists(DocumentKey::new(DocumentKind::Agent, agent))),
        );
        self.commit_with_new_version(tenant, server, batch.change(change)).await?;
        self.view_credential(actor, (label.kind, label.bound_to), agent, version + 1).await
    }

    /// Deletes the credential of a server: the shared one, or that of an agent.
    pub async fn delete_credential(&self, actor: Actor, server: &str, agent: Option<AgentId>) -> Result<()> {
        actor.require_user()?;
        let (tenant, server) = (actor.tenant(), self.servers.find_server(actor.tenant(), server).await?);
        let key = DocumentKey::new(DocumentKind::Secret, secret_id(server.id, agent));
        let entry = self.context.entry(actor, "credential.deleted").with("server", server.id.to_string());
        self.commit_with_new_version(
            tenant,
            server,
            Batch::new().change(StoreChange::Delete(key)).audit(entry),
        )
        .await
    }

    /// Commits a change of the credentials of a server. The version of the server changes as well, so that every hub
    /// closes the connections that use the previous credential.
    async fn commit_with_new_version(&self, tenant: TenantId, server: Server, batch: Batch) -> Result<()> {
        let (id, version, is_enabled) = (server.id, server.version, server.settings.enabled);
        let record = upsert(ServerRecord::from_server(server).document(id)?, version);
        let batch = batch.change(record).with_event(event_payloads::server(id, "credential"));
        self.commit_server(tenant, batch, (id, Some(version + 1)), is_enabled).await
    }

    /// Loads the credential with which a user or agent connects to a server.
    pub(in crate::hub) async fn load_credential(
        &self,
        actor: Actor,
        server: &Server,
    ) -> Result<Option<ConnectionCredential>> {
        match server.settings.authentication {
            Authentication::None => return Ok(None),
            Authentication::OAuth { .. } => return Box::pin(self.oauth_credential(actor, server)).await,
            _ => {}
        }
        let agent = match server.settings.credentials {
            CredentialMode::Shared => None,
            CredentialMode::PerAgent => actor.agent(),
        };
        let binding = credential_binding(server, agent)?;
        let Some((secret, record, version)) =
            self.context.keys.open_secret(actor.tenant(), binding.id).await?
        else {
            return Ok(None);
        };
        // Send a credential only to the origin, and with the kind of authentication, that it was stored for.
        if !matches_binding(&record, &binding) {
            let slug = server.slug.as_str();
            let text = format!(
                "the credential of `{slug}` was stored for another URL or another kind of authentication: set it again \
                 with `linchpin server credential set {slug}`"
            );
            return Err(Error::new(error::ErrorKind::PermissionDenied, "credential_origin_mismatch", text));
        }
        Ok(Some(ConnectionCredential { id: binding.id, version, proof: AuthMaterial::Secret(secret) }))
    }

    /// Returns the changes that bind older OAuth secrets of a server, which are bound to its origin alone, to its
    /// client as well. Must be used before the client of the server changes.
    pub(in crate::hub) async fn bind_to_client(
        &self,
        tenant: TenantId,
        server: ServerId,
        before: &Authentication,
    ) -> Result<Vec<StoreChange>> {
        let (parent, mut changes) = (server.to_string(), Vec::new());
        for stored in self.context.load_documents(tenant, DocumentKind::Secret, Some(&parent)).await? {
            let id = stored.document.key.id.parse()?;
            let SealedSecret { kind, bound_to, .. } = stored.document.parse_body()?;
            if ![KIND_GRANT, KIND_CLIENT_SECRET].contains(&&*kind) || bound_to.contains(CLIENT_SEPARATOR) {
                continue;
            }
            let (secret, version) = match self.context.keys.open_secret(tenant, id).await {
                Ok(Some((secret, _, version))) => (secret, version),
                Ok(None) => continue,
                Err(error) if matches!(error.code(), "record_unreadable" | "secret_unreadable") => {
                    tracing::warn!(secret.id = %id, %error, "failed to read a secret; leaving it unchanged");
                    continue;
                }
                Err(error) => return Err(error),
            };
            let label = SecretBinding { id, kind, bound_to: append_client(bound_to, before) };
            changes.push(self.context.keys.seal_secret(tenant, &label, &parent, &secret, version).await?);
        }
        Ok(changes)
    }

    /// Returns the enabled agents that have a credential for a server, and whether no other agent has one.
    pub(in crate::hub) async fn agents_with_credentials(
        &self,
        tenant: TenantId,
        server: &Server,
    ) -> Result<(Vec<AgentId>, bool)> {
        let (mut found, mut are_all) = (Vec::new(), true);
        for (agent, _) in self.context.load_all::<Agent>(tenant, DocumentKind::Agent, None).await? {
            let actor = Actor::new(tenant, Subject::Agent(agent.id));
            let has_credential = match &server.settings.authentication {
                Authentication::OAuth { .. } => self.has_grant(tenant, server, Some(agent.id)).await,
                _ => self.load_credential(actor, server).await.map(|credential| credential.is_some()),
            };
            match has_credential {
                Ok(false) => {}
                Ok(true) if agent.enabled => found.push(agent.id),
                _ => are_all = false,
            }
        }
        Ok((found, are_all))
    }

    /// Returns the changes that delete the credentials of an agent.
    pub(in crate::hub) async fn delete_agent_credentials(
        &self,
        tenant: TenantId,
        agent: AgentId,
    ) -> Result<Vec<StoreChange>> {
        let mut changes = Vec::new();
        for server in self.servers.list_servers(tenant).await? {
            let grant = grant_id(server.id, Some(agent));
            let record = [
                (DocumentKind::Secret, secret_id(server.id, Some(agent))),
                (DocumentKind::Secret, grant),
                (DocumentKind::Trace, grant),
            ];
            for (kind, id) in record {
                let key = DocumentKey::new(kind, id);
                if self.context.store.document(tenant, &key).await?.is_some() {
                    changes.push(StoreChange::Delete(key));
                }
            }
        }
        Ok(changes)
    }
}

/// Derives the vault id of a credential, one shared and one per agent.
fn secret_id(server: ServerId, agent: Option<AgentId>) -> SecretId {
    derive_secret_id("linchpin credential", server, agent)
}

/// Derives the vault id of an OAuth grant, one shared and one per agent.
fn grant_id(server: ServerId, agent: Option<AgentId>) -> SecretId {
    derive_secret_id("linchpin grant", server, agent)
}

fn derive_secret_id(purpose: &'static str, server: ServerId, agent: Option<AgentId>) -> SecretId {
    let owner = agent.map(|agent| agent.to_string()).unwrap_or_default();
    id_from_digest(Digest::of(purpose).part(server.to_string()).part(owner).finish())
}

/// Derives the vault id of a secret from a digest.
pub(in crate::hub) fn id_from_digest(digest: Digest) -> SecretId {
    let (id_bytes, _) = digest.bytes().split_at(16);
    SecretId::from_u128(id_bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte)))
}

/// Returns the binding of the OAuth grant of a server.
pub(in crate::hub) fn grant_binding(server: &Server, agent: Option<AgentId>) -> Result<SecretBinding> {
    Ok(SecretBinding {
        id: grant_id(server.id, agent),
        kind: KIND_GRANT.to_owned(),
        bound_to: binding_origin(server)?,
    })
}

/// Returns the binding of the client secret of the hub at an authorization server.
pub(in crate::hub) fn client_binding(server: &Server) -> Result<SecretBinding> {
    credential_binding(server, None)
}

/// Reports whether the binding of a stored secret permits its use for this purpose. Older OAuth secrets are bound to
/// the origin alone; they belong to the configured client, since [`Upstream::bind_to_client`] replaces them before the
/// client changes.
pub(in crate::hub) fn matches_binding(stored: &SealedSecret, label: &SecretBinding) -> bool {
    let origin = label.bound_to.split_once(CLIENT_SEPARATOR).map(|(origin, _)| origin);
    stored.kind == label.kind && (stored.bound_to == label.bound_to || Some(&*stored.bound_to) == origin)
}

/// Returns the origin that secrets of a server are bound to; with OAuth also the configured client and issuer.
fn binding_origin(server: &Server) -> Result<String> {
    let is_stdio = || {
        let text = format!(
            "is a stdio server, and only remote servers have a credential: set its secrets as environment variables \
             with `linchpin server secret set {}`",
            server.slug.as_str()
        );
        Error::invalid("server", text)
    };
    let origin = origin(&server.transport).ok_or_else(is_stdio)?;
    Ok(append_client(origin, &server.settings.authentication))
}

fn append_client(origin: String, authentication: &Authentication) -> String {
    let Authentication::OAuth { client_id, issuer, .. } = authentication else { return origin };
    let client = client_id.as_ref().map_or("a registered client".to_owned(), |id| format!("{id:?}"));
    let issuer = issuer.as_ref().map(|issuer| format!(" at {issuer:?}")).unwrap_or_default();
    format!("{origin}{CLIENT_SEPARATOR}{client}{issuer}")
}

fn credential_binding(server: &Server, agent: Option<AgentId>) -> Result<SecretBinding> {
    let bound_to = binding_origin(server)?;
    let kind = match &server.settings.authentication {
        Authentication::None => {
            return Err(Error::invalid(
                "authentication",
                "must not be `none`: set the kind of authentication first",
            ));
        }
        Authentication::Bearer => "bearer",
        Authentication::ApiKey { .. } => "api-key",
        Authentication::Basic { .. } => "basic",
        Authentication::OAuth { .. } if agent.is_some() => {
            return Err(Error::invalid(
                "agent",
                "must be absent: with OAuth, only the client has a secret, and agents sign in instead",
            ));
        }
        Authentication::OAuth { client_id: None, .. } => {
            let text = "must have a `client_id`: with OAuth, only a registered client has a secret";
            return Err(Error::invalid("authentication", text));
        }
        Authentication::OAuth { .. } => KIND_CLIENT_SECRET,
    };
    if agent.is_some() && server.settings.credentials == CredentialMode::Shared {
        let text = "must be absent, since all agents share the credential of this server: set its `credentials` to \
                    `per-agent` first";
        return Err(Error::invalid("agent", text));
    }
    Ok(SecretBinding { id: secret_id(server.id, agent), kind: kind.into(), bound_to })
}

/// Checks that a secret can be sent in a header.
pub(in crate::hub) fn check_secret(secret: &Secret) -> Result<()> {
    let text = secret.expose();
    let is_valid =
        (1..=MAX_SECRET_LEN).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, 0x20..=0x7e));
    let rule = || format!("must be 1 to {MAX_SECRET_LEN} printable ASCII characters");
    is_valid.then_some(()).ok_or_else(|| Error::invalid("secret", rule()))
}
