//! Documents: stored JSON objects of the hub, identified by kind and id. A document may have a name that is unique in
//! its kind.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{self, Error, Result};

/// Kind of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Server. Its name is its slug.
    Server,
    /// Tool record. Its parent is the server.
    Tool,
    /// Server contact: when the hub last reached a server, and the last sync error. Its parent is the server.
    Contact,
    /// Encrypted secret. Its parent is the server that it is for.
    Secret,
    /// Wrapped key of the tenant.
    TenantKey,
    /// Agent.
    Agent,
    /// API token. Its parent is the agent or user.
    Token,
    /// User.
    User,
    /// Browser session. Its parent is the user.
    Session,
    /// One-time login link. Its parent is the user.
    Link,
    /// Lease that one hub of a cluster holds, such as for a token refresh. Its parent, if any, is the server.
    Lease,
    /// Audit segment. Its id is the number of the first entry.
    Segment,
    /// Grant status with its HTTP trace. Its parent is the server.
    Trace,
    /// Id of the store, named by the signed audit heads. There is one, in the first tenant.
    StoreId,
}

impl Kind {
    /// All kinds.
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

    /// Returns whether hubs cache such documents: every call reads them.
    pub fn is_remembered(self) -> bool {
        matches!(self, Kind::Server | Kind::Tool | Kind::Agent)
    }

    /// Finds a kind by its stored name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns the stored name.
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

/// Key of a document within a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// Kind of the document.
    pub kind: Kind,
    /// Id of the document.
    pub id: String,
}

impl Key {
    /// Creates a key.
    pub fn new(kind: Kind, id: impl std::fmt::Display) -> Self {
        Key { kind, id: id.to_string() }
    }
}

/// Document without its version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// Key.
    pub key: Key,
    /// Name, unique in the kind.
    pub name: Option<String>,
    /// Id of the parent. When the parent is deleted, this document must be deleted, too.
    pub parent: Option<String>,
    /// JSON body.
    pub body: Value,
}

/// Document as stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// Document.
    pub document: Document,
    /// Version, from 1, increased by each change.
    pub version: u64,
}

impl Document {
    /// Creates a document with this body.
    pub fn new(key: Key, body: &impl Serialize) -> Result<Self> {
        let body = serde_json::to_value(body).map_err(|error| {
            Error::new(
                error::Kind::Internal,
                "not_written",
                format!("the {} cannot be serialized: {error}", key.kind.name()),
            )
        })?;
        Ok(Document { key, name: None, parent: None, body })
    }

    /// Sets the name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the parent.
    #[must_use]
    pub fn of(mut self, parent: impl std::fmt::Display) -> Self {
        self.parent = Some(parent.to_string());
        self
    }

    /// Deserializes the body.
    pub fn read<T: DeserializeOwned>(self) -> Result<T> {
        let Key { kind, id } = self.key;
        serde_json::from_value(self.body).map_err(|error| {
            let text = format!("the {} {id} cannot be read: {error}", kind.name());
            Error::new(error::Kind::Internal, "not_readable", text)
        })
    }
}
