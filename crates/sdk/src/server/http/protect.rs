//! Telling an endpoint whom to believe.

use std::sync::Arc;

use super::Http;
use crate::server::Auth;

impl Http {
    /// Lets in only those who send an access token that is believed. Where tokens come from is served beside the
    /// endpoint, at `/.well-known/oauth-protected-resource`; the host of the resource is allowed.
    ///
    /// It is an error to have [`Self::principal`] as well.
    pub fn auth(mut self, auth: Auth) -> Self {
        let clock = self.service.as_ref().map(|service| service.settings().clock.clone()).unwrap_or_default();
        match auth.finish(clock) {
            Ok((resource, host)) if self.options.auth.is_none() => {
                self.options.auth = Some(Arc::new(resource));
                self.allow_host(host)
            }
            Ok(_) => {
                self.fail("whom to believe is said twice: one `auth` is enough".into());
                self
            }
            Err(fault) => {
                self.fail(format!("`auth` cannot be used so: {fault}"));
                self
            }
        }
    }
}
