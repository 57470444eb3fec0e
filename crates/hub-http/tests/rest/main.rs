//! Tests of the HTTP interface on real sockets, with a real upstream server.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod access;
mod approval_rules;
mod approvals;
mod bodies;
mod calls;
mod csrf;
mod events;
mod fixture;
mod guard;
mod oauth;
mod openapi;
mod page;
mod passwords;
mod retries;
mod server_requests;
mod servers;
mod sign_in;
mod status;
mod tools;
#[path = "../../../hub-store/tests/support/upstream.rs"]
mod upstream;
mod users_agents_tokens;
mod views;
