//! What the tests of this package share: starting peers, hearing what is said on stdio and over HTTP, conversations
//! that are written down and played back, a client of ours that uses everything a server of this folder has, and the hub
//! as people and programs use it.

#![expect(clippy::unwrap_used, reason = "it is only used in tests, which end where something is wrong")]

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

/// How long something may take that happens at once. Generous: machines that build meanwhile start node slowly.
pub const PATIENCE: Duration = Duration::from_mins(1);
