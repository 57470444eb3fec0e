//! Redirect handler: sends the user to the authorization URL. How that is done is up to the application.

pub(super) mod loopback;

use super::error::AuthError;
use super::secret::Secret;
use super::{AuthFuture, boxed};

/// Redirect handler, which sends a user to the authorization server.
pub trait Person: Send + Sync + 'static {
    /// Returns the redirect URI. Called just before [`Self::visit`].
    fn redirect_uri(&self) -> AuthFuture<'_, String>;

    /// Sends the user to `url`, waits for the redirect, and returns the URL of the redirect unchanged.
    ///
    /// The URL comes from the network. It uses `https`, or `http` on this machine, and has only visible ASCII
    /// characters; still, it must never be passed to a shell.
    fn visit(&self, url: String) -> AuthFuture<'_, String>;

    /// Like [`Self::visit`], with the flow state for [`OAuth::come_back`](super::OAuth::come_back): for handlers that
    /// do not wait.
    fn lead(&self, url: String, _rest: Secret) -> AuthFuture<'_, String> {
        self.visit(url)
    }
}

/// Redirect handler with an application-defined redirect URI.
pub(super) struct Redirected {
    uri: String,
    visit: Box<dyn Fn(String) -> AuthFuture<'static, String> + Send + Sync>,
}

impl Redirected {
    pub(super) fn new<F, Fut>(uri: String, visit: F) -> Self
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, AuthError>> + Send + 'static,
    {
        Redirected { uri, visit: Box::new(move |url| boxed(visit(url))) }
    }
}

impl Person for Redirected {
    fn redirect_uri(&self) -> AuthFuture<'_, String> {
        boxed(async { Ok(self.uri.clone()) })
    }

    fn visit(&self, url: String) -> AuthFuture<'_, String> {
        (self.visit)(url)
    }
}
