//! Documents: everything that people set up, each by its kind, its id and, if it has one, a name that no other of its
//! kind has.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{self, Error, Result};

/// What a document is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A server. Its name is its slug.
    Server,
    /// A tool of a server, which is its parent.
    Tool,
    /// When the hub last spoke with a server, which is its parent.
    Contact,
    /// A secret that is sealed. Its parent is the server that it is for.
    Secret,
    /// The sealed key of the tenant.
    TenantKey,
    /// An agent.
    Agent,
    /// A token of an agent or a user, who is its parent.
    Token,
    /// A person.
    User,
    /// Somebody who has signed in at a browser. Its parent is the user.
    Session,
    /// What signs somebody in once. Its parent is the user.
    Link,
    /// Held by whoever renews a sign-in. Its parent is the server.
    Lease,
    /// Entries of the audit that are in a file. Its id is the number of the first.
    Segment,
    /// How it stands with a sign-in. Its parent is the server.
    Trace,
    /// The id of the store, by which the signed head of the audit knows it. There is one, of the first tenant.
    StoreId,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 14] = [
        Kind::Server,
        Kind::Tool,
        Kind::Contact,
        Kind::Secret,
        Kind::TenantKey,
        Kind::Agent,
        Kind::Token,
        Kind::User,
        Kind::Session,
        Kind::Link,
        Kind::Lease,
        Kind::Segment,
        Kind::Trace,
        Kind::StoreId,
    ];

    /// Whether hubs remember such documents: every call asks for them.
    pub fn is_remembered(self) -> bool {
        matches!(self, Kind::Server | Kind::Tool | Kind::Agent)
    }

    /// The one with this name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// How it is called where it is kept.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Server => "server",
            Kind::Tool => "tool",
            Kind::Contact => "contact",
            Kind::Secret => "secret",
            Kind::TenantKey => "tenant_key",
            Kind::Agent => "agent",
            Kind::Token => "token",
            Kind::User => "user",
            Kind::Session => "session",
            Kind::Link => "link",
            Kind::Lease => "lease",
            Kind::Segment => "segment",
            Kind::Trace => "trace",
            Kind::StoreId => "store_id",
        }
    }
}

/// Which document, within a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// What it is.
    pub kind: Kind,
    /// Its id.
    pub id: String,
}

impl Key {
    /// The key of a document.
    pub fn new(kind: Kind, id: impl std::fmt::Display) -> Self {
        Key { kind, id: id.to_string() }
    }
}

/// A document as it is to be kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// Which.
    pub key: Key,
    /// The name that no other of its kind may have.
    pub name: Option<String>,
    /// What it belongs to. When that is removed, this must be, too.
    pub parent: Option<String>,
    /// What it says.
    pub body: Value,
}

/// A document as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// The document.
    pub document: Document,
    /// Counts its changes, from one on.
    pub version: u64,
}

impl Document {
    /// A document that says this.
    pub fn new(key: Key, body: &impl Serialize) -> Result<Self> {
        let body = serde_json::to_value(body).map_err(|error| {
            Error::new(
                error::Kind::Internal,
                "not_written",
                format!("a {} cannot be written: {error}", key.kind.name()),
            )
        })?;
        Ok(Document { key, name: None, parent: None, body })
    }

    /// With a name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// As a part of something.
    #[must_use]
    pub fn of(mut self, parent: impl std::fmt::Display) -> Self {
        self.parent = Some(parent.to_string());
        self
    }

    /// What it says.
    pub fn read<T: DeserializeOwned>(self) -> Result<T> {
        let Key { kind, id } = self.key;
        serde_json::from_value(self.body).map_err(|error| {
            let text = format!("the {} {id} cannot be read: {error}", kind.name());
            Error::new(error::Kind::Internal, "not_readable", text)
        })
    }
}
