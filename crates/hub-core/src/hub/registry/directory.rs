//! Server directory: the stored servers, the programs of the stdio servers, and the last contact with each server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::records::{ServerContact, ServerRecord, StoredTransport};
use crate::error::{self, Error, Result};
use crate::hub::context::HubContext;
use crate::hub::{document, upsert};
use crate::id::{ServerId, TenantId};
use crate::lock::lock;
use crate::server::{ProgramSpec, Server, Transport};
use crate::store::{Batch, DocumentKey, DocumentKind, StoreChange, StoredDocument};

/// Error code of a server whose program is not in the configuration file of this hub.
pub(super) const NOT_IN_FILE: &str = "server_not_in_file";

/// Servers of all tenants, as stored, with the programs that only the configuration file has.
pub(in crate::hub) struct ServerDirectory {
    context: Arc<HubContext>,
    /// Programs of the configured stdio servers. `None` if the program is unknown and this was logged.
    programs: Mutex<HashMap<(TenantId, ServerId), Option<ProgramSpec>>>,
}

impl ServerDirectory {
    pub(in crate::hub) fn new(context: Arc<HubContext>) -> Self {
        ServerDirectory { context, programs: Mutex::default() }
    }

    /// Lists all servers. Skips stdio servers whose program is unknown.
    pub(in crate::hub) async fn list_servers(&self, tenant: TenantId) -> Result<Vec<Server>> {
        let mut servers = Vec::new();
        for stored in self.context.load_documents(tenant, DocumentKind::Server, None).await? {
            let id = stored.document.key.id.parse()?;
            match self.read_server(tenant, stored) {
                Err(error) if error.code() == NOT_IN_FILE => self.warn_missing_program(tenant, id, &error),
                server => servers.push(server?),
            }
        }
        Ok(servers)
    }

    /// Returns the id of the server with this id or slug.
    pub(in crate::hub) async fn find_server_id(
        &self,
        tenant: TenantId,
        name: &str,
    ) -> Result<Option<ServerId>> {
        let found = match name.parse::<ServerId>() {
            Ok(id) => {
                self.context.store.document(tenant, &DocumentKey::new(DocumentKind::Server, id)).await?
            }
            Err(_) => self.context.store.document_by_name(tenant, DocumentKind::Server, name).await?,
        };
        found.map(|stored| stored.document.key.id.parse()).transpose()
    }

    /// Returns a server by id or slug.
    pub(in crate::hub) async fn find_server(&self, tenant: TenantId, name: &str) -> Result<Server> {
        let found = match name.parse::<ServerId>() {
            Ok(id) => {
                self.context.store.document(tenant, &DocumentKey::new(DocumentKind::Server, id)).await?
            }
            Err(_) => self.context.store.document_by_name(tenant, DocumentKind::Server, name).await?,
        };
        let found = found.ok_or_else(|| Error::not_found("server", crate::text::shorten(name)))?;
        self.read_server(tenant, found)
    }

    fn read_server(&self, tenant: TenantId, stored: StoredDocument) -> Result<Server> {
        let id: ServerId = stored.document.key.id.parse()?;
        let version = stored.version;
        let ServerRecord {
            slug,
            settings,
            transport: stored_transport,
            is_configured,
            is_undeclared,
            created,
            updated,
        } = stored.document.parse_body()?;
        let transport = match stored_transport {
            StoredTransport::Http(remote) => Transport::Http(remote),
            StoredTransport::Sse(remote) => Transport::Sse(remote),
            // Such a server is disabled and never started: only the file has its command.
            StoredTransport::Stdio if is_undeclared => Transport::Stdio(ProgramSpec::new("", &[])),
            StoredTransport::Stdio => Transport::Stdio(self.find_program(tenant, id).ok_or_else(|| {
                let text = format!(
                    "the server `{}` is not in the configuration file any more: add it there again",
                    slug.as_str()
                );
                Error::new(error::ErrorKind::Unavailable, NOT_IN_FILE, text)
            })?),
        };
        Ok(Server { id, slug, settings, transport, is_configured, is_undeclared, version, created, updated })
    }

    /// Loads the last contact with a server, with the version of the document.
    pub(in crate::hub) async fn contact(
        &self,
        tenant: TenantId,
        server: ServerId,
    ) -> Result<(ServerContact, u64)> {
        Ok(self.context.load(tenant, DocumentKind::Contact, server).await?.unwrap_or_default())
    }

    /// Records that the hub has reached a server, or the error.
    pub(in crate::hub) async fn record_contact(
        &self,
        tenant: TenantId,
        server: &Server,
        error: Option<&Error>,
    ) -> Result<()> {
        let (id, server_version) = (server.id, server.version);
        let (before, version) = self.contact(tenant, id).await?;
        if before.server_version > server_version {
            return Ok(()); // the server was changed in the meantime
        }
        let contact = match error {
            None => ServerContact {
                last_connected: Some(self.context.platform.now()),
                error: None,
                server_version,
                ..before
            },
            Some(error) => {
                ServerContact { error: Some(error.message().to_owned()), server_version, ..before }
            }
        };
        let document = document(DocumentKind::Contact, id, &contact)?.with_parent(id);
        let require_server = StoreChange::RequireExists(DocumentKey::new(DocumentKind::Server, id));
        match self
            .context
            .store
            .commit(tenant, Batch::new().change(require_server).change(upsert(document, version)))
            .await
        {
            // Another contact was recorded concurrently, or the server was removed.
            Err(error) if matches!(error.kind(), error::ErrorKind::Conflict | error::ErrorKind::NotFound) => {
                Ok(())
            }
            done => done,
        }
    }

    pub(in crate::hub) async fn load_server_records(
        &self,
        tenant: TenantId,
    ) -> Result<Vec<(ServerId, ServerRecord, u64)>> {
        let all = self.context.load_documents(tenant, DocumentKind::Server, None).await?;
        let read = |stored: StoredDocument| {
            Ok((stored.document.key.id.parse()?, stored.document.parse_body()?, stored.version))
        };
        all.into_iter().map(read).collect()
    }

    pub(in crate::hub) fn find_program(&self, tenant: TenantId, server: ServerId) -> Option<ProgramSpec> {
        lock(&self.programs).get(&(tenant, server)).cloned().flatten()
    }

    /// Records that the program of a stdio server is not in the configuration file of this hub. Logs this once, until
    /// it is known again.
    pub(in crate::hub) fn warn_missing_program(&self, tenant: TenantId, server: ServerId, error: &Error) {
        if lock(&self.programs).insert((tenant, server), None).is_none() {
            tracing::warn!(server.id = %server, %error, "skipping a stdio server: its command is not in the configuration file of this hub");
        }
    }

    /// Sets or removes the configured program of a stdio server, which is in memory only. Returns the previous one.
    pub(in crate::hub) fn set_program(
        &self,
        tenant: TenantId,
        server: ServerId,
        program: Option<ProgramSpec>,
    ) -> Option<ProgramSpec> {
        let mut programs = lock(&self.programs);
        let before = match program {
            Some(program) => programs.insert((tenant, server), Some(program)),
            None => programs.remove(&(tenant, server)),
        };
        drop(programs);
        self.context.generation.advance();
        before.flatten()
    }
}
