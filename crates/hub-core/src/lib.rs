//! The rules of the hub. It knows no database, no HTTP server, no command line and no environment: where things are
//! kept, what time it is and what is random is passed in.
//!
//! | asks | finds |
//! |---|---|
//! | what is a server, and what may stand in its fields? | [`server`] |
//! | by which name does a model call a tool? | [`names`] |
//! | may this call be made? | [`policy`] |
//! | is this tool the one that was trusted? | [`pin`] |
//! | how is a server reached, and for whom? | [`connection`] |
//! | what ends the programs of a hub that was killed? | [`guard`] |
//! | where are secrets? | [`vault`] |
//! | what does a model see of a result? | [`envelope`] |
//! | can somebody have changed the record? | [`audit`] |
//! | where is everything, and how does it change? | [`store`] |

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
