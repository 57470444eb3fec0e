//! OAuth configuration of an endpoint.

use std::sync::Arc;

use super::HttpEndpoint;
use crate::server::Auth;

impl HttpEndpoint {
    /// Requires a valid access token for every request. Serves the protected resource metadata at
    /// `/.well-known/oauth-protected-resource` and allows the host of the resource.
    ///
    /// Cannot be combined with [`Self::principal`].
    pub fn auth(mut self, auth: Auth) -> Self {
        let clock = self.service.as_ref().map(|service| service.settings().clock.clone()).unwrap_or_default();
        match auth.build(clock) {
            Ok((resource, host)) if self.options.auth.is_none() => {
                self.options.auth = Some(Arc::new(resource));
                self.allow_host(host)
            }
            Ok(_) => {
                self.set_error("`auth` is set more than once".into());
                self
            }
            Err(fault) => {
                self.set_error(format!("invalid `auth`: {fault}"));
                self
            }
        }
    }
}
