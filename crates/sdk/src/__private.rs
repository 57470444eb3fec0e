//! What the macros refer to. Not part of the public interface.

pub use schemars;
pub use serde;

pub use crate::server::{Item, Register};

use crate::Result;

/// A function with one of the attribute macros.
impl<F, R> Register for F
where
    F: FnOnce() -> R,
    R: Register,
{
    fn register(self) -> Result<Item> {
        self().register()
    }
}
