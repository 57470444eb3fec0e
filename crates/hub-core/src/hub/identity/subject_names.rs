//! Lookup of the names of users and agents, for views and lists.

use std::collections::HashMap;
use std::sync::Mutex;

use super::users::UserRecord;
use crate::actor::{Actor, Subject};
use crate::agent::Agent;
use crate::error::Result;
use crate::hub::identity::Identity;
use crate::id::{TenantId, UserId};
use crate::lock::lock;
use crate::store::DocumentKind;

/// Maximum number of cached user names.
const MAX_CACHED: usize = 1_000;

/// Cached name of a user; `None` if the user does not exist.
#[derive(Clone)]
struct UserName(Option<String>);

/// Cache of the names of callers, so that a call does not read the store for them. The name of a user never changes.
#[derive(Default)]
pub(in crate::hub) struct UserNames(Mutex<HashMap<(TenantId, UserId), UserName>>);

impl UserNames {
    fn get(&self, tenant: TenantId, user: UserId) -> Option<UserName> {
        lock(&self.0).get(&(tenant, user)).cloned()
    }

    fn insert(&self, tenant: TenantId, user: UserId, name: UserName) {
        let mut names = lock(&self.0);
        if names.len() >= MAX_CACHED {
            names.clear();
        }
        names.insert((tenant, user), name);
    }
}

/// Names of the users and agents in one list, each of which is looked up once.
pub(in crate::hub) struct SubjectNames<'a> {
    identity: &'a Identity,
    tenant: TenantId,
    names: HashMap<String, Option<String>>,
}

impl SubjectNames<'_> {
    /// Returns the display name of a user or agent, from the cache or the store. `None` for the hub itself and for a
    /// removed subject.
    pub(in crate::hub) async fn get(&mut self, subject: &str) -> Result<Option<String>> {
        if let Some(name) = self.names.get(subject) {
            return Ok(name.clone());
        }
        let name = self.identity.subject_name(self.tenant, subject).await?;
        self.names.insert(subject.to_owned(), name.clone());
        Ok(name)
    }
}

impl Identity {
    pub(in crate::hub) fn names(&self, tenant: TenantId) -> SubjectNames<'_> {
        SubjectNames { identity: self, tenant, names: HashMap::new() }
    }

    async fn subject_name(&self, tenant: TenantId, subject: &str) -> Result<Option<String>> {
        Ok(match subject.parse() {
            Ok(Subject::User(id)) => self
                .context
                .load::<UserRecord>(tenant, DocumentKind::User, id)
                .await?
                .map(|(user, _)| user.name),
            Ok(Subject::Agent(id)) => self
                .context
                .load::<Agent>(tenant, DocumentKind::Agent, id)
                .await?
                .map(|(agent, _)| agent.name),
            Ok(Subject::Hub) | Err(_) => None,
        })
    }

    /// Returns the display name of the calling user or agent. `None` if the store cannot be read: a call must not fail
    /// because of it.
    pub(in crate::hub) async fn caller_name(&self, actor: Actor) -> Option<String> {
        let (tenant, subject) = (actor.tenant(), actor.subject());
        let user = match subject {
            Subject::User(user) => user,
            Subject::Agent(agent) => {
                let snapshot = self.agent_snapshot(tenant, agent).await.ok().flatten();
                return snapshot.map(|snapshot| snapshot.agent.name.clone());
            }
            Subject::Hub => return None,
        };
        if let Some(UserName(name)) = self.user_names.get(tenant, user) {
            return name;
        }
        let name = self.subject_name(tenant, &subject.to_string()).await.ok()?;
        self.user_names.insert(tenant, user, UserName(name.clone()));
        name
    }
}
