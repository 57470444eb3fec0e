//! Whose something is: nothing is read, kept or reached without it.

use std::fmt;

use crate::id::{AgentId, TenantId, UserId};

/// Who acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// A person who has signed in.
    User(UserId),
    /// A program, by a token of its own. It never decides what needs a person.
    Agent(AgentId),
}

/// In whose name, and within which tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Scope {
    tenant: TenantId,
    subject: Subject,
}

impl Scope {
    /// For whoever has found out who asks, and nobody else.
    pub fn new(tenant: TenantId, subject: Subject) -> Self {
        Scope { tenant, subject }
    }

    /// The tenant.
    pub fn tenant(self) -> TenantId {
        self.tenant
    }

    /// Who acts.
    pub fn subject(self) -> Subject {
        self.subject
    }

    /// The agent that acts, if it is one.
    pub fn agent(self) -> Option<AgentId> {
        match self.subject {
            Subject::Agent(agent) => Some(agent),
            Subject::User(_) => None,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::User(user) => write!(f, "user:{user}"),
            Subject::Agent(agent) => write!(f, "agent:{agent}"),
        }
    }
}
