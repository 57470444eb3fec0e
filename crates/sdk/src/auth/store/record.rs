//! OAuth tokens of one server as stored: tokens, client identity and expiry.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::auth::error::{AuthError, AuthErrorKind, error_position};
use crate::auth::flow::client_identity::ClientIdentity;
use crate::auth::scopes::Scopes;
use crate::auth::secret::{self, Secret};
use crate::jose::SigningKey;

/// How many seconds before expiry a token is refreshed, at most a quarter of its lifetime.
const REFRESH_MARGIN: u64 = 30;

/// Tokens and client identity that one authorization server issued for one server. They are never used with another
/// authorization server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::auth) struct TokenRecord {
    pub(in crate::auth) issuer: String,
    /// Resource identifier that the token is issued for, exactly as requested.
    pub(in crate::auth) resource: String,
    pub(in crate::auth) token_endpoint: String,
    pub(in crate::auth) revocation_endpoint: Option<String>,
    pub(in crate::auth) identity: ClientIdentity,
    #[serde(default, with = "secret::optional")]
    pub(in crate::auth) access_token: Option<Secret>,
    #[serde(default, with = "secret::optional")]
    pub(in crate::auth) refresh_token: Option<Secret>,
    /// Expiry of the access token, in seconds since the Unix epoch.
    pub(in crate::auth) expires_at: Option<u64>,
    /// Time at which the token should be refreshed, in seconds since the Unix epoch.
    #[serde(default)]
    renew_at: Option<u64>,
    /// Scopes that the client requested, separated by spaces.
    pub(in crate::auth) requested: String,
    pub(in crate::auth) granted: String,
    /// Whether the token is bound to the `DPoP` key in `dpop_key`.
    pub(in crate::auth) dpop: bool,
    /// PKCS #8 document of the `DPoP` key in Base64, as stored.
    #[serde(default, rename = "key", with = "secret::optional")]
    dpop_key_der: Option<Secret>,
    /// Parsed form of the `DPoP` key in `dpop_key_der`. Not stored.
    #[serde(skip)]
    dpop_key: Option<SigningKey>,
}

/// Issuer, endpoints and client of a stored token, which a refresh does not change.
pub(in crate::auth) struct GrantOrigin {
    pub(in crate::auth) issuer: String,
    pub(in crate::auth) resource: String,
    pub(in crate::auth) token_endpoint: String,
    pub(in crate::auth) revocation_endpoint: Option<String>,
    pub(in crate::auth) identity: ClientIdentity,
}

impl TokenRecord {
    /// Creates a token record of a grant that has no tokens yet.
    pub(in crate::auth) fn new(origin: GrantOrigin, requested: &Scopes, key: Option<SigningKey>) -> Self {
        let stored = key.as_ref().and_then(SigningKey::to_pkcs8_der);
        TokenRecord {
            issuer: origin.issuer,
            resource: origin.resource,
            token_endpoint: origin.token_endpoint,
            revocation_endpoint: origin.revocation_endpoint,
            identity: origin.identity,
            access_token: None,
            refresh_token: None,
            expires_at: None,
            renew_at: None,
            requested: requested.to_string(),
            granted: String::new(),
            dpop: false,
            dpop_key_der: stored.map(|der| STANDARD.encode(&*der).into()),
            dpop_key: key,
        }
    }

    /// Parses a token record that [`Self::serialize`] has written.
    pub(in crate::auth) fn parse(text: &Secret) -> Result<Self, AuthError> {
        let unreadable = |reason: String| {
            let text = format!("the stored token cannot be read ({reason}): sign out and sign in again");
            AuthError::new(AuthErrorKind::Store, text)
        };
        // Report positions only: the text around them is secret.
        let mut record: TokenRecord =
            serde_json::from_str(text.expose()).map_err(|error| unreadable(error_position(&error)))?;
        if let Some(key) = &record.dpop_key_der {
            let der = STANDARD.decode(key.expose()).map_err(|_| unreadable("invalid key".to_owned()))?;
            let key = SigningKey::from_pkcs8_der(&der, crate::jose::Algorithm::Es256);
            record.dpop_key = Some(key.map_err(|error| unreadable(error.to_string()))?);
        }
        Ok(record)
    }

    pub(in crate::auth) fn serialize(&self) -> Result<Secret, AuthError> {
        let text = serde_json::to_string(self);
        text.map(Secret::from)
            .map_err(|_| AuthError::new(AuthErrorKind::Store, "the sign-in cannot be serialized"))
    }

    pub(in crate::auth) fn key(&self) -> Option<&SigningKey> {
        self.dpop_key.as_ref()
    }

    /// Sets expiry and refresh time of the token from its lifetime in seconds.
    pub(in crate::auth) fn set_lifetime(&mut self, life: Option<u64>, now: u64) {
        self.expires_at = life.map(|life| now.saturating_add(life));
        self.renew_at = life.map(|life| now.saturating_add(life - REFRESH_MARGIN.min(life / 4)));
    }

    /// Returns whether the token has expired.
    pub(in crate::auth) fn is_expired(&self, now: u64) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }

    /// Returns whether the token should be refreshed before its next use.
    pub(in crate::auth) fn is_stale(&self, now: u64) -> bool {
        self.renew_at.or(self.expires_at).is_some_and(|time| time <= now)
    }

    /// Returns whether the token should be refreshed and has a refresh token.
    pub(in crate::auth) fn can_refresh(&self, now: u64) -> bool {
        self.is_stale(now) && self.refresh_token.is_some()
    }

    /// Removes the tokens and retains the client identity.
    pub(in crate::auth) fn without_tokens(self) -> Self {
        TokenRecord {
            access_token: None,
            refresh_token: None,
            expires_at: None,
            renew_at: None,
            granted: String::new(),
            ..self
        }
    }

    pub(in crate::auth) fn is_same_token(&self, other: &TokenRecord) -> bool {
        self.access_token == other.access_token
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::flow::client_identity::ClientAuthMethod;

    #[test]
    fn tokens_are_renewed_before_they_run_out() {
        let text = String::new;
        let origin = GrantOrigin {
            issuer: text(),
            resource: text(),
            token_endpoint: text(),
            revocation_endpoint: None,
            identity: ClientIdentity::new("a", None, ClientAuthMethod::None),
        };
        let mut record = TokenRecord::new(origin, &Scopes::default(), None);
        for (life, early) in [(3_600, 30), (20, 5), (1, 0)] {
            record.set_lifetime(Some(life), 100);
            assert!(!record.is_stale(100 + life - early - 1) && record.is_stale(100 + life - early));
            assert!(!record.is_expired(100 + life - 1) && record.is_expired(100 + life));
        }
        record.set_lifetime(None, 100);
        assert!(!record.is_stale(u64::MAX) && !record.is_expired(u64::MAX));
    }
}
