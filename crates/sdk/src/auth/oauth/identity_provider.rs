//! Identity provider of an organisation, for the enterprise-managed authorization flow.

use crate::auth::error::AuthError;
use crate::auth::flow::client_identity::{ClientAuthMethod, ClientIdentity};
use crate::auth::secret::Secret;
use crate::auth::{AuthFuture, boxed};

/// Identity provider of an organisation, where users are already signed in.
pub struct IdentityProvider {
    pub(in crate::auth) token_endpoint: String,
    client_id: String,
    client_secret: Option<Secret>,
    pub(in crate::auth) id_token: Box<dyn Fn() -> AuthFuture<'static, Secret> + Send + Sync>,
}

impl IdentityProvider {
    /// Creates a provider from its token endpoint, the client id there, and a function that returns the ID token of the
    /// signed-in user.
    pub fn new<F, Fut>(token_endpoint: impl Into<String>, client_id: impl Into<String>, id_token: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Secret, AuthError>> + Send + 'static,
    {
        IdentityProvider {
            token_endpoint: token_endpoint.into(),
            client_id: client_id.into(),
            client_secret: None,
            id_token: Box::new(move || boxed(id_token())),
        }
    }

    /// Sets the client secret at the identity provider.
    #[must_use]
    pub fn client_secret(mut self, secret: impl Into<Secret>) -> Self {
        self.client_secret = Some(secret.into());
        self
    }

    pub(in crate::auth) fn identity(&self) -> ClientIdentity {
        let method =
            if self.client_secret.is_some() { ClientAuthMethod::Post } else { ClientAuthMethod::None };
        ClientIdentity::new(&self.client_id, self.client_secret.clone(), method)
    }
}
