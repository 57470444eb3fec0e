//! The servers of the operator's file: the hub has exactly those, as the file says. Their commands are kept in memory
//! alone.

use std::collections::HashSet;

use super::servers::{Kept, Place};
use super::{Hub, put};
use crate::error::Result;
use crate::id::{ServerId, TenantId};
use crate::scope::{Scope, Subject};
use crate::server::{Launch, Operated, Transport};
use crate::store::{Batch, Kind};
use crate::sync::lock;

impl Hub {
    /// Takes what the operator's file says now. A server whose short name is taken by one that is not from the file is
    /// left out, and said to be.
    pub async fn operate(&self, tenant: TenantId, servers: Vec<Operated>) -> Result<Vec<String>> {
        let (scope, mut left_out) = (Scope::new(tenant, Subject::Hub), Vec::new());
        let named: HashSet<_> = servers.iter().map(|server| server.slug.clone()).collect();
        let known = self.kept_servers(tenant).await?;
        for (id, kept) in known.iter().filter(|(_, kept)| kept.is_from_file && !named.contains(&kept.slug)) {
            self.forget_server(scope, *id, &kept.slug).await?;
            lock(&self.launches).remove(&(tenant, *id));
        }
        for server in servers {
            match known.iter().find(|(_, kept)| kept.slug == server.slug) {
                Some((_, kept)) if !kept.is_from_file => left_out.push(server.slug.as_str().to_owned()),
                Some((id, _)) => self.operate_again(scope, *id, server).await?,
                None => self.operate_new(scope, server).await?,
            }
        }
        Ok(left_out)
    }

    async fn kept_servers(&self, tenant: TenantId) -> Result<Vec<(ServerId, Kept)>> {
        let all = self.stored(tenant, Kind::Server, None).await?;
        all.into_iter().map(|stored| Ok((stored.document.key.id.parse()?, stored.document.read()?))).collect()
    }

    async fn operate_new(&self, scope: Scope, operated: Operated) -> Result<()> {
        let (id, now, tenant) = (ServerId::new(&*self.world), self.world.now(), scope.tenant());
        let Operated { slug, settings, transport, .. } = operated;
        let place = Place::of(&transport);
        let kept = Kept { slug, settings, place, is_from_file: true, created: now, updated: now };
        let entry =
            self.entry(scope, "server.added").with("server", id.to_string()).with("slug", kept.slug.as_str());
        self.store.commit(tenant, Batch::new().change(put(kept.document(id)?, 0)).audit(entry)).await?;
        self.keep_launch(tenant, id, transport);
        self.server_changed(tenant, id, "added");
        if kept.settings.enabled {
            self.look_soon(tenant, id);
        }
        Ok(())
    }

    async fn operate_again(&self, scope: Scope, id: ServerId, operated: Operated) -> Result<()> {
        let tenant = scope.tenant();
        let before = self.launch(tenant, id);
        let Operated { settings, transport, .. } = operated;
        let is_first = matches!(transport, Transport::Stdio(_)) && before.is_none();
        self.keep_launch(tenant, id, transport.clone());
        let server = self.find_server(tenant, &id.to_string()).await?;
        let same_launch = match &transport {
            Transport::Stdio(launch) => is_first || before.as_ref() == Some(launch),
            Transport::Http(_) | Transport::Sse(_) => true,
        };
        if server.settings == settings && server.transport == transport && same_launch {
            if is_first && settings.enabled {
                self.look_soon(tenant, id); // the hub has just been started
            }
            return Ok(());
        }
        self.replace_server(scope, &server, settings, transport).await
    }

    pub(super) fn launch(&self, tenant: TenantId, server: ServerId) -> Option<Launch> {
        lock(&self.launches).get(&(tenant, server)).cloned()
    }

    fn keep_launch(&self, tenant: TenantId, server: ServerId, transport: Transport) {
        let mut launches = lock(&self.launches);
        match transport {
            Transport::Stdio(launch) => launches.insert((tenant, server), launch),
            Transport::Http(_) | Transport::Sse(_) => launches.remove(&(tenant, server)),
        };
    }
}
