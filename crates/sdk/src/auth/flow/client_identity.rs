//! Client identity at an authorization server, and client authentication at the token endpoint (RFC 6749 section 2.3,
//! RFC 7523 section 2.2).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::http::FlowRequest;
use super::pkce::random_text;
use super::private_key::PrivateKey;
use super::server_metadata::ServerMetadata;
use crate::auth::error::{AuthError, AuthErrorKind};
use crate::auth::form_urlencoded;
use crate::auth::secret::{self, Secret};

/// Lifetime of a client assertion, in seconds.
const ASSERTION_LIFETIME: u64 = 300;

/// How the OAuth client authenticates at the token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::auth) enum ClientAuthMethod {
    #[serde(rename = "none")]
    None,
    #[serde(rename = "client_secret_basic")]
    Basic,
    #[serde(rename = "client_secret_post")]
    Post,
    #[serde(rename = "private_key_jwt")]
    PrivateKey,
}

impl ClientAuthMethod {
    pub(in crate::auth) fn name(self) -> &'static str {
        match self {
            ClientAuthMethod::None => "none",
            ClientAuthMethod::Basic => "client_secret_basic",
            ClientAuthMethod::Post => "client_secret_post",
            ClientAuthMethod::PrivateKey => "private_key_jwt",
        }
    }

    pub(in crate::auth) fn find(name: &str) -> Option<Self> {
        [
            ClientAuthMethod::None,
            ClientAuthMethod::Basic,
            ClientAuthMethod::Post,
            ClientAuthMethod::PrivateKey,
        ]
        .into_iter()
        .find(|method| method.name() == name)
    }

    /// Returns the first preferred client authentication method that the authorization server supports. A server that
    /// lists none is assumed to support all.
    pub(in crate::auth) fn choose(
        preferred: &[ClientAuthMethod],
        server: &ServerMetadata,
    ) -> Option<ClientAuthMethod> {
        let is_supported = |method: &ClientAuthMethod| {
            server
                .auth_methods
                .as_ref()
                .is_none_or(|supported| supported.iter().any(|name| name == method.name()))
        };
        preferred.iter().copied().find(is_supported)
    }
}

/// OAuth client as registered at one authorization server: id, secret and authentication method.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::auth) struct ClientIdentity {
    pub(in crate::auth) id: String,
    #[serde(default, with = "secret::optional")]
    pub(in crate::auth) secret: Option<Secret>,
    pub(in crate::auth) method: ClientAuthMethod,
    /// Redirect URI with which the client registered itself.
    pub(in crate::auth) redirect_uri: Option<String>,
    /// Scopes that the registration of the client listed, if any.
    #[serde(default)]
    pub(in crate::auth) scopes: Option<String>,
    /// Expiry of the secret, in seconds since the Unix epoch.
    pub(in crate::auth) expires_at: Option<u64>,
}

impl ClientIdentity {
    /// Creates the identity of an OAuth client that was not registered dynamically.
    pub(in crate::auth) fn new(id: &str, secret: Option<Secret>, method: ClientAuthMethod) -> Self {
        ClientIdentity {
            id: id.to_owned(),
            secret,
            method,
            redirect_uri: None,
            scopes: None,
            expires_at: None,
        }
    }

    /// Adds client authentication to a request.
    pub(in crate::auth) fn authenticate(
        &self,
        request: &mut FlowRequest,
        key: Option<&PrivateKey>,
        issuer: &str,
        now: u64,
    ) -> Result<(), AuthError> {
        let secret = self.secret.as_ref().map_or("", Secret::expose);
        match self.method {
            ClientAuthMethod::None => request.field("client_id", &self.id),
            ClientAuthMethod::Post => {
                request.field("client_id", &self.id);
                request.secret_field("client_secret", secret);
            }
            ClientAuthMethod::Basic => {
                let pair = format!(
                    "{}:{}",
                    form_urlencoded::encode_value(&self.id),
                    form_urlencoded::encode_value(secret)
                );
                request.header("authorization", &format!("Basic {}", STANDARD.encode(pair)));
                request.mark_secret(secret);
            }
            ClientAuthMethod::PrivateKey => {
                let missing = || {
                    AuthError::new(
                        AuthErrorKind::Setup,
                        "the client authenticates with a private key, but none is configured",
                    )
                };
                let assertion = self.assertion(key.ok_or_else(missing)?, issuer, now)?;
                request.field("client_id", &self.id);
                request
                    .field("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
                request.secret_field("client_assertion", &assertion);
            }
        }
        Ok(())
    }

    fn assertion(&self, key: &PrivateKey, issuer: &str, now: u64) -> Result<String, AuthError> {
        let claims = json!({
            "iss": self.id, "sub": self.id, "aud": issuer,
            "jti": random_text().expose(), "iat": now, "exp": now + ASSERTION_LIFETIME,
        });
        key.sign(&claims)
    }
}
