//! Shared code of the interop tests: starting peers, recording stdio and HTTP traffic, transcripts and their replay, a
//! Linchpin client that uses all features of the tour servers, and the hub with its command line and REST API.

#![expect(clippy::unwrap_used, reason = "used only in tests, which fail on a panic")]

pub mod bindings;
pub mod client;
pub mod conversation;
mod http;
pub mod hub;
pub mod log;
pub mod peer;
pub mod person;
pub mod play_client;
pub mod play_server;
pub mod proxy;
pub mod record;
pub mod rest;
pub mod sign_in;
pub mod stdio;
pub mod tour;

use std::time::Duration;

/// Timeout of operations that are normally immediate. Generous, since Node.js starts slowly on a busy machine.
pub const PATIENCE: Duration = Duration::from_mins(1);
