//! Environment secrets: environment variables of stdio servers whose values are in the vault. Each is bound to the
//! program it was stored for and is given to no other.

use linchpin::auth::Secret;

use super::credentials::id_from_digest;
use crate::actor::Actor;
use crate::digest::Digest;
use crate::error::{self, Error, Result};
use crate::hub::registry::records::ServerRecord;
use crate::hub::upstream::Upstream;
use crate::hub::{event_payloads, upsert};
use crate::id::{SecretId, ServerId, TenantId};
use crate::server::{ProgramSpec, Server, Transport};
use crate::store::{Batch, DocumentKey, DocumentKind, StoreChange};
use crate::vault::SecretBinding;
use crate::vault::key_ring::SealedSecret;

const MAX_ENV_SECRET_LEN: usize = 32_768;

impl Upstream {
    /// Stores an environment secret of a stdio server in place of the previous one.
    pub(in crate::hub) async fn set_env_secret(
        &self,
        actor: Actor,
        server: &str,
        variable: &str,
        secret: &Secret,
    ) -> Result<()> {
        actor.require_user()?;
        let (tenant, server) = (actor.tenant(), self.servers.find_server(actor.tenant(), server).await?);
        let Transport::Stdio(program) = &server.transport else {
            return Err(Error::invalid(
                "server",
                "must be a stdio server: remote servers have a credential instead",
            ));
        };
        if !program.secrets.contains(variable) {
            let text = "must be declared in `secrets` of the configuration file first";
            return Err(Error::invalid("variable", text));
        }
        if !(1..=MAX_ENV_SECRET_LEN).contains(&secret.expose().len()) || secret.expose().contains('\0') {
            return Err(Error::invalid(
                "secret",
                format!("must be 1 to {MAX_ENV_SECRET_LEN} bytes without a NUL byte"),
            ));
        }
        let label = env_secret_binding(server.id, program, variable);
        let before: Option<(SealedSecret, u64)> =
            self.context.load(tenant, DocumentKind::Secret, label.id).await?;
        let version = before.map_or(0, |(_, version)| version);
        let (id, is_enabled) = (server.id, server.settings.enabled);
        let change = self.context.keys.seal_secret(tenant, &label, &id.to_string(), secret, version).await?;
        let entry = self
            .context
            .entry(actor, "env_secret.set")
            .with("server", id.to_string())
            .with("variable", variable);
        // Change the version of the server as well: a connection that is being opened with the previous secret is then
        // outdated.
        let version = server.version;
        let record = upsert(ServerRecord::from_server(server).document(id)?, version);
        let batch = Batch::new().change(record).change(change).audit(entry);
        let batch = batch.with_event(event_payloads::server(id, "secret"));
        self.commit_server(tenant, batch, (id, Some(version + 1)), is_enabled).await
    }

    /// Deletes an environment secret of a server. The server is stopped and not started again without it.
    pub(in crate::hub) async fn delete_env_secret(
        &self,
        actor: Actor,
        server: &str,
        variable: &str,
    ) -> Result<()> {
        actor.require_user()?;
        let (tenant, server) = (actor.tenant(), self.servers.find_server(actor.tenant(), server).await?);
        let key = DocumentKey::new(DocumentKind::Secret, env_secret_id(server.id, variable));
        if self.context.store.document(tenant, &key).await?.is_none() {
            return Err(Error::not_found("secret", crate::text::shorten(variable)));
        }
        let (id, version) = (server.id, server.version);
        let entry = self
            .context
            .entry(actor, "env_secret.deleted")
            .with("server", id.to_string())
            .with("variable", variable);
        // Change the version of the server as well: a connection that is being opened with the secret is then outdated.
        let record = upsert(ServerRecord::from_server(server).document(id)?, version);
        let batch = Batch::new().change(record).change(StoreChange::Delete(key)).audit(entry);
        let batch = batch.with_event(event_payloads::server(id, "secret"));
        self.commit_server(tenant, batch, (id, Some(version + 1)), false).await
    }

    /// Adds the secrets from the vault to the environment of a stdio server. Fails if one is missing: the server must
    /// not start without it.
    pub(in crate::hub) async fn resolve_env_secrets(
        &self,
        tenant: TenantId,
        mut server: Server,
    ) -> Result<Server> {
        let Transport::Stdio(program) = &mut server.transport else { return Ok(server) };
        for variable in program.secrets.clone() {
            let binding = env_secret_binding(server.id, program, &variable);
            let found = self.context.keys.open_secret(tenant, binding.id).await?;
            let matching = found.filter(|(_, record, _)| record.bound_to == binding.bound_to);
            let Some((secret, ..)) = matching else {
                let slug = server.slug.as_str();
                let text = format!(
                    "`{slug}` cannot be started: its secret `{variable}` is missing or was stored for another command: set it with \
                     `linchpin server secret set {slug} {variable}`"
                );
                return Err(Error::new(error::ErrorKind::PermissionDenied, "secret_missing", text));
            };
            program.env.insert(variable, secret.expose().to_owned());
        }
        Ok(server)
    }

    /// Returns the environment variables whose secrets are not in the vault, or were stored for another command.
    pub(in crate::hub) async fn missing_secrets(
        &self,
        tenant: TenantId,
        server: &Server,
    ) -> Result<Vec<String>> {
        let Transport::Stdio(program) = &server.transport else { return Ok(Vec::new()) };
        let mut missing = Vec::new();
        for variable in &program.secrets {
            let binding = env_secret_binding(server.id, program, variable);
            let found: Option<(SealedSecret, u64)> =
                self.context.load(tenant, DocumentKind::Secret, binding.id).await?;
            if found.is_none_or(|(record, _)| record.bound_to != binding.bound_to) {
                missing.push(variable.clone());
            }
        }
        Ok(missing)
    }
}

fn env_secret_id(server: ServerId, variable: &str) -> SecretId {
    id_from_digest(Digest::of("linchpin variable").part(server.to_string()).part(variable).finish())
}

fn env_secret_binding(server: ServerId, program: &ProgramSpec, variable: &str) -> SecretBinding {
    let id = env_secret_id(server, variable);
    SecretBinding {
        id,
        kind: "variable".into(),
        bound_to: format!("{variable} of {}", program.program_digest()),
    }
}
