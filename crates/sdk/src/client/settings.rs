//! Settings of a client, fixed when it connects.

use std::time::Duration;

use linchpin_protocol::Revision;
use linchpin_protocol::model::{Implementation, LogLevel};

/// Settings of an MCP client, fixed when it connects.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) info: Implementation,
    /// Protocol revisions that the client supports.
    pub(crate) revisions: Vec<Revision>,
    pub(crate) timeout: Duration,
    pub(crate) max_timeout: Option<Duration>,
    pub(crate) open_timeout: Duration,
    pub(crate) probe_timeout: Duration,
    pub(crate) max_message_bytes: usize,
    pub(crate) max_pages: usize,
    pub(crate) max_rounds: usize,
    pub(crate) string_ids: bool,
    /// Whether the client caches responses.
    pub(crate) cache: bool,
    pub(crate) log_level: Option<LogLevel>,
    /// Name of the server in log events.
    pub(crate) label: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            info: Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION")),
            revisions: Revision::ALL.to_vec(),
            timeout: Duration::from_secs(30),
            max_timeout: None,
            open_timeout: Duration::from_mins(1),
            probe_timeout: Duration::from_secs(5),
            max_message_bytes: 8 << 20,
            max_pages: 1_000,
            max_rounds: 32,
            string_ids: false,
            cache: true,
            log_level: None,
            label: None,
        }
    }
}
