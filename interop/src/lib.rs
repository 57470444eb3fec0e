//! Shared code of the interop tests: starting peers, recording stdio and HTTP traffic, transcripts and their replay, a
//! Linchpin client that uses all features of the tour servers, and the hub with its command line and REST API.

#![expect(clippy::unwrap_used, reason = "used only in tests, which fail on a panic")]

pub mod client;
pub mod expected_report;
mod http;
pub mod http_log;
pub mod hub;
pub mod oauth_fixture;
pub mod peer;
pub mod placeholders;
pub mod recording_proxy;
pub mod replay_client;
pub mod replay_server;
pub mod rest_client;
pub mod schema_check;
pub mod stdio_recording;
pub mod test_browser;
pub mod transcript_text;

use std::time::Duration;

/// Timeout of operations that are normally immediate. Generous, since Node.js starts slowly on a busy machine.
pub const TEST_TIMEOUT: Duration = Duration::from_mins(1);
