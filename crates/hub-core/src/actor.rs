//! Actor of an operation: the tenant and the subject. Every read, write and connection requires one.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind, Result};
use crate::id::{AgentId, TenantId, UserId};
use crate::permission::Permission;
use crate::text::shorten;

/// Subject that acts: a user, an agent or the hub itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// Authenticated user.
    User(UserId),
    /// Agent, authenticated by its token. It cannot do what requires a user.
    Agent(AgentId),
    /// The hub itself. It syncs servers and never calls a tool.
    Hub,
}

/// Who performs an operation: a subject (user, agent or the hub itself) in a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Actor {
    tenant: TenantId,
    subject: Subject,
}

impl Actor {
    /// Creates an actor: a subject in a tenant. Only for code that has authenticated the caller.
    pub const fn new(tenant: TenantId, subject: Subject) -> Self {
        Actor { tenant, subject }
    }

    /// Returns the tenant in which the subject acts.
    pub fn tenant(self) -> TenantId {
        self.tenant
    }

    /// Returns the subject that acts: a user, an agent or the hub.
    pub fn subject(self) -> Subject {
        self.subject
    }

    /// Returns the user, or an error if the subject is not a user.
    pub fn require_user(self) -> Result<UserId> {
        match self.subject {
            Subject::User(user) => Ok(user),
            Subject::Agent(_) | Subject::Hub => {
                let text = "this operation requires a user; agent tokens are not accepted";
                Err(Error::new(ErrorKind::PermissionDenied, "user_required", text))
            }
        }
    }

    /// Fails if the actor lacks a permission.
    pub fn require(self, permission: Permission) -> Result<()> {
        let has_it = match self.subject {
            Subject::User(_) => true,
            Subject::Agent(_) => permission.is_of_agents(),
            Subject::Hub => false,
        };
        if has_it {
            return Ok(());
        }
        let text = format!(
            "this operation requires the permission `{permission}`, which agents do not have: use the token of a user"
        );
        Err(Error::new(ErrorKind::PermissionDenied, "user_required", text))
    }

    /// Returns the agent, if the subject is one.
    pub fn agent(self) -> Option<AgentId> {
        match self.subject {
            Subject::Agent(agent) => Some(agent),
            Subject::User(_) | Subject::Hub => None,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::User(user) => write!(f, "user:{user}"),
            Subject::Agent(agent) => write!(f, "agent:{agent}"),
            Subject::Hub => f.write_str("hub"),
        }
    }
}

impl FromStr for Subject {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text.split_once(':') {
            Some(("user", id)) => Ok(Subject::User(id.parse()?)),
            Some(("agent", id)) => Ok(Subject::Agent(id.parse()?)),
            None if text == "hub" => Ok(Subject::Hub),
            _ => Err(Error::not_found("subject", shorten(text))),
        }
    }
}
