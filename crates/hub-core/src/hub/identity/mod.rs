//! Users, sessions, API tokens, agents and login: who may use the hub.

pub mod agents;
pub(super) mod authenticator;
pub(super) mod hash_queue;
pub(super) mod login_links;
pub(super) mod login_rejections;
pub(super) mod login_throttle;
pub(super) mod passwords;
pub mod sessions;
pub(super) mod snapshots;
pub(super) mod subject_names;
pub mod tokens;
pub mod users;

use std::sync::Arc;

use self::authenticator::Authenticator;
use self::snapshots::{AgentSnapshot, TokenSnapshot};
use self::subject_names::UserNames;
use super::context::HubContext;
use super::registry::Registry;
use super::registry::directory::ServerDirectory;
use super::snapshots::Snapshots;
use super::upstream::Upstream;
use crate::api_token;
use crate::id::{AgentId, TenantId, TokenId};

/// Users and agents of the hub: their passwords, sessions, tokens and names.
pub struct Identity {
    context: Arc<HubContext>,
    servers: Arc<ServerDirectory>,
    upstream: Arc<Upstream>,
    registry: Arc<Registry>,
    authenticator: Authenticator,
    user_names: UserNames,
    agents: Snapshots<(TenantId, AgentId), AgentSnapshot>,
    tokens: Snapshots<TokenId, TokenSnapshot>,
}

impl Identity {
    pub(in crate::hub) fn new(
        context: Arc<HubContext>,
        servers: Arc<ServerDirectory>,
        upstream: Arc<Upstream>,
        registry: Arc<Registry>,
    ) -> Self {
        let authenticator = Authenticator::new(&*context.platform);
        let secrets = api_token::secret_bytes(&authenticator.process.secret);
        context.keys.hub_secrets().add(secrets.iter().map(|secret| &**secret));
        let agents = Snapshots::new(context.generation.clone());
        let tokens = Snapshots::new(context.generation.clone());
        let user_names = UserNames::default();
        Identity { context, servers, upstream, registry, authenticator, user_names, agents, tokens }
    }
}
