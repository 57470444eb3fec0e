//! Gateway of a hub with one upstream server: access, approvals, and clients and servers that misbehave.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod access;
mod approvals;
mod bad_clients;
mod bad_servers;
mod fixture;
mod names;
mod scripted_server;
