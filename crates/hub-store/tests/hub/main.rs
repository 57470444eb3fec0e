//! The hub on a real store, with real upstream servers.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod approvals;
mod aside;
mod audit;
mod calls;
mod cancelling;
mod cancelling_hubs;
#[path = "../support/clock.rs"]
mod clock;
mod credentials;
mod doubts;
mod egress;
mod gated;
mod heads;
mod key_rotation;
mod leaving;
mod looks;
mod oauth;
mod oauth_configured;
mod oauth_expiries;
mod oauth_hubs;
mod oauth_leases;
mod oauth_life;
mod oauth_switches;
mod offers;
mod operated;
mod refusals;
mod runs;
mod segments;
mod signing;
mod stage;
mod statuses;
mod tasks;
mod tenants;
mod tools;
#[path = "../support/upstream.rs"]
mod upstream;
