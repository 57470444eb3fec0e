//! Stored form of servers: settings, transport and last contact.

use jiff::Timestamp;
use linchpin::egress::Target;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::hub::document;
use crate::hub::upstream::{features::FeatureCounts, server_info::ServerInfo};
use crate::id::ServerId;
use crate::server::{RemoteEndpoint, Server, ServerSettings, Transport};
use crate::store::{Document, DocumentKind};
use crate::tool::SkippedTool;
use crate::tool::names::Slug;

/// Server as stored in the database of the hub. The command of a stdio server is only in the configuration file.
#[derive(Serialize, Deserialize)]
pub(in crate::hub) struct ServerRecord {
    pub(in crate::hub) slug: Slug,
    pub(in crate::hub) settings: ServerSettings,
    #[serde(rename = "place")]
    pub(in crate::hub) transport: StoredTransport,
    #[serde(rename = "is_from_file")]
    pub(in crate::hub) is_configured: bool,
    /// Whether the configuration file no longer declares the server.
    #[serde(default, rename = "has_left_file")]
    pub(in crate::hub) is_undeclared: bool,
    pub(in crate::hub) created: Timestamp,
    pub(in crate::hub) updated: Timestamp,
}

/// Transport of a server as stored. The command of a stdio server is only in the configuration file.
#[derive(PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::hub) enum StoredTransport {
    Stdio,
    Http(RemoteEndpoint),
    Sse(RemoteEndpoint),
}

/// Last contact with a server and result of its last sync.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::hub) struct ServerContact {
    pub(in crate::hub) last_connected: Option<Timestamp>,
    pub(in crate::hub) last_synced: Option<Timestamp>,
    /// Why the last sync failed.
    pub(in crate::hub) error: Option<String>,
    /// Version of the server with which it was last contacted.
    #[serde(default, rename = "of")]
    pub(in crate::hub) server_version: u64,
    /// Number of tools of the server after its last sync, without skipped ones.
    pub(in crate::hub) tools: usize,
    /// What the server reported of itself at its last sync. Absent in records of older versions.
    #[serde(default)]
    pub(in crate::hub) info: Option<ServerInfo>,
    /// Number of resources, resource templates and prompts at the last sync that could list them.
    #[serde(default)]
    pub(in crate::hub) features: Option<FeatureCounts>,
    /// Tools that the last sync has skipped. Absent in records of older versions.
    #[serde(default, rename = "left_out")]
    pub(in crate::hub) skipped: Vec<SkippedTool>,
}

impl StoredTransport {
    pub(in crate::hub) fn from_transport(transport: &Transport) -> Self {
        match transport {
            Transport::Stdio(_) => StoredTransport::Stdio,
            Transport::Http(remote) => StoredTransport::Http(remote.clone()),
            Transport::Sse(remote) => StoredTransport::Sse(remote.clone()),
        }
    }

    pub(in crate::hub) fn url(&self) -> Option<&str> {
        match self {
            StoredTransport::Stdio => None,
            StoredTransport::Http(remote) | StoredTransport::Sse(remote) => Some(&remote.url),
        }
    }

    pub(in crate::hub) fn origin(&self) -> Option<String> {
        Some(Target::configured(self.url()?).ok()?.origin())
    }
}

impl ServerRecord {
    pub(in crate::hub) fn from_server(server: Server) -> Self {
        let transport = StoredTransport::from_transport(&server.transport);
        let Server { slug, settings, is_configured, is_undeclared, created, updated, .. } = server;
        ServerRecord { slug, settings, transport, is_configured, is_undeclared, created, updated }
    }

    pub(in crate::hub) fn document(&self, id: ServerId) -> Result<Document> {
        Ok(document(DocumentKind::Server, id, self)?.with_name(self.slug.as_str()))
    }
}
