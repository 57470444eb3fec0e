//! Integration of the HTTP endpoint with axum.

use axum::Router;

use super::{HttpEndpoint, HttpService};
use crate::Result;

impl HttpEndpoint {
    /// Returns the endpoint as a router, to be merged with others.
    ///
    /// `axum::serve` has no timeouts: put it behind a proxy that has them, or use [`HttpEndpoint::bind`].
    pub fn into_router(self) -> Result<Router> {
        let service: HttpService = self.into_service()?;
        let paths: Vec<_> = service.paths().map(str::to_owned).collect();
        Ok(paths.iter().fold(Router::new(), |router, path| router.route_service(path, service.clone())))
    }
}
