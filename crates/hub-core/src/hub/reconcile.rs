//! Configured servers: declared in the configuration file. Their commands are held in memory only. A server that leaves
//! the file is disabled; only a command of a user deletes it with its secrets.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use super::LOCAL_USER;
use super::server_records::{Kept, Place};
use super::{Hub, event_payloads, put};
use crate::actor::{Scope, Subject};
use crate::error::{self, Error, Result};
use crate::id::{ServerId, TenantId};
use crate::lock::lock;
use crate::server::{Launch, Operated, Transport};
use crate::store::{Batch, Kind, Stored};

impl Hub {
    /// Applies the servers of the configuration file. Returns the slugs that were skipped because a server that is not
    /// from the file has them.
    pub async fn operate(&self, tenant: TenantId, servers: Vec<Operated>) -> Result<Vec<String>> {
        let is_first = !self.has_operated.load(Ordering::SeqCst);
        let left_out = match self.try_operate(tenant, servers.clone(), is_first).await {
            // Another hub applies its file concurrently.
            Err(error) if error.kind() == error::Kind::Conflict => {
                self.try_operate(tenant, servers, is_first).await?
            }
            done => done?,
        };
        self.has_operated.store(true, Ordering::SeqCst);
        Ok(left_out)
    }

    /// Makes one attempt of [`Self::operate`]. `is_first`: this hub has not applied its file yet.
    async fn try_operate(
        &self,
        tenant: TenantId,
        servers: Vec<Operated>,
        is_first: bool,
    ) -> Result<Vec<String>> {
        let (scope, mut left_out, mut errors) = (Scope::new(tenant, Subject::Hub), Vec::new(), Vec::new());
        let named: HashSet<_> = servers.iter().map(|server| server.slug.clone()).collect();
        let mut known = self.kept_servers(tenant).await?;
        // Each hub of a cluster has its own file. A hub that starts with an old file, or none, must not disable the
        // servers of the others.
        if is_first && self.store.shared().is_some() {
            for (_, kept, _) in
                known.extract_if(.., |(_, kept, _)| kept.is_from_file && !named.contains(&kept.slug))
            {
                tracing::warn!(
                    server = kept.slug.as_str(),
                    "a server of another hub is not in this hub's configuration file"
                );
            }
        }
        // A failure for one server does not affect the others.
        for (id, kept, version) in
            known.extract_if(.., |(_, kept, _)| kept.is_from_file && !named.contains(&kept.slug))
        {
            let slug = kept.slug.clone();
            let done = self.leave_file(scope, id, kept, version).await;
            errors.extend(done.err().map(|error| (slug, error)));
        }
        for server in servers {
            let slug = server.slug.clone();
            let place = known.iter().position(|(_, kept, _)| kept.slug == slug);
            let done = match place.map(|place| known.swap_remove(place)) {
                Some((_, kept, _)) if !kept.is_from_file => {
                    left_out.push(slug.as_str().to_owned());
                    Ok(())
                }
                Some((id, kept, version)) => self.operate_again(scope, id, kept, version, server).await,
                None => self.operate_new(scope, server).await,
            };
            errors.extend(done.err().map(|error| (slug, error)));
        }
        let Some((_, first)) = errors.first() else { return Ok(left_out) };
        let text: Vec<_> =
            errors.iter().map(|(slug, error)| format!("`{}`: {error}", slug.as_str())).collect();
        Err(Error::new(first.kind(), first.code(), text.join("; ")))
    }

    /// Disables a server that is not in the configuration file any more. Its id, tools and secrets stay until the file
    /// declares it again or a user removes it.
    async fn leave_file(&self, scope: Scope, id: ServerId, mut kept: Kept, version: u64) -> Result<()> {
        if kept.has_left_file {
            return Ok(());
        }
        let tenant = scope.tenant();
        tracing::warn!(
            server = kept.slug.as_str(),
            "server is not in the configuration file any more; disabled, its secrets stay stored"
        );
        (kept.has_left_file, kept.settings.enabled, kept.updated) = (true, false, self.world.now());
        let entry = self.entry(scope, "server.changed").with("server", id.to_string());
        let entry = entry.with("configuration_file", "not declared");
        let batch = Batch::new().change(put(kept.document(id)?, version)).audit(entry);
        self.store.commit(tenant, batch.tell(event_payloads::server(id, "changed"))).await?;
        self.keep_launch(tenant, id, None);
        self.connections.outdated(tenant, id, Some(version + 1), true);
        Ok(())
    }

    /// Deletes a configured server with its tools and secrets, if it exists. For a command on the machine of the hub
    /// that has removed it from the configuration file while no hub is running.
    pub async fn delete_configured(&self, tenant: TenantId, slug: &str) -> Result<()> {
        let Some(found) = self.store.named(tenant, Kind::Server, slug).await? else { return Ok(()) };
        let id = found.document.key.id.parse()?;
        let kept: Kept = found.document.read()?;
        if !kept.is_from_file {
            return Ok(());
        }
        let scope = Scope::new(tenant, Subject::User(LOCAL_USER));
        self.forget_server(scope, id, &kept.slug).await
    }

    async fn kept_servers(&self, tenant: TenantId) -> Result<Vec<(ServerId, Kept, u64)>> {
        let all = self.stored(tenant, Kind::Server, None).await?;
        let read =
            |stored: Stored| Ok((stored.document.key.id.parse()?, stored.document.read()?, stored.version));
        all.into_iter().map(read).collect()
    }

    async fn operate_new(&self, scope: Scope, operated: Operated) -> Result<()> {
        let (id, now, tenant) = (ServerId::new(&*self.world), self.world.now(), scope.tenant());
        let Operated { slug, settings, transport, .. } = operated;
        let place = Place::of(&transport);
        let (is_from_file, has_left_file) = (true, false);
        let kept = Kept { slug, settings, place, is_from_file, has_left_file, created: now, updated: now };
        let entry =
            self.entry(scope, "server.added").with("server", id.to_string()).with("slug", kept.slug.as_str());
        let batch = Batch::new().change(put(kept.document(id)?, 0)).audit(entry);
        self.keep_launch(tenant, id, transport.launch()); // before the event: its subscribers look the program up
        if let Err(error) = self.store.commit(tenant, batch.tell(event_payloads::server(id, "added"))).await {
            self.keep_launch(tenant, id, None);
            return Err(error);
        }
        if kept.settings.enabled {
            self.look_soon(tenant, id);
        }
        Ok(())
    }

    async fn operate_again(
        &self,
        scope: Scope,
        id: ServerId,
        kept: Kept,
        version: u64,
        operated: Operated,
    ) -> Result<()> {
        let tenant = scope.tenant();
        let Operated { settings, transport, .. } = operated;
        let before = self.launch(tenant, id);
        let is_first = matches!(transport, Transport::Stdio(_)) && before.is_none();
        let same_launch = match &transport {
            Transport::Stdio(launch) => is_first || before.as_ref() == Some(launch),
            Transport::Http(_) | Transport::Sse(_) => true,
        };
        let is_same = kept.settings == settings && kept.place == Place::of(&transport) && same_launch;
        if !is_same || kept.has_left_file {
            return self.replace_server(scope, id, kept, version, settings, transport).await;
        }
        self.keep_launch(tenant, id, transport.launch());
        if is_first && settings.enabled {
            self.look_soon(tenant, id); // first time since the hub was started
        }
        Ok(())
    }

    pub(super) fn launch(&self, tenant: TenantId, server: ServerId) -> Option<Launch> {
        lock(&self.launches).get(&(tenant, server)).cloned().flatten()
    }

    /// Marks the program of a server as unknown. Logs this once, until it is known again.
    pub(super) fn has_no_launch(&self, tenant: TenantId, server: ServerId, error: &Error) {
        if lock(&self.launches).insert((tenant, server), None).is_none() {
            tracing::warn!(server.id = %server, %error, "skipping a server without a program");
        }
    }

    /// Sets the program of a stdio server. Returns the previous one.
    pub(super) fn keep_launch(
        &self,
        tenant: TenantId,
        server: ServerId,
        launch: Option<Launch>,
    ) -> Option<Launch> {
        let mut launches = lock(&self.launches);
        let before = match launch {
            Some(launch) => launches.insert((tenant, server), Some(launch)),
            None => launches.remove(&(tenant, server)),
        };
        before.flatten()
    }
}
