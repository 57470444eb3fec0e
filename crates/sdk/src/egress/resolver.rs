//! Name resolution, once per connection.

use std::io;
use std::net::IpAddr;

use super::BoxFuture;

/// Resolver of host names to IP addresses. Replaceable for tests and for programs with their own resolver.
pub trait Resolver: Send + Sync {
    /// Resolves a host name to its IP addresses, best first. It is never called with an address.
    fn resolve(&self, name: &str) -> BoxFuture<io::Result<Vec<IpAddr>>>;
}

/// Resolver of host names by the operating system.
pub(super) struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve(&self, name: &str) -> BoxFuture<io::Result<Vec<IpAddr>>> {
        let name = name.to_owned();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}
