//! Whose something is: nothing is read, kept or reached without it.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Kind, Result};
use crate::id::{AgentId, TenantId, UserId};
use crate::text::shortened;

/// Who acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// A person who has signed in.
    User(UserId),
    /// A program, by a token of its own. It never decides what needs a person.
    Agent(AgentId),
    /// The hub itself: it looks at what servers have, and never calls a tool.
    Hub,
}

/// In whose name, and within which tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Scope {
    tenant: TenantId,
    subject: Subject,
}

impl Scope {
    /// For whoever has found out who asks, and nobody else.
    pub const fn new(tenant: TenantId, subject: Subject) -> Self {
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

    /// The person who acts. Nobody else may do what this is asked for.
    pub fn person(self) -> Result<UserId> {
        match self.subject {
            Subject::User(user) => Ok(user),
            Subject::Agent(_) | Subject::Hub => {
                let text =
                    "only a person who has signed in may do this: the token of an agent does not count";
                Err(Error::new(Kind::Denied, "person_needed", text))
            }
        }
    }

    /// The agent that acts, if it is one.
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
            _ => Err(Error::not_found("subject", shortened(text))),
        }
    }
}
