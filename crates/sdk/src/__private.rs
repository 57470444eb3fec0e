//! What the macros and the fuzz targets refer to. Not part of the public interface.

pub use schemars;
pub use serde;

pub use crate::server::{Item, Register};

#[cfg(any(feature = "http-client", feature = "http-server"))]
pub use crate::http::outside as http;

#[cfg(feature = "http-client")]
pub use crate::auth::outside as auth;

use crate::Result;

/// A function with one of the attribute macros. For any other function, the message of the trait says more than
/// rustc's own about `FnOnce`.
#[diagnostic::do_not_recommend]
impl<F, R> Register for F
where
    F: FnOnce() -> R,
    R: Register,
{
    fn register(self) -> Result<Item> {
        self().register()
    }
}

/// Asks for a future that may move between threads where rustc can say why one may not.
pub fn sendable<F: Future + Send + 'static>(future: F) -> impl Future<Output = F::Output> + Send + 'static {
    future
}
