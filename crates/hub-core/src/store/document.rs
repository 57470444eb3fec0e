//! Documents: stored JSON objects of the hub, identified by kind and id. A document may have a name that is unique in
//! its kind.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::digest::Digest;
use crate::error::{self, Error, Result};
use crate::text::shorten;

/// Kind of a stored document, such as an agent or a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DocumentKind {
    /// Configuration of an MCP server. Its name is its slug.
    Server,
    /// Record of a tool that a server lists. Its parent is the server.
    Tool,
    /// Server contact: when the hub last reached a server, and the last sync error. Its parent is the server.
    Contact,
    /// Encrypted secret. Its parent is the server that it is for.
    Secret,
    /// Key of a tenant, encrypted with the root key.
    TenantKey,
    /// Agent.
    Agent,
    /// Approval rule. Its parent is the agent.
    ApprovalRule,
    /// API token. Its parent is the agent or user.
    Token,
    /// User of the hub.
    User,
    /// Browser session. Its parent is the user.
    Session,
    /// One-time login link. Its parent is the user.
    Link,
    /// Lease that one hub of a cluster holds, such as for a token refresh. Its parent, if any, is the server.
    Lease,
    /// Audit segment. Its id is the number of the first entry.
    Segment,
    /// Status of an OAuth grant, with its recent HTTP requests. Its parent is the server.
    Trace,
    /// Resources, resource templates and prompts that a server lists. Its parent is the server.
    Features,
    /// Request of a client that waits for an approval or for its result. Its id is that of the call, its name the digest
    /// that the approval is bound to.
    WaitingRequest,
    /// Id of the store, named by the signed audit heads. There is one, in the first tenant.
    StoreId,
}

impl DocumentKind {
    /// All kinds of documents.
    pub const ALL: [DocumentKind; 17] = [
        DocumentKind::Server,
        DocumentKind::Tool,
        DocumentKind::Contact,
        DocumentKind::Secret,
        DocumentKind::TenantKey,
        DocumentKind::Agent,
        DocumentKind::ApprovalRule,
        DocumentKind::Token,
        DocumentKind::User,
        DocumentKind::Session,
        DocumentKind::Link,
        DocumentKind::Lease,
        DocumentKind::Segment,
        DocumentKind::Trace,
        DocumentKind::Features,
        DocumentKind::WaitingRequest,
        DocumentKind::StoreId,
    ];

    /// Returns whether hubs cache documents of this kind, which every call reads.
    pub fn is_cached(self) -> bool {
        matches!(
            self,
            DocumentKind::Server
                | DocumentKind::Tool
                | DocumentKind::Agent
                | DocumentKind::ApprovalRule
                | DocumentKind::Token
                | DocumentKind::Features
        )
    }

    /// Finds a kind of documents by its stored name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns the name of the document kind in the store.
    pub fn name(self) -> &'static str {
        match self {
            DocumentKind::Server => "server",
            DocumentKind::Tool => "tool",
            DocumentKind::Contact => "contact",
            DocumentKind::Secret => "secret",
            DocumentKind::TenantKey => "tenant_key",
            DocumentKind::Agent => "agent",
            DocumentKind::ApprovalRule => "approval_rule",
            DocumentKind::Token => "token",
            DocumentKind::User => "user",
            DocumentKind::Session => "session",
            DocumentKind::Link => "link",
            DocumentKind::Lease => "lease",
            DocumentKind::Segment => "segment",
            DocumentKind::Trace => "trace",
            DocumentKind::Features => "features",
            DocumentKind::WaitingRequest => "waiting_request",
            DocumentKind::StoreId => "store_id",
        }
    }
}

/// Key of a stored document within its tenant: kind and id.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DocumentKey {
    /// Kind of the document.
    pub kind: DocumentKind,
    /// Id of the document.
    pub id: String,
}

impl DocumentKey {
    /// Creates the key of a document.
    pub fn new(kind: DocumentKind, id: impl std::fmt::Display) -> Self {
        DocumentKey { kind, id: id.to_string() }
    }
}

/// Document to be stored: key, name, parent and JSON body, without a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// Kind and id of the document.
    pub key: DocumentKey,
    /// Name of the document, unique in its kind.
    pub name: Option<String>,
    /// Id of the document that this one belongs to. When the parent is deleted, this document must be deleted, too.
    pub parent: Option<String>,
    /// JSON body of the document.
    pub body: Value,
    /// Authentication code of the stored document; see [`super::AuthenticatedStore`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Digest>,
}

/// Document with its version, as stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredDocument {
    /// Document, without its version.
    pub document: Document,
    /// Version of the document, from 1, increased by each change.
    pub version: u64,
}

impl Document {
    /// Creates a document with this body.
    pub fn new(key: DocumentKey, body: &impl Serialize) -> Result<Self> {
        let body = serde_json::to_value(body).map_err(|error| {
            Error::new(
                error::ErrorKind::Internal,
                "record_unwritable",
                format!("the {} cannot be serialized: {error}", key.kind.name()),
            )
        })?;
        Ok(Document { key, name: None, parent: None, body, code: None })
    }

    /// Sets the name of the document, by which it can be found instead of its id.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the parent of the document, such as the server of a tool.
    #[must_use]
    pub fn with_parent(mut self, parent: impl std::fmt::Display) -> Self {
        self.parent = Some(parent.to_string());
        self
    }

    /// Describes the document for messages, for example "the agent `helper`".
    pub fn describe(&self) -> String {
        let DocumentKey { kind, id } = &self.key;
        let name = self.name.as_ref().unwrap_or(id);
        format!("the {} `{}`", kind.name().replace('_', " "), shorten(name))
    }

    /// Deserializes the body of the document.
    pub fn parse_body<T: DeserializeOwned>(self) -> Result<T> {
        let DocumentKey { kind, id } = self.key;
        serde_json::from_value(self.body).map_err(|error| {
            let text = format!("the {} {id} cannot be read: {error}", kind.name());
            Error::new(error::ErrorKind::Internal, "record_unreadable", text)
        })
    }
}
