//! What the macros refer to. Not part of the public interface.

pub use schemars;
pub use serde;

pub use crate::server::{Item, Register};
