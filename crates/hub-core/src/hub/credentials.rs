//! Credentials for servers: written, never read again but to be sent, and only to where they belong.

use jiff::Timestamp;
use linchpin::auth::Secret;
use schemars::JsonSchema;
use serde::Serialize;

use super::server_records::Kept;
use super::servers::origin;
use super::{Hub, put, told};
use crate::connection::{Credential, Proof};
use crate::digest::Digest;
use crate::error::{self, Error, Result};
use crate::hidden::Hidden;
use crate::id::{AgentId, SecretId, ServerId, TenantId};
use crate::keys::Sealed;
use crate::scope::Scope;
use crate::server::{Authentication, CredentialMode, Server};
use crate::store::{Batch, Change, Key, Kind};
use crate::vault::Label;

const LONGEST: usize = 16_384;
/// The kinds of the secrets of OAuth: what a sign-in granted, and the secret of the client.
const GRANT: &str = "oauth";
const CLIENT: &str = "oauth-client";
/// Separates the origin from the client in what a secret of OAuth is bound to.
const AS: &str = " as ";

/// What can be seen of a credential.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CredentialView {
    /// What it is: `bearer`, `api-key`, `basic`, or `oauth-client` for the secret of the hub at an authorization server.
    pub kind: String,
    /// Where it may be sent.
    pub bound_to: String,
    /// Whose it is; everybody's without it.
    #[schemars(with = "Option<String>")]
    pub agent: Option<AgentId>,
    /// Counts the changes.
    pub version: u64,
    /// When this was said.
    #[schemars(with = "String")]
    pub seen: Timestamp,
}

impl Hub {
    /// What is known of the credential of a server: everybody's, or an agent's.
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
            || Error::new(error::Kind::NotFound, "not_found", "there is no such credential: enter it first");
        let (kept, version): (Sealed, _) =
            self.find(scope.tenant(), Kind::Secret, id).await?.ok_or_else(missing)?;
        Ok(self.view_credential(kept, agent, version))
    }

    fn view_credential(&self, kept: Sealed, agent: Option<AgentId>, version: u64) -> CredentialView {
        CredentialView { kind: kept.kind, bound_to: kept.bound_to, agent, version, seen: self.world.now() }
    }

    /// Keeps a credential, in place of the one before. It is bound to where the server is now.
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

    /// Forgets a credential.
    pub async fn drop_credential(&self, scope: Scope, server: &str, agent: Option<AgentId>) -> Result<()> {
        scope.person()?;
        let (tenant, server) = (scope.tenant(), self.find_server(scope.tenant(), server).await?);
        let key = Key::new(Kind::Secret, secret_id(server.id, agent));
        let entry = self.entry(scope, "credential.dropped").with("server", server.id.to_string());
        self.commit_for(tenant, server, Batch::new().change(Change::Remove(key)).audit(entry)).await
    }

    /// Changes the credentials of a server, which is another one from then on: whoever is connected with those before is
    /// connected wrongly, at any hub.
    async fn commit_for(&self, tenant: TenantId, server: Server, batch: Batch) -> Result<()> {
        let (id, version, is_enabled) = (server.id, server.version, server.settings.enabled);
        let kept = put(Kept::of(server).document(id)?, version);
        let batch = batch.change(kept).tell(told::server(id, "credential"));
        self.commit_server(tenant, batch, (id, Some(version + 1)), is_enabled).await
    }

    /// What a subject's requests to a server carry.
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
        // It is sent only to the origin, and with the kind of authentication, that it was entered for.
        if !fits(&kept, &wanted) {
            let slug = server.slug.as_str();
            let text = format!(
                "the credential of `{slug}` was entered for another URL or another kind of authentication: enter it again \
                 with `linchpin server credential set {slug}`"
            );
            return Err(Error::new(error::Kind::Denied, "credential_elsewhere", text));
        }
        Ok(Some(Credential { id: wanted.id, version, proof: Proof::Secret(secret) }))
    }

    /// Returns the changes that bind the older OAuth secrets of a server, which are bound to its origin alone, to its client as
    /// well. For a server that is about to get another client.
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
                    tracing::warn!(secret.id = %id, %error, "failed to read a secret; it stays as it is");
                    continue;
                }
                Err(error) => return Err(error),
            };
            let label = Label { id, kind, bound_to: with_client(bound_to, before) };
            changes.push(self.keys.seal(tenant, &label, &parent, &secret, version).await?);
        }
        Ok(changes)
    }

    /// What a server gets from us and must not be seen by anybody else.
    pub(super) async fn secrets_of(&self, scope: Scope, server: &Server) -> Result<Hidden> {
        let credential = self.credential_of(scope, server).await?;
        let server = self.with_secrets(scope.tenant(), server.clone()).await?;
        Ok(Hidden::of(&server, credential.as_ref().map(|known| &known.proof), Some(self.keys.own_secrets())))
    }

    /// Removes the credentials of an agent.
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

/// A server has one place for everybody's credential and one for each agent's.
fn secret_id(server: ServerId, agent: Option<AgentId>) -> SecretId {
    place_of("linchpin credential", server, agent)
}

/// The same for what was given when somebody signed in.
fn grant_id(server: ServerId, agent: Option<AgentId>) -> SecretId {
    place_of("linchpin grant", server, agent)
}

fn place_of(what: &'static str, server: ServerId, agent: Option<AgentId>) -> SecretId {
    let whose = agent.map(|agent| agent.to_string()).unwrap_or_default();
    id_of(Digest::of(what).part(server.to_string()).part(whose).end())
}

/// The place in the vault that a digest stands for.
pub(super) fn id_of(digest: Digest) -> SecretId {
    let (half, _) = digest.bytes().split_at(16);
    SecretId::fixed(half.iter().fold(0, |number, byte| number << 8 | u128::from(*byte)))
}

/// What was given when somebody signed in to a server.
pub(super) fn grant_label(server: &Server, agent: Option<AgentId>) -> Result<Label> {
    Ok(Label { id: grant_id(server.id, agent), kind: GRANT.to_owned(), bound_to: bound_to(server)? })
}

/// What the hub itself proves at an authorization server that knows it.
pub(super) fn client_label(server: &Server) -> Result<Label> {
    label(server, None)
}

/// Whether a stored secret may be used where one with this label is needed. Older secrets of OAuth are bound to the origin alone:
/// they belong to the client that is configured, since [`Hub::bind_to_client`] replaces them before that changes.
pub(super) fn fits(stored: &Sealed, label: &Label) -> bool {
    let origin = label.bound_to.split_once(AS).map(|(origin, _)| origin);
    stored.kind == label.kind && (stored.bound_to == label.bound_to || Some(&*stored.bound_to) == origin)
}

/// The origin of a server; with OAuth also the client and the issuer that are configured for it.
fn bound_to(server: &Server) -> Result<String> {
    let nowhere = || Error::invalid("url", "a credential belongs to a server on the network");
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
                "this server takes no credential: say first which kind",
            ));
        }
        Authentication::Bearer => "bearer",
        Authentication::ApiKey { .. } => "api-key",
        Authentication::Basic { .. } => "basic",
        Authentication::OAuth { .. } if agent.is_some() => {
            return Err(Error::invalid(
                "agent",
                "an agent signs in to this server: it has no secret to enter",
            ));
        }
        Authentication::OAuth { client_id: None, .. } => {
            let text = "only a hub that is registered has a secret: say its `client_id` first";
            return Err(Error::invalid("authentication", text));
        }
        Authentication::OAuth { .. } => CLIENT,
    };
    let bound_to = bound_to(server)?;
    if agent.is_some() && server.settings.credentials == CredentialMode::Shared {
        let text = "the server has one credential for all: set `credentials` to `per-agent` first";
        return Err(Error::invalid("agent", text));
    }
    Ok(Label { id: secret_id(server.id, agent), kind: kind.into(), bound_to })
}

/// What can stand in a header.
pub(super) fn check(secret: &Secret) -> Result<()> {
    let text = secret.expose();
    let fits = (1..=LONGEST).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, 0x20..=0x7e));
    let rule = || format!("1 to {LONGEST} printable ASCII characters are a secret");
    fits.then_some(()).ok_or_else(|| Error::invalid("secret", rule()))
}
