//! Stored form of servers: settings, transport and last contact.

use jiff::Timestamp;
use linchpin::egress::Target;
use serde::{Deserialize, Serialize};

use super::document;
use crate::error::Result;
use crate::id::ServerId;
use crate::server::{Remote, Server, Settings, Transport};
use crate::store::{Document, Kind};
use crate::tool::LeftOut;
use crate::tool::names::Slug;

/// Stored server. The command of a stdio server is only in the configuration file.
#[derive(Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) slug: Slug,
    pub(super) settings: Settings,
    pub(super) place: Place,
    pub(super) is_from_file: bool,
    /// Whether the configuration file no longer declares the server.
    #[serde(default)]
    pub(super) has_left_file: bool,
    pub(super) created: Timestamp,
    pub(super) updated: Timestamp,
}

/// Stored transport. The command of a stdio server is only in the configuration file.
#[derive(PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Place {
    Stdio,
    Http(Remote),
    Sse(Remote),
}

/// Last contact with a server and result of its last sync.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Contact {
    pub(super) last_connected: Option<Timestamp>,
    pub(super) last_synced: Option<Timestamp>,
    /// Why the last sync failed.
    pub(super) error: Option<String>,
    /// Version of the server that the error belongs to.
    #[serde(default)]
    pub(super) of: u64,
    /// Number of tools.
    pub(super) tools: usize,
    /// Skipped tools of the last sync. Absent in records of older versions.
    #[serde(default)]
    pub(super) left_out: Vec<LeftOut>,
}

impl Place {
    pub(super) fn of(transport: &Transport) -> Self {
        match transport {
            Transport::Stdio(_) => Place::Stdio,
            Transport::Http(remote) => Place::Http(remote.clone()),
            Transport::Sse(remote) => Place::Sse(remote.clone()),
        }
    }

    pub(super) fn url(&self) -> Option<&str> {
        match self {
            Place::Stdio => None,
            Place::Http(remote) | Place::Sse(remote) => Some(&remote.url),
        }
    }

    pub(super) fn origin(&self) -> Option<String> {
        Some(Target::typed(self.url()?).ok()?.origin())
    }
}

impl Kept {
    pub(super) fn of(server: Server) -> Self {
        let place = Place::of(&server.transport);
        let Server { slug, settings, is_from_file, has_left_file, created, updated, .. } = server;
        Kept { slug, settings, place, is_from_file, has_left_file, created, updated }
    }

    pub(super) fn document(&self, id: ServerId) -> Result<Document> {
        Ok(document(Kind::Server, id, self)?.named(self.slug.as_str()))
    }
}
