//! Environment secrets: environment variables of stdio servers whose values are in the vault. Each is bound to the
//! program it was stored for and is given to no other.

use linchpin::auth::Secret;

use super::credentials::id_of;
use super::server_records::Kept;
use super::servers::ServerView;
use super::{Hub, event_payloads, put};
use crate::actor::Scope;
use crate::digest::Digest;
use crate::error::{self, Error, Result};
use crate::id::{SecretId, ServerId, TenantId};
use crate::server::{Launch, Server, Transport};
use crate::store::{Batch, Change, Key, Kind};
use crate::vault::Label;
use crate::vault::key_ring::Sealed;

const LONGEST: usize = 32_768;

impl Hub {
    /// Stores an environment secret of a stdio server in place of the previous one.
    pub async fn set_secret(
        &self,
        scope: Scope,
        server: &str,
        variable: &str,
        secret: &Secret,
    ) -> Result<ServerView> {
        scope.person()?;
        let (tenant, server) = (scope.tenant(), self.find_server(scope.tenant(), server).await?);
        let Transport::Stdio(launch) = &server.transport else {
            return Err(Error::invalid(
                "server",
                "must be a stdio server: remote servers have a credential instead",
            ));
        };
        if !launch.secrets.contains(variable) {
            let text = "must be declared in `secrets` of the configuration file first";
            return Err(Error::invalid("variable", text));
        }
        if !(1..=LONGEST).contains(&secret.expose().len()) || secret.expose().contains('\0') {
            return Err(Error::invalid("secret", format!("must be 1 to {LONGEST} bytes without a NUL byte")));
        }
        let label = label(server.id, launch, variable);
        let before: Option<(Sealed, u64)> = self.find(tenant, Kind::Secret, label.id).await?;
        let version = before.map_or(0, |(_, version)| version);
        let (id, slug, is_enabled) = (server.id, server.slug.clone(), server.settings.enabled);
        let change = self.keys.seal(tenant, &label, &id.to_string(), secret, version).await?;
        let entry = self.entry(scope, "secret.set").with("server", id.to_string()).with("variable", variable);
        // Change the version of the server as well: a connection that is being opened with the previous secret is then
        // outdated.
        let version = server.version;
        let kept = put(Kept::of(server).document(id)?, version);
        let batch = Batch::new().change(kept).change(change).audit(entry);
        let batch = batch.tell(event_payloads::server(id, "secret"));
        self.commit_server(tenant, batch, (id, Some(version + 1)), is_enabled).await?;
        self.server(scope, slug.as_str()).await
    }

    /// Deletes an environment secret. The server is stopped and not started again without it.
    pub async fn drop_secret(&self, scope: Scope, server: &str, variable: &str) -> Result<ServerView> {
        scope.person()?;
        let (tenant, server) = (scope.tenant(), self.find_server(scope.tenant(), server).await?);
        let key = Key::new(Kind::Secret, id(server.id, variable));
        if self.store.document(tenant, &key).await?.is_none() {
            return Err(Error::not_found("secret", crate::text::shortened(variable)));
        }
        let (id, slug, version) = (server.id, server.slug.clone(), server.version);
        let entry =
            self.entry(scope, "secret.dropped").with("server", id.to_string()).with("variable", variable);
        // Change the version of the server as well: a connection that is being opened with the secret is then outdated.
        let kept = put(Kept::of(server).document(id)?, version);
        let batch = Batch::new().change(kept).change(Change::Remove(key)).audit(entry);
        let batch = batch.tell(event_payloads::server(id, "secret"));
        self.commit_server(tenant, batch, (id, Some(version + 1)), false).await?;
        self.server(scope, slug.as_str()).await
    }

    /// Returns a server with the secrets in its environment. Fails if one is missing: the server must not start without
    /// it.
    pub(super) async fn with_secrets(&self, tenant: TenantId, mut server: Server) -> Result<Server> {
        let Transport::Stdio(launch) = &mut server.transport else { return Ok(server) };
        for variable in launch.secrets.clone() {
            let wanted = label(server.id, launch, &variable);
            let found = self.keys.open(tenant, wanted.id).await?;
            let fits = found.filter(|(_, kept, _)| kept.bound_to == wanted.bound_to);
            let Some((secret, ..)) = fits else {
                let slug = server.slug.as_str();
                let text = format!(
                    "`{slug}` cannot be started: its secret `{variable}` is missing or was stored for another command: set it with \
                     `linchpin server secret set {slug} {variable}`"
                );
                return Err(Error::new(error::Kind::Denied, "secret_missing", text));
            };
            launch.env.insert(variable, secret.expose().to_owned());
        }
        Ok(server)
    }

    /// Returns the environment secrets that are not stored yet.
    pub(super) async fn missing_secrets(&self, tenant: TenantId, server: &Server) -> Result<Vec<String>> {
        let Transport::Stdio(launch) = &server.transport else { return Ok(Vec::new()) };
        let mut missing = Vec::new();
        for variable in &launch.secrets {
            let wanted = label(server.id, launch, variable);
            let found: Option<(Sealed, u64)> = self.find(tenant, Kind::Secret, wanted.id).await?;
            if found.is_none_or(|(kept, _)| kept.bound_to != wanted.bound_to) {
                missing.push(variable.clone());
            }
        }
        Ok(missing)
    }
}

fn id(server: ServerId, variable: &str) -> SecretId {
    id_of(Digest::of("linchpin variable").part(server.to_string()).part(variable).end())
}

fn label(server: ServerId, launch: &Launch, variable: &str) -> Label {
    let id = id(server, variable);
    Label { id, kind: "variable".into(), bound_to: format!("{variable} of {}", launch.program()) }
}
