//! Core of the hub: domain types, policy and operations. It does not depend on a database, an HTTP server, the command
//! line or the environment: the store, the clock and the source of randomness are passed in.
//!
//! | topic | module |
//! |---|---|
//! | servers and their settings | [`server`] |
//! | slugs and qualified tool names | [`names`] |
//! | policy decisions about calls | [`policy`] |
//! | fingerprints of trusted tool definitions | [`pin`] |
//! | pool of upstream connections | [`connection`] |
//! | killing server processes of a killed hub | [`guard`] |
//! | encrypted secrets | [`vault`] |
//! | size-bounded tool results | [`envelope`] |
//! | hash-chained audit | [`audit`] |
//! | stored data and transactions | [`store`] |

pub mod agent;
pub mod audit;
pub mod backup;
pub mod connection;
pub mod digest;
pub mod envelope;
pub mod error;
pub mod events;
pub mod form;
pub mod guard;
pub mod heads;
mod hidden;
pub mod hub;
pub mod id;
pub mod keys;
pub mod likeness;
pub mod limit;
pub mod names;
pub mod number;
mod own;
pub mod pin;
pub mod policy;
pub mod private;
pub mod scope;
pub mod segment;
pub mod server;
pub mod spans;
pub mod store;
mod sync;
mod tasks;
mod text;
pub mod token;
pub mod tool;
pub mod vault;
pub mod world;

pub use error::{Error, Kind, Result};
pub use hidden::looks_secret;
pub use scope::{Scope, Subject};
pub use world::World;
