//! Application of the configuration file to the hub: adds and updates the servers that it declares. Their commands
//! are held in memory only. A server that leaves the file is disabled; only a command of a user deletes it
//! with its secrets.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use super::records::{ServerRecord, StoredTransport};
use crate::actor::{Actor, Subject};
use crate::error::{self, Error, Result};
use crate::hub::LOCAL_USER;
use crate::hub::registry::Registry;
use crate::hub::{event_payloads, upsert};
use crate::id::{ServerId, TenantId};
use crate::server::{ConfiguredServer, Transport};
use crate::store::{Batch, DocumentKind};

impl Registry {
    /// Adds, updates and disables servers of the hub so that they match the configuration file. Returns the slugs that
    /// were skipped because a server that is not from the file has them.
    pub async fn apply_config(
        &self,
        tenant: TenantId,
        servers: Vec<ConfiguredServer>,
    ) -> Result<Vec<String>> {
        let is_first = !self.config_applied.load(Ordering::SeqCst);
        let conflicts = match self.try_apply_config(tenant, servers.clone(), is_first).await {
            // Another hub applies its file concurrently.
            Err(error) if error.kind() == error::ErrorKind::Conflict => {
                self.try_apply_config(tenant, servers, is_first).await?
            }
            done => done?,
        };
        self.config_applied.store(true, Ordering::SeqCst);
        Ok(conflicts)
    }

    /// Makes one attempt of [`Self::apply_config`]. `is_first`: this hub has not applied its file yet.
    async fn try_apply_config(
        &self,
        tenant: TenantId,
        servers: Vec<ConfiguredServer>,
        is_first: bool,
    ) -> Result<Vec<String>> {
        let (actor, mut conflicts, mut errors) = (Actor::new(tenant, Subject::Hub), Vec::new(), Vec::new());
        let declared: HashSet<_> = servers.iter().map(|server| server.slug.clone()).collect();
        let mut existing = self.servers.load_server_records(tenant).await?;
        // Each hub of a cluster has its own file. A hub that starts with an old file, or none, must not disable the
        // servers of the others.
        if is_first && self.context.store.shared().is_some() {
            for (_, record, _) in existing
                .extract_if(.., |(_, record, _)| record.is_configured && !declared.contains(&record.slug))
            {
                tracing::warn!(
                    server = record.slug.as_str(),
                    "server from the configuration file of another hub is missing in the file of this hub"
                );
            }
        }
        // A failure for one server does not affect the others.
        for (id, record, version) in
            existing.extract_if(.., |(_, record, _)| record.is_configured && !declared.contains(&record.slug))
        {
            let slug = record.slug.clone();
            let done = self.disable_undeclared(actor, id, record, version).await;
            errors.extend(done.err().map(|error| (slug, error)));
        }
        for server in servers {
            let slug = server.slug.clone();
            let position = existing.iter().position(|(_, record, _)| record.slug == slug);
            let done = match position.map(|position| existing.swap_remove(position)) {
                Some((_, record, _)) if !record.is_configured => {
                    conflicts.push(slug.as_str().to_owned());
                    Ok(())
                }
                Some((id, record, version)) => {
                    self.update_configured(actor, id, record, version, server).await
                }
                None => self.add_configured(actor, server).await,
            };
            errors.extend(done.err().map(|error| (slug, error)));
        }
        let Some((_, first)) = errors.first() else { return Ok(conflicts) };
        let text: Vec<_> =
            errors.iter().map(|(slug, error)| format!("`{}`: {error}", slug.as_str())).collect();
        Err(Error::new(first.kind(), first.code(), text.join("; ")))
    }

    /// Disables a server that is not in the configuration file any more. Its id, tools and secrets stay until the file
    /// declares it again or a user removes it.
    async fn disable_undeclared(
        &self,
        actor: Actor,
        id: ServerId,
        mut record: ServerRecord,
        version: u64,
    ) -> Result<()> {
        if record.is_undeclared {
            return Ok(());
        }
        let tenant = actor.tenant();
        tracing::warn!(
            server = record.slug.as_str(),
            "server is not in the configuration file any more; disabled, its secrets stay stored"
        );
        (record.is_undeclared, record.settings.enabled, record.updated) =
            (true, false, self.context.platform.now());
        let entry = self.context.entry(actor, "server.updated").with("server", id.to_string());
        let entry = entry.with("configuration_file", "not declared");
        let batch = Batch::new().change(upsert(record.document(id)?, version)).audit(entry);
        self.context.store.commit(tenant, batch.with_event(event_payloads::server(id, "changed"))).await?;
        self.servers.set_program(tenant, id, None);
        self.upstream.invalidate(tenant, id, Some(version + 1), true);
        Ok(())
    }

    /// Deletes a configured server with its tools and secrets, if it exists. For a command on the machine of the hub
    /// that has removed it from the configuration file while no hub is running.
    pub async fn delete_configured(&self, tenant: TenantId, slug: &str) -> Result<()> {
        let Some(found) = self.context.store.document_by_name(tenant, DocumentKind::Server, slug).await?
        else {
            return Ok(());
        };
        let id = found.document.key.id.parse()?;
        let record: ServerRecord = found.document.parse_body()?;
        if !record.is_configured {
            return Ok(());
        }
        let actor = Actor::new(tenant, Subject::User(LOCAL_USER));
        self.delete_server(actor, id, &record.slug).await
    }

    async fn add_configured(&self, actor: Actor, configured: ConfiguredServer) -> Result<()> {
        let (id, now, tenant) =
            (ServerId::new(&*self.context.platform), self.context.platform.now(), actor.tenant());
        let ConfiguredServer { slug, settings, transport, .. } = configured;
        let stored_transport = StoredTransport::from_transport(&transport);
        let (is_configured, is_undeclared) = (true, false);
        let record = ServerRecord {
            slug,
            settings,
            transport: stored_transport,
            is_configured,
            is_undeclared,
            created: now,
            updated: now,
        };
        let entry = self
            .context
            .entry(actor, "server.added")
            .with("server", id.to_string())
            .with("slug", record.slug.as_str());
        let batch = Batch::new().change(upsert(record.document(id)?, 0)).audit(entry);
        self.servers.set_program(tenant, id, transport.into_program()); // before the event: its subscribers look the program up
        if let Err(error) =
            self.context.store.commit(tenant, batch.with_event(event_payloads::server(id, "added"))).await
        {
            self.servers.set_program(tenant, id, None);
            return Err(error);
        }
        if record.settings.enabled {
            self.schedule_sync(tenant, id);
        }
        Ok(())
    }

    async fn update_configured(
        &self,
        actor: Actor,
        id: ServerId,
        record: ServerRecord,
        version: u64,
        configured: ConfiguredServer,
    ) -> Result<()> {
        let tenant = actor.tenant();
        let ConfiguredServer { settings, transport, .. } = configured;
        let before = self.servers.find_program(tenant, id);
        let is_first = matches!(transport, Transport::Stdio(_)) && before.is_none();
        let same_program = match &transport {
            Transport::Stdio(program) => is_first || before.as_ref() == Some(program),
            Transport::Http(_) | Transport::Sse(_) => true,
        };
        let is_same = record.settings == settings
            && record.transport == StoredTransport::from_transport(&transport)
            && same_program;
        if !is_same || record.is_undeclared {
            return self.save_server(actor, id, record, version, settings, transport).await;
        }
        self.servers.set_program(tenant, id, transport.into_program());
        if is_first && settings.enabled {
            self.schedule_sync(tenant, id); // first time since the hub was started
        }
        Ok(())
    }
}
