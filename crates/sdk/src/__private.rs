//! What the macros and the fuzz targets refer to. Not part of the public interface.

pub use schemars;
pub use serde;

pub use crate::server::{Item, Register, RequiredState};

#[cfg(any(feature = "http-client", feature = "http-server"))]
pub use crate::http::outside as http;

#[cfg(feature = "http-client")]
pub use crate::auth::outside as auth;

use crate::Result;

/// Notes the types of state that the handler of an item takes.
pub fn with_state(item: Result<Item>, required: &[RequiredState]) -> Result<Item> {
    item.map(|mut item| {
        item.require_state(required);
        item
    })
}

/// Asks for a future that may move between threads where rustc can say why one may not.
pub fn sendable<F: Future + Send + 'static>(future: F) -> impl Future<Output = F::Output> + Send + 'static {
    future
}
