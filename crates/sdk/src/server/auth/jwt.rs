//! Verification of JWT access tokens (RFC 9068): signature, issuer, audience, lifetime and subject.

use std::borrow::Cow;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Map, Value};

use super::super::Identity;
use super::TokenError;
use super::issuer_keys::IssuerKeys;
use crate::jose::{Algorithm, CompactJws};

/// Maximum number of keys tried for a token without `kid`: each attempt costs time, and any client can cause it.
const MAX_KEY_ATTEMPTS: usize = 16;

pub(super) struct JwtVerifier {
    pub(super) issuer: String,
    /// Accepted audiences of tokens: the URL of the resource and its configured alternatives.
    pub(super) audiences: Vec<String>,
    pub(super) algorithms: Vec<Algorithm>,
    pub(super) skew: Duration,
    pub(super) keys: IssuerKeys,
}

type Claims = Map<String, Value>;
type ClaimResult<T> = Result<T, Cow<'static, str>>;

impl JwtVerifier {
    /// Verifies a JWT access token and returns the identity that it names. `now` is the time since the Unix epoch.
    pub(super) async fn verify(&self, token: &str, now: Duration) -> Result<Identity, TokenError> {
        let token = CompactJws::parse(token).map_err(|error| TokenError::invalid(error.to_string()))?;
        let header = token.header();
        if !header.typ.as_deref().is_none_or(is_access_token) {
            return Err(TokenError::invalid(
                "the token is not an access token: its typ must be at+jwt or JWT",
            ));
        }
        if !self.algorithms.contains(&header.algorithm) {
            return Err(TokenError::Invalid(
                format!("the algorithm {} is not accepted", header.algorithm).into(),
            ));
        }
        // Check the claims first, so that an invalid token never causes a fetch.
        self.check_claims(token.unverified_claims(), now).map_err(TokenError::Invalid)?;
        let keys = self.keys.find(header.key_id.as_deref(), header.algorithm).await?;
        let mut last_error = None;
        for key in keys.iter().take(MAX_KEY_ATTEMPTS) {
            match token.verify(key, &self.algorithms) {
                Ok(claims) => return identity(claims).map_err(TokenError::Invalid),
                Err(error) => last_error = Some(error),
            }
        }
        let text =
            last_error.map_or_else(|| "the signature is invalid".to_owned(), |error| error.to_string());
        Err(TokenError::invalid(text))
    }

    fn check_claims(&self, claims: &Claims, now: Duration) -> ClaimResult<()> {
        if string_claim(claims, "iss")?.ok_or("the token has no issuer")? != self.issuer {
            return Err("the token is from another issuer".into());
        }
        let is_accepted = |audience: &Value| {
            audience.as_str().is_some_and(|name| self.audiences.iter().any(|accepted| accepted == name))
        };
        let meant = match claims.get("aud") {
            None => return Err("the token has no audience".into()),
            Some(Value::Array(all)) => all.iter().any(is_accepted),
            Some(one) => is_accepted(one),
        };
        if !meant {
            return Err("the token is for another audience".into());
        }
        let (now, skew) = (now.as_secs_f64(), self.skew.as_secs_f64());
        if time_claim(claims, "exp")?.ok_or("the token has no expiry")? + skew <= now {
            return Err("the token has expired".into());
        }
        if time_claim(claims, "nbf")?.is_some_and(|not_before| not_before > now + skew) {
            return Err("the token is not valid yet".into());
        }
        if time_claim(claims, "iat")?.is_some_and(|issued| issued > now + skew) {
            return Err("the token was issued in the future".into());
        }
        Ok(())
    }
}

fn is_access_token(kind: &str) -> bool {
    ["at+jwt", "application/at+jwt", "JWT"]
        .iter()
        .any(|accepted_type| accepted_type.eq_ignore_ascii_case(kind))
}

fn string_claim<'a>(claims: &'a Claims, name: &str) -> ClaimResult<Option<&'a str>> {
    match claims.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("{name} of the token must be a string").into()),
    }
}

/// Returns a time claim of a token, such as `exp`, as seconds since the Unix epoch.
fn time_claim(claims: &Claims, name: &str) -> ClaimResult<Option<f64>> {
    match claims.get(name).map(Value::as_f64) {
        None => Ok(None),
        Some(Some(time)) => Ok(Some(time)),
        Some(None) => Err(format!("{name} of the token must be a number").into()),
    }
}

/// Builds the identity from verified claims.
fn identity(claims: &Claims) -> ClaimResult<Identity> {
    // Issuers use different claims for the client id.
    let mut client_id = None;
    for name in ["client_id", "azp", "cid", "appid"] {
        client_id = client_id.or(string_claim(claims, name)?.filter(|id| !id.is_empty()));
    }
    // `sub` has no fallback: with the client id in its place, all users of one client would share one identity.
    let subject = string_claim(claims, "sub")?.filter(|subject| !subject.is_empty());
    let mut identity = Identity::new(subject.ok_or("the token has no subject")?).with_scopes(scopes(claims)?);
    if let Some(issuer) = string_claim(claims, "iss")? {
        identity = identity.with_issuer(issuer);
    }
    if let Some(client_id) = client_id {
        identity = identity.with_client_id(client_id);
    }
    if let Some(expires) = time_claim(claims, "exp")?.and_then(|time| Duration::try_from_secs_f64(time).ok())
        && let Some(expires) = UNIX_EPOCH.checked_add(expires)
    {
        identity = identity.with_expiry(expires);
    }
    if let Some(key) = bound_key(claims)? {
        identity = identity.bound_to_key(key);
    }
    Ok(claims.iter().fold(identity, |identity, (name, value)| identity.with_claim(name, value.clone())))
}

/// Returns the scopes of a token: claim `scope` (RFC 9068), or `scp`, which some issuers use instead.
fn scopes(claims: &Claims) -> ClaimResult<Vec<&str>> {
    let invalid = || Cow::from("the scopes of the token must be strings");
    match claims.get("scope").or_else(|| claims.get("scp")) {
        None => Ok(Vec::new()),
        Some(Value::String(all)) => Ok(all.split(' ').filter(|scope| !scope.is_empty()).collect()),
        Some(Value::Array(all)) => all.iter().map(|scope| scope.as_str().ok_or_else(invalid)).collect(),
        Some(_) => Err(invalid()),
    }
}

/// Returns the thumbprint of the key that the token is bound to (`cnf.jkt`).
fn bound_key(claims: &Claims) -> ClaimResult<Option<&str>> {
    let Some(bound) = claims.get("cnf") else { return Ok(None) };
    let key = bound.as_object().filter(|bound| bound.len() == 1).and_then(|bound| bound.get("jkt")?.as_str());
    key.map(Some).ok_or_else(|| "the token has an unsupported cnf claim".into())
}
