//! Items used by the macros and the fuzz targets. Not part of the public API.

pub use schemars;
pub use serde;

pub use crate::server::{CatalogItem, Register, RequiredState};

#[cfg(any(feature = "http-client", feature = "http-server"))]
pub use crate::http::fuzzing as http;

#[cfg(feature = "http-client")]
pub use crate::auth::fuzzing as auth;

use crate::Result;

/// Records the types of shared state that the handler of a tool, resource or prompt requires.
pub fn with_state(item: Result<CatalogItem>, required: &[RequiredState]) -> Result<CatalogItem> {
    item.map(|mut item| {
        item.require_state(required);
        item
    })
}

/// Requires a `Send` future at a point where rustc can explain why a future is not `Send`.
pub fn require_send<F: Future + Send + 'static>(
    future: F,
) -> impl Future<Output = F::Output> + Send + 'static {
    future
}
