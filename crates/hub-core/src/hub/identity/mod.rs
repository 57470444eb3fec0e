//! Users, sessions, API tokens and login: who may use the hub.

pub(super) mod authenticator;
pub(super) mod hash_queue;
pub(super) mod login_links;
pub(super) mod login_rejections;
pub(super) mod login_throttle;
pub(super) mod passwords;
pub mod sessions;
pub mod tokens;
pub mod users;
