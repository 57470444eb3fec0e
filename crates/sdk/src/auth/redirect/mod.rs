//! Redirect handler: sends the user to the authorization URL. How that is done is up to the application.

pub(super) mod loopback;

use super::error::AuthError;
use super::secret::Secret;
use super::{AuthFuture, boxed};

/// Handler that sends a user to the authorization server and receives the redirect back.
pub trait RedirectHandler: Send + Sync + 'static {
    /// Returns the redirect URI to send in the next authorization request. Called just before [`Self::redirect`].
    fn redirect_uri(&self) -> AuthFuture<'_, String>;

    /// Sends the user to `url`, waits for the redirect, and returns the URL of the redirect unchanged.
    ///
    /// The URL comes from the network. It uses `https`, or `http` on this machine, and has only visible ASCII
    /// characters; still, it must never be passed to a shell.
    fn redirect(&self, url: String) -> AuthFuture<'_, String>;

    /// Like [`Self::redirect`], with the flow state for [`OAuth::resume_sign_in`](super::OAuth::resume_sign_in): for
    /// handlers that do not wait.
    fn redirect_detached(&self, url: String, _rest: Secret) -> AuthFuture<'_, String> {
        self.redirect(url)
    }
}

/// Redirect handler for an application that provides its own redirect URI and callback.
pub(super) struct CustomRedirect {
    uri: String,
    redirect: Box<dyn Fn(String) -> AuthFuture<'static, String> + Send + Sync>,
}

impl CustomRedirect {
    pub(super) fn new<F, Fut>(uri: String, redirect: F) -> Self
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, AuthError>> + Send + 'static,
    {
        CustomRedirect { uri, redirect: Box::new(move |url| boxed(redirect(url))) }
    }
}

impl RedirectHandler for CustomRedirect {
    fn redirect_uri(&self) -> AuthFuture<'_, String> {
        boxed(async { Ok(self.uri.clone()) })
    }

    fn redirect(&self, url: String) -> AuthFuture<'_, String> {
        (self.redirect)(url)
    }
}
