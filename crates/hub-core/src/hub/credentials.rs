//! Server credentials: write-only, decrypted only for requests to the origin that they are bound to.

use jiff::Timestamp;
use linchpin::auth::Secret;
use schemars::JsonSchema;
use serde::Serialize;

use super::server_records::Kept;
use super::servers::origin;
use super::{Hub, event_payloads, put};
use crate::actor::Scope;
use crate::connection::{Credential, Proof};
use crate::digest::Digest;
use crate::error::{self, Error, Result};
use crate::id::{AgentId, SecretId, ServerId, TenantId};
use crate::secrets::redact::Hidden;
use crate::server::{Authentication, CredentialMode, Server};
use crate::store::{Batch, Change, Key, Kind};
use crate::vault::Label;
use crate::vault::key_ring::Sealed;

const LONGEST: usize = 16_384;
/// Vault kinds of OAuth secrets: the grant of a sign-in, and the client secret.
const GRANT: &str = "oauth";
const CLIENT: &str = "oauth-client";
/// Separates origin and client in the binding of an OAuth secret.
const AS: &str = " as ";

/// Credential metadata, without the secret.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CredentialView {
    /// Kind: `bearer`, `api-key`, `basic`, or `oauth-client` (client secret at an authorization server).
    pub kind: String,
    /// Origin that the credential may be sent to.
    pub bound_to: String,
    /// Agent that uses the credential. Absent for a shared one.
    #[schemars(with = "Option<String>")]
    pub agent: Option<AgentId>,
    /// Version, incremented by each change.
    pub version: u64,
    /// Time of this response.
    #[schemars(with = "String")]
    pub seen: Timestamp,
}

impl Hub {
    /// Returns the metadata of a server credential, shared or of an agent.
    pub async fn credential(
        &self,
        scope: Scope,
        server: &str,
        agent: Option<AgentId>,
    ) -> Result<CredentialView> {
        scope.person()?;
        let server = self.find_server(scope.tenant(), server).await?;
        let id = secret_id(server.id, agent);
        let missing =
            || Error::new(error::Kind::NotFound, "not_found", "no credential is stored: set it first");
        let (kept, version): (Sealed, _) =
            self.find(scope.tenant(), Kind::Secret, id).await?.ok_or_else(missing)?;
        Ok(self.view_credential(kept, agent, version))
    }

    fn view_credential(&self, kept: Sealed, agent: Option<AgentId>, version: u64) -> CredentialView {
        CredentialView { kind: kept.kind, bound_to: kept.bound_to, agent, version, seen: self.world.now() }
    }

    /// Stores a credential in place of the previous one. It is bound to the current origin of the server.
    pub async fn set_credential(
        &self,
        scope: Scope,
        server: &str,
        agent: Option<AgentId>,
        secret: &Secret,
    ) -> Result<CredentialView> {
        scope.person()?;
        let tenant = scope.tenant();
        let server = self.find_server(tenant, server).await?;
        let label = label(&server, agent)?;
        check(secret)?;
        if let Some(agent) = agent {
            self.need::<crate::agent::Agent>(tenant, Kind::Agent, agent).await?;
        }
        let before: Option<(Sealed, u64)> = self.find(tenant, Kind::Secret, label.id).await?;
        let version = before.map_or(0, |(_, version)| version);
        let change = self.keys.seal(tenant, &label, &server.id.to_string(), secret, version).await?;
        let mut entry = self.entry(scope, "credential.set").with("server", server.id.to_string());
        entry = entry.with("bound_to", label.bound_to.as_str());
        if let Some(agent) = agent {
            entry = entry.with("agent", agent.to_string());
        }
        let mut batch = Batch::new().audit(entry);
        batch.changes.extend(agent.map(|agent| Change::Need(Key::new(Kind::Agent, agent))));
        self.commit_for(tenant, server, batch.change(change)).await?;
        Ok(CredentialView {
            kind: label.kind,
            bound_to: label.bound_to,
            agent,
            version: version + 1,
            seen: self.world.now(),
        })
    }

    /// Deletes a credential.
    pub async fn drop_credential(&self, scope: Scope, server: &str, agent: Option<AgentId>) -> Result<()> {
        scope.person()?;
        let (tenant, server) = (scope.tenant(), self.find_server(scope.tenant(), server).await?);
        let key = Key::new(Kind::Secret, secret_id(server.id, agent));
        let entry = self.entry(scope, "credential.dropped").with("server", server.id.to_string());
        self.commit_for(tenant, server, Batch::new().change(Change::Remove(key)).audit(entry)).await
    }

    /// Changes the credentials of a server. The version of the server changes as well, so that every hub closes the
    /// connections that use the previous credential.
    async fn commit_for(&self, tenant: TenantId, server: Server, batch: Batch) -> Result<()> {
        let (id, version, is_enabled) = (server.id, server.version, server.settings.enabled);
        let kept = put(Kept::of(server).document(id)?, version);
        let batch = batch.change(kept).tell(event_payloads::server(id, "credential"));
        self.commit_server(tenant, batch, (id, Some(version + 1)), is_enabled).await
    }

    /// Returns the credential for requests of a subject to a server.
    pub(super) async fn credential_of(&self, scope: Scope, server: &Server) -> Result<Option<Credential>> {
        match server.settings.authentication {
            Authentication::None => return Ok(None),
            Authentication::OAuth { .. } => return self.grant_of(scope, server).await,
            _ => {}
        }
        let agent = match server.settings.credentials {
            CredentialMode::Shared => None,
            CredentialMode::PerAgent => scope.agent(),
        };
        let wanted = label(server, agent)?;
        let Some((secret, kept, version)) = self.keys.open(scope.tenant(), wanted.id).await? else {
            return Ok(None);
        };
        // Send a credential only to the origin, and with the kind of authentication, that it was stored for.
        if !fits(&kept, &wanted) {
            let slug = server.slug.as_str();
            let text = format!(
                "the credential of `{slug}` was stored for another URL or another kind of authentication: set it again \
                 with `linchpin server credential set {slug}`"
            );
            return Err(Error::new(error::Kind::Denied, "credential_elsewhere", text));
        }
        Ok(Some(Credential { id: wanted.id, version, proof: Proof::Secret(secret) }))
    }

    /// Returns the changes that bind older OAuth secrets of a server, which are bound to its origin alone, to its
    /// client as well. Must be used before the client of the server changes.
    pub(super) async fn bind_to_client(
        &self,
        tenant: TenantId,
        server: ServerId,
        before: &Authentication,
    ) -> Result<Vec<Change>> {
        let (parent, mut changes) = (server.to_string(), Vec::new());
        for stored in self.stored(tenant, Kind::Secret, Some(&parent)).await? {
            let id = stored.document.key.id.parse()?;
            let Sealed { kind, bound_to, .. } = stored.document.read()?;
            if ![GRANT, CLIENT].contains(&&*kind) || bound_to.contains(AS) {
                continue;
            }
            let (secret, version) = match self.keys.open(tenant, id).await {
                Ok(Some((secret, _, version))) => (secret, version),
                Ok(None) => continue,
                Err(error) if matches!(error.code(), "not_readable" | "secret_unreadable") => {
                    tracing::warn!(secret.id = %id, %error, "failed to read a secret; leaving it unchanged");
                    continue;
                }
                Err(error) => return Err(error),
            };
            let label = Label { id, kind, bound_to: with_client(bound_to, before) };
            changes.push(self.keys.seal(tenant, &label, &parent, &secret, version).await?);
        }
        Ok(changes)
    }

    /// Returns the redactor for all secrets that a server receives from the hub.
    pub(super) async fn secrets_of(&self, scope: Scope, server: &Server) -> Result<Hidden> {
        let credential = self.credential_of(scope, server).await?;
        let server = self.with_secrets(scope.tenant(), server.clone()).await?;
        Ok(Hidden::of(&server, credential.as_ref().map(|known| &known.proof), Some(self.keys.own_secrets())))
    }

    /// Returns the changes that delete the credentials of an agent.
    pub(super) async fn credentials_of_agent(&self, tenant: TenantId, agent: AgentId) -> Result<Vec<Change>> {
        let mut changes = Vec::new();
        for server in self.every_server(tenant).await? {
            let grant = grant_id(server.id, Some(agent));
            let kept = [
                (Kind::Secret, secret_id(server.id, Some(agent))),
                (Kind::Secret, grant),
                (Kind::Trace, grant),
            ];
            for (kind, id) in kept {
                let key = Key::new(kind, id);
                if self.store.document(tenant, &key).await?.is_some() {
                    changes.push(Change::Remove(key));
                }
            }
        }
        Ok(changes)
    }
}

/// Derives the vault id of a credential, one shared and one per agent.
fn secret_id(server: ServerId, agent: Option<AgentId>) -> SecretId {
    place_of("linchpin credential", server, agent)
}

/// Derives the vault id of an OAuth grant, one shared and one per agent.
fn grant_id(server: ServerId, agent: Option<AgentId>) -> SecretId {
    place_of("linchpin grant", server, agent)
}

fn place_of(what: &'static str, server: ServerId, agent: Option<AgentId>) -> SecretId {
    let whose = agent.map(|agent| agent.to_string()).unwrap_or_default();
    id_of(Digest::of(what).part(server.to_string()).part(whose).end())
}

/// Derives a vault id from a digest.
pub(super) fn id_of(digest: Digest) -> SecretId {
    let (half, _) = digest.bytes().split_at(16);
    SecretId::fixed(half.iter().fold(0, |number, byte| number << 8 | u128::from(*byte)))
}

/// Returns the binding of the OAuth grant of a server.
pub(super) fn grant_label(server: &Server, agent: Option<AgentId>) -> Result<Label> {
    Ok(Label { id: grant_id(server.id, agent), kind: GRANT.to_owned(), bound_to: bound_to(server)? })
}

/// Returns the binding of the client secret of the hub at an authorization server.
pub(super) fn client_label(server: &Server) -> Result<Label> {
    label(server, None)
}

/// Reports whether a stored secret may be used where one with this binding is needed. Older OAuth secrets are bound to
/// the origin alone; they belong to the configured client, since [`Hub::bind_to_client`] replaces them before the
/// client changes.
pub(super) fn fits(stored: &Sealed, label: &Label) -> bool {
    let origin = label.bound_to.split_once(AS).map(|(origin, _)| origin);
    stored.kind == label.kind && (stored.bound_to == label.bound_to || Some(&*stored.bound_to) == origin)
}

/// Returns the origin of a server; with OAuth also the configured client and issuer.
fn bound_to(server: &Server) -> Result<String> {
    let nowhere = || Error::invalid("url", "must be set: only remote servers have a credential");
    let origin = origin(&server.transport).ok_or_else(nowhere)?;
    Ok(with_client(origin, &server.settings.authentication))
}

fn with_client(origin: String, authentication: &Authentication) -> String {
    let Authentication::OAuth { client_id, issuer, .. } = authentication else { return origin };
    let client = client_id.as_ref().map_or("a registered client".to_owned(), |id| format!("{id:?}"));
    let issuer = issuer.as_ref().map(|issuer| format!(" at {issuer:?}")).unwrap_or_default();
    format!("{origin}{AS}{client}{issuer}")
}

fn label(server: &Server, agent: Option<AgentId>) -> Result<Label> {
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
                "must be absent: agents sign in to this server and have no secret",
            ));
        }
        Authentication::OAuth { client_id: None, .. } => {
            let text = "must have a `client_id`: only a registered client has a secret";
            return Err(Error::invalid("authentication", text));
        }
        Authentication::OAuth { .. } => CLIENT,
    };
    let bound_to = bound_to(server)?;
    if agent.is_some() && server.settings.credentials == CredentialMode::Shared {
        let text = "must be absent while the credential is shared: set `credentials` to `per-agent` first";
        return Err(Error::invalid("agent", text));
    }
    Ok(Label { id: secret_id(server.id, agent), kind: kind.into(), bound_to })
}

/// Checks that a secret can be sent in a header.
pub(super) fn check(secret: &Secret) -> Result<()> {
    let text = secret.expose();
    let fits = (1..=LONGEST).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, 0x20..=0x7e));
    let rule = || format!("must be 1 to {LONGEST} printable ASCII characters");
    fits.then_some(()).ok_or_else(|| Error::invalid("secret", rule()))
}
