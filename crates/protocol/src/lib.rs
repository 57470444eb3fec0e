//! What the Model Context Protocol says, as types.
//!
//! [`model`] holds neutral types, the superset of all revisions, one file per page of the specification.
//! [`methods`] is the table of all methods, [`version`] knows the revisions, and [`wire`] is the only place that
//! knows how the eras differ in JSON. Nothing here does I/O or reads a clock.

pub mod encode;
pub mod error;
pub mod methods;
pub mod model;
pub mod version;
pub mod wire;

pub use error::{Error, code};
pub use methods::{Direction, Method};
pub use version::{Era, Feature, Revision};
