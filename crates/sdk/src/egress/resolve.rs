//! Names become addresses here, once for each connection.

use std::io;
use std::net::IpAddr;

use super::BoxFuture;

/// Looks names up. Replaced in tests and by programs with a resolver of their own.
pub trait Resolve: Send + Sync {
    /// The addresses of a name, best first. Never asked about addresses.
    fn resolve(&self, name: &str) -> BoxFuture<io::Result<Vec<IpAddr>>>;
}

/// The resolver of the operating system.
pub(super) struct System;

impl Resolve for System {
    fn resolve(&self, name: &str) -> BoxFuture<io::Result<Vec<IpAddr>>> {
        let name = name.to_owned();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}
