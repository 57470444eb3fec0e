//! The hub on a real store, with real upstream servers.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod approval_rules;
mod approvals;
mod as_agent;
mod audit;
mod audit_heads;
mod background_loop;
mod background_task;
mod calls;
mod cancel;
mod cancel_cluster;
#[path = "../support/clock.rs"]
mod clock;
mod configured_servers;
mod credentials;
mod disconnected_clients;
mod documents;
mod egress;
mod faulty_store;
mod fixture;
mod key_rotation;
mod oauth;
mod oauth_cluster;
mod oauth_configured;
mod oauth_expiries;
mod oauth_fixture;
mod oauth_leases;
mod oauth_lifecycle;
mod oauth_misbehaviour;
mod rejections;
mod resources_prompts;
mod segments;
mod server_info;
mod server_requests;
mod snapshots;
mod statuses;
mod stopped_hub;
mod subscriptions;
mod sync;
mod tasks;
mod tenants;
mod tools;
mod trace_context;
mod uncertain_commits;
#[path = "../support/upstream.rs"]
mod upstream;
mod waiting_requests;
