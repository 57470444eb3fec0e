//! The one part of signing in that only a person can do. How they are asked is up to the host of the client.

use super::error::AuthError;
use super::secret::Secret;
use super::{AuthFuture, boxed};

/// Somebody who can be asked to sign in.
pub trait Person: Send + Sync + 'static {
    /// Where the browser is sent when the person has signed in. It is asked for just before [`Self::visit`].
    fn redirect_uri(&self) -> AuthFuture<'_, String>;

    /// Leads the person to `url` and waits until they are back. Gives the URL that they came back to, as it was.
    ///
    /// The URL comes from the network. It is `https`, or `http` on this machine, and has only visible characters of
    /// ASCII; still it must never reach a shell.
    fn visit(&self, url: String) -> AuthFuture<'_, String>;

    /// The same, with what [`OAuth::come_back`](super::OAuth::come_back) needs to go on: for those who do not wait.
    fn lead(&self, url: String, _rest: Secret) -> AuthFuture<'_, String> {
        self.visit(url)
    }
}

/// A host with a redirect URI of its own.
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
