//! Access of users and agents to servers, built once and used by many calls.

use std::sync::Arc;

use super::Upstream;
use super::connect::strip_authentication;
use crate::actor::Actor;
use crate::connection::ConnectionCredential;
use crate::error::Result;
use crate::secrets::redact::Redactor;
use crate::server::{Authentication, Server};

/// Access of a user or agent to a server: server with its secrets, credential, and redactor of both.
pub(in crate::hub) struct UpstreamAccess {
    pub(in crate::hub) server: Server,
    pub(in crate::hub) credential: Option<ConnectionCredential>,
    pub(in crate::hub) redactor: Redactor,
}

impl Upstream {
    /// Returns the access of a user or agent to a server. A change of a credential or secret changes the version of
    /// its server; only OAuth grants change on their own, so that access with OAuth is not stored.
    pub(in crate::hub) async fn upstream_access(
        &self,
        actor: Actor,
        server: &Server,
    ) -> Result<Arc<UpstreamAccess>> {
        let key = (actor.tenant(), server.id, actor.subject());
        let generation = self.access.generation();
        let found = self.access.get(&key);
        if let Some(found) = found.filter(|found| found.server.version == server.version) {
            return Ok(found);
        }
        let credential = self.load_credential(actor, server).await?;
        let server = strip_authentication(actor, server.clone(), credential.is_some());
        let server = self.resolve_env_secrets(actor.tenant(), server).await?;
        let proof = credential.as_ref().map(|credential| &credential.proof);
        let redactor = Redactor::for_server(&server, proof, Some(self.context.keys.hub_secrets()));
        let access = Arc::new(UpstreamAccess { server, credential, redactor });
        if !matches!(access.server.settings.authentication, Authentication::OAuth { .. }) {
            self.access.insert(generation, key, access.clone());
        }
        Ok(access)
    }
}
