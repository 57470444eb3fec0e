//! Stored form of servers: settings, transport and last contact.

use jiff::Timestamp;
use linchpin::egress::Target;
use serde::{Deserialize, Serialize};

use super::document;
use crate::error::Result;
use crate::id::ServerId;
use crate::server::{RemoteEndpoint, Server, ServerSettings, Transport};
use crate::store::{Document, DocumentKind};
use crate::tool::SkippedTool;
use crate::tool::names::Slug;

/// Server as stored in the database of the hub. The command of a stdio server is only in the configuration file.
#[derive(Serialize, Deserialize)]
pub(super) struct ServerRecord {
    pub(super) slug: Slug,
    pub(super) settings: ServerSettings,
    pub(super) place: StoredTransport,
    pub(super) is_from_file: bool,
    /// Whether the configuration file no longer declares the server.
    #[serde(default)]
    pub(super) has_left_file: bool,
    pub(super) created: Timestamp,
    pub(super) updated: Timestamp,
}

/// Transport of a server as stored. The command of a stdio server is only in the configuration file.
#[derive(PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum StoredTransport {
    Stdio,
    Http(RemoteEndpoint),
    Sse(RemoteEndpoint),
}

/// Last contact with a server and result of its last sync.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ServerContact {
    pub(super) last_connected: Option<Timestamp>,
    pub(super) last_synced: Option<Timestamp>,
    /// Why the last sync failed.
    pub(super) error: Option<String>,
    /// Version of the server settings with which the last sync failed.
    #[serde(default)]
    pub(super) of: u64,
    /// Number of tools that the server listed.
    pub(super) tools: usize,
    /// Tools that the last sync has skipped. Absent in records of older versions.
    #[serde(default)]
    pub(super) left_out: Vec<SkippedTool>,
}

impl StoredTransport {
    pub(super) fn from_transport(transport: &Transport) -> Self {
        match transport {
            Transport::Stdio(_) => StoredTransport::Stdio,
            Transport::Http(remote) => StoredTransport::Http(remote.clone()),
            Transport::Sse(remote) => StoredTransport::Sse(remote.clone()),
        }
    }

    pub(super) fn url(&self) -> Option<&str> {
        match self {
            StoredTransport::Stdio => None,
            StoredTransport::Http(remote) | StoredTransport::Sse(remote) => Some(&remote.url),
        }
    }

    pub(super) fn origin(&self) -> Option<String> {
        Some(Target::configured(self.url()?).ok()?.origin())
    }
}

impl ServerRecord {
    pub(super) fn from_server(server: Server) -> Self {
        let transport = StoredTransport::from_transport(&server.transport);
        let Server { slug, settings, is_configured, is_undeclared, created, updated, .. } = server;
        ServerRecord {
            slug,
            settings,
            place: transport,
            is_from_file: is_configured,
            has_left_file: is_undeclared,
            created,
            updated,
        }
    }

    pub(super) fn document(&self, id: ServerId) -> Result<Document> {
        Ok(document(DocumentKind::Server, id, self)?.with_name(self.slug.as_str()))
    }
}
