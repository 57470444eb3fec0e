//! Names of subjects: users and agents.

use std::collections::HashMap;

use super::Hub;
use super::users::User;
use crate::agent::Agent;
use crate::error::Result;
use crate::id::TenantId;
use crate::scope::{Scope, Subject};
use crate::store::Kind;

/// Cache of subject names for one list. Each is looked up once.
pub(super) struct Names<'a> {
    hub: &'a Hub,
    tenant: TenantId,
    known: HashMap<String, Option<String>>,
}

impl Names<'_> {
    /// Returns the name of a user or agent. `None` for the hub itself and for a removed subject.
    pub(super) async fn of(&mut self, subject: &str) -> Result<Option<String>> {
        if let Some(name) = self.known.get(subject) {
            return Ok(name.clone());
        }
        let name = self.hub.subject_name(self.tenant, subject).await?;
        self.known.insert(subject.to_owned(), name.clone());
        Ok(name)
    }
}

impl Hub {
    pub(super) fn names(&self, tenant: TenantId) -> Names<'_> {
        Names { hub: self, tenant, known: HashMap::new() }
    }

    async fn subject_name(&self, tenant: TenantId, subject: &str) -> Result<Option<String>> {
        Ok(match subject.parse() {
            Ok(Subject::User(id)) => {
                self.find::<User>(tenant, Kind::User, id).await?.map(|(user, _)| user.name)
            }
            Ok(Subject::Agent(id)) => {
                self.find::<Agent>(tenant, Kind::Agent, id).await?.map(|(agent, _)| agent.name)
            }
            Ok(Subject::Hub) | Err(_) => None,
        })
    }

    /// Returns the name of the caller. `None` if the store cannot be read: a call must not fail because of it.
    pub(super) async fn caller_name(&self, scope: Scope) -> Option<String> {
        self.subject_name(scope.tenant(), &scope.subject().to_string()).await.ok().flatten()
    }
}
