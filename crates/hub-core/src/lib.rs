//! Core of the hub: domain types, policy and operations. It does not depend on a database, an HTTP server, the command
//! line or the environment: the store, the clock and the source of randomness are passed in.
//!
//! | topic | module |
//! |---|---|
//! | servers and their settings | [`server`] |
//! | slugs and qualified tool names | [`tool::names`] |
//! | policy decisions about calls | [`policy`] |
//! | approvals that cover later calls | [`approval_rule`] |
//! | permissions of callers | [`permission`] |
//! | fingerprints of trusted tool definitions | [`tool::pin`] |
//! | pool of upstream connections | [`connection`] |
//! | killing server processes of a killed hub | [`process_guard`] |
//! | encrypted secrets | [`vault`] |
//! | size-bounded tool results | [`bounded_result`] |
//! | hash-chained audit | [`audit`] |
//! | stored data and transactions | [`store`] |
//! | W3C trace context | [`trace_context`] |

pub mod actor;
pub mod agent;
pub mod api_token;
pub mod approval_rule;
pub mod audit;
pub mod backup;
pub mod bounded_result;
pub mod connection;
pub mod digest;
pub mod error;
pub mod events;
pub mod hub;
pub mod id;
mod lock;
pub mod number;
pub mod object_reader;
pub mod permission;
pub mod platform;
pub mod policy;
pub mod private_file;
pub mod process_guard;
pub mod rate_limit;
pub mod secrets;
pub mod server;
pub mod store;
mod task_set;
pub mod telemetry;
mod text;
pub mod tool;
pub mod trace_context;
mod uri_pattern;
pub mod vault;

pub use actor::{Actor, Subject};
pub use error::{Error, ErrorKind, Result};
pub use permission::Permission;
pub use platform::Platform;
pub use secrets::scan::is_secret_name;
pub use text::{escape_invisible, shorten};
