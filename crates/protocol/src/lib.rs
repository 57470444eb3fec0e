//! Types of the Model Context Protocol.
//!
//! [`model`] contains revision-neutral types, the superset of all revisions, one file per page of the specification.
//! [`methods`] is the table of all methods, [`version`] defines the revisions, and only [`wire`] knows how the JSON of
//! the two eras differs. This crate does no I/O and reads no clock.

pub mod encode;
pub mod error;
pub mod methods;
pub mod model;
pub mod version;
pub mod wire;

pub use error::{Error, code};
pub use methods::{Direction, Method};
pub use version::{Era, Feature, Revision};
