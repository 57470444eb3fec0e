//! Who the client is at an authorization server, and how it proves that at the token endpoint (RFC 6749 2.3,
//! RFC 7523 2.2).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::error::{AuthError, AuthErrorKind};
use super::exchange::Exchange;
use super::form;
use super::key::PrivateKey;
use super::pkce::random_text;
use super::secret::{self, Secret};
use super::server_metadata::ServerMetadata;

/// How long a proof of who asks is good for, in seconds.
const ASSERTION_LIFE: u64 = 300;

/// How a client proves who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Method {
    #[serde(rename = "none")]
    None,
    #[serde(rename = "client_secret_basic")]
    Basic,
    #[serde(rename = "client_secret_post")]
    Post,
    #[serde(rename = "private_key_jwt")]
    PrivateKey,
}

impl Method {
    pub(super) fn name(self) -> &'static str {
        match self {
            Method::None => "none",
            Method::Basic => "client_secret_basic",
            Method::Post => "client_secret_post",
            Method::PrivateKey => "private_key_jwt",
        }
    }

    pub(super) fn find(name: &str) -> Option<Self> {
        [Method::None, Method::Basic, Method::Post, Method::PrivateKey]
            .into_iter()
            .find(|method| method.name() == name)
    }

    /// The first of those that the server takes. One that does not say takes them all.
    pub(super) fn choose(wanted: &[Method], server: &ServerMetadata) -> Option<Method> {
        let takes = |method: &Method| {
            server.auth_methods.as_ref().is_none_or(|known| known.iter().any(|known| known == method.name()))
        };
        wanted.iter().copied().find(takes)
    }
}

/// A client as one authorization server knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    pub(super) id: String,
    #[serde(default, with = "secret::kept")]
    pub(super) secret: Option<Secret>,
    pub(super) method: Method,
    /// Where people come back to, if it was registered by us and only with that.
    pub(super) redirect_uri: Option<String>,
    /// The scopes that it may ask for, if it was registered with such.
    #[serde(default)]
    pub(super) scopes: Option<String>,
    /// When the secret is over, in seconds since 1970.
    pub(super) expires_at: Option<u64>,
}

impl Identity {
    /// A client that was not registered by us.
    pub(super) fn new(id: &str, secret: Option<Secret>, method: Method) -> Self {
        Identity { id: id.to_owned(), secret, method, redirect_uri: None, scopes: None, expires_at: None }
    }

    /// Adds to a request who sends it.
    pub(super) fn sign(
        &self,
        request: &mut Exchange,
        key: Option<&PrivateKey>,
        issuer: &str,
        now: u64,
    ) -> Result<(), AuthError> {
        let secret = self.secret.as_ref().map_or("", Secret::expose);
        match self.method {
            Method::None => request.field("client_id", &self.id),
            Method::Post => {
                request.field("client_id", &self.id);
                request.secret("client_secret", secret);
            }
            Method::Basic => {
                let pair = format!("{}:{}", form::encoded(&self.id), form::encoded(secret));
                request.header("authorization", &format!("Basic {}", STANDARD.encode(pair)));
                request.hide(secret);
            }
            Method::PrivateKey => {
                let missing = || {
                    AuthError::new(
                        AuthErrorKind::Setup,
                        "the client proves itself with a key, and none was given",
                    )
                };
                let assertion = self.assertion(key.ok_or_else(missing)?, issuer, now)?;
                request.field("client_id", &self.id);
                request
                    .field("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
                request.secret("client_assertion", &assertion);
            }
        }
        Ok(())
    }

    fn assertion(&self, key: &PrivateKey, issuer: &str, now: u64) -> Result<String, AuthError> {
        let claims = json!({
            "iss": self.id, "sub": self.id, "aud": issuer,
            "jti": random_text().expose(), "iat": now, "exp": now + ASSERTION_LIFE,
        });
        key.sign(&claims)
    }
}
