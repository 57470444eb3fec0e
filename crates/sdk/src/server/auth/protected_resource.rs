//! OAuth protected resource: authenticates requests and checks scopes.

use std::borrow::Cow;
use std::time::{Duration, UNIX_EPOCH};

use ::http::request::Parts;

use super::super::clock::Clock;
use super::super::{BoxFuture, Identity};
use super::TokenError;
use super::builder::Dpop;
use super::challenge::Rejection;
use super::dpop::{DpopVerifier, ProofError};
use super::jwt::JwtVerifier;
use super::presented_token::{self, PresentedToken, Scheme};
use super::token_cache::{TokenCache, VerifiedToken, token_digest};
use crate::Result;
use crate::auth::{PROOF_HEADER, Secret};
use crate::egress::Target;

/// Function of the application that resolves an opaque token to an identity.
pub(super) type TokenLookup = Box<dyn Fn(Secret) -> BoxFuture<Result<Option<Identity>>> + Send + Sync>;

/// How access tokens are verified: as signed JWTs, or by the lookup function for opaque tokens.
pub(super) enum TokenVerifier {
    Jwt(Box<JwtVerifier>, TokenCache),
    /// Opaque tokens: the lookup function, and the issuer of all tokens if there is only one.
    Opaque(TokenLookup, Option<String>),
}

/// OAuth configuration of an endpoint as a protected resource (RFC 9728), with the verifier of its tokens.
pub(crate) struct ProtectedResource {
    /// Public URL of the endpoint, the resource that tokens are requested for.
    pub(super) target: Target,
    pub(super) metadata_url: String,
    pub(super) metadata_paths: Vec<String>,
    pub(super) metadata: Vec<u8>,
    /// Scopes that every request requires.
    pub(super) required_scopes: Vec<String>,
    /// Scopes with the further scopes that each of them implies.
    pub(super) implied_scopes: Vec<(String, Vec<String>)>,
    pub(super) verifier: TokenVerifier,
    pub(super) dpop: Option<(Dpop, DpopVerifier)>,
    pub(super) clock: Clock,
}

impl ProtectedResource {
    /// Verifies the access token of a request, and its `DPoP` proof if the token is bound to a key. `path` is the
    /// request path if it is not that of the endpoint.
    pub(crate) async fn authenticate(
        &self,
        parts: &Parts,
        path: Option<&str>,
    ) -> Result<VerifiedToken, Rejection> {
        let credentials = presented_token::extract(parts).map_err(|text| self.invalid_request(text))?;
        let is_known = |scheme| scheme == Scheme::Bearer || self.dpop.is_some();
        let Some(PresentedToken { scheme, token }) = credentials.filter(|sent| is_known(sent.scheme)) else {
            return Err(self.no_token());
        };
        let verified = self.verify(token).await.map_err(|refused| match refused {
            TokenError::Invalid(text) => self.invalid_token(scheme, text),
            TokenError::Unavailable => Self::unavailable(),
        })?;
        match (scheme, verified.identity.key()) {
            (Scheme::Bearer, None) if self.requires_proof() => {
                Err(self.invalid_token(scheme, "only DPoP-bound tokens are accepted"))
            }
            (Scheme::Bearer, Some(_)) => Err(self.invalid_token(scheme, self.bearer_is_bound())),
            (Scheme::Dpop, None) => {
                Err(self.invalid_token(scheme, "the token is not bound to a key: use Bearer"))
            }
            (Scheme::Dpop, Some(key)) => self.check_proof(parts, token, key, path).map(|()| verified.clone()),
            (Scheme::Bearer, None) => Ok(verified),
        }
    }

    fn requires_proof(&self) -> bool {
        matches!(self.dpop, Some((Dpop::Required, _)))
    }

    fn bearer_is_bound(&self) -> &'static str {
        match self.dpop {
            Some(_) => "the token is bound to a key: use DPoP with a proof",
            None => "the token is bound to a key, but this server does not support DPoP",
        }
    }

    /// Verifies an access token. A JWT that was verified before is found in the cache; an opaque token is always looked
    /// up.
    async fn verify(&self, token: &str) -> Result<VerifiedToken, TokenError> {
        let has_expired = |identity: &Identity| self.time_left(identity).is_some_and(|left| left.is_zero());
        match &self.verifier {
            TokenVerifier::Jwt(jwt, cache) => {
                let digest = token_digest(token);
                if let Some(verified) =
                    cache.find(&digest).filter(|verified| !has_expired(&verified.identity))
                {
                    return Ok(verified);
                }
                let verified = VerifiedToken::from(
                    self.with_implied_scopes(jwt.verify(token, self.clock.since_epoch()).await?),
                );
                cache.insert(digest, token.len(), verified.clone());
                Ok(verified)
            }
            TokenVerifier::Opaque(lookup, issuer) => match lookup(Secret::new(token)).await {
                Ok(Some(identity)) if identity.issuer().is_none() && issuer.is_none() => {
                    tracing::error!("the token lookup named no issuer, but several issuers are configured");
                    Err(TokenError::Unavailable)
                }
                Ok(Some(identity)) if has_expired(&identity) => {
                    Err(TokenError::invalid("the token has expired"))
                }
                Ok(Some(identity)) => {
                    let identity = match issuer.as_ref().filter(|_| identity.issuer().is_none()) {
                        Some(issuer) => identity.with_issuer(issuer),
                        None => identity,
                    };
                    Ok(VerifiedToken::from(self.with_implied_scopes(identity)))
                }
                Ok(None) => Err(TokenError::invalid("the token is unknown")),
                Err(error) => {
                    tracing::error!(%error, "token lookup failed");
                    Err(TokenError::Unavailable)
                }
            },
        }
    }

    /// Returns how long an identity is still valid; `None` if it does not expire.
    pub(crate) fn time_left(&self, identity: &Identity) -> Option<Duration> {
        let skew = match &self.verifier {
            TokenVerifier::Jwt(jwt, _) => jwt.skew,
            TokenVerifier::Opaque(..) => Duration::ZERO,
        };
        let expiry = identity.expiry()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        Some(expiry.saturating_add(skew).saturating_sub(self.clock.since_epoch()))
    }

    /// Adds all scopes implied by the granted ones.
    fn with_implied_scopes(&self, mut identity: Identity) -> Identity {
        loop {
            let is_granted = |(scope, _): &&(String, Vec<String>)| identity.has_scope(scope);
            let implied = self.implied_scopes.iter().filter(is_granted).flat_map(|(_, implied)| implied);
            let implied: Vec<_> = implied.filter(|scope| !identity.has_scope(scope)).cloned().collect();
            if implied.is_empty() {
                return identity;
            }
            identity = identity.with_scopes(implied);
        }
    }

    fn check_proof(
        &self,
        parts: &Parts,
        token: &str,
        key: &str,
        path: Option<&str>,
    ) -> Result<(), Rejection> {
        let Some((_, verifier)) = &self.dpop else { return Err(self.no_token()) };
        let target = match path.map(|path| self.target.at(path)) {
            Some(Ok(resource_url)) => Cow::Owned(resource_url),
            _ => Cow::Borrowed(&self.target),
        };
        verifier.verify(parts, token, key, &target, self.clock.since_epoch()).map_err(|error| match error {
            ProofError::Invalid(text) => self.invalid_proof(text),
            ProofError::Unavailable => Self::unavailable(),
        })
    }

    /// Checks that a token has these scopes in addition to those that every request requires.
    pub(crate) fn check_scopes(&self, identity: &Identity, additional: &[String]) -> Result<(), Rejection> {
        if identity.has_all(&self.required_scopes) && identity.has_all(additional) {
            return Ok(());
        }
        let scheme = if identity.key().is_some() { Scheme::Dpop } else { Scheme::Bearer };
        let mut all = self.required_scopes.clone();
        for scope in additional {
            if !all.contains(scope) {
                all.push(scope.clone());
            }
        }
        Err(self.insufficient_scope(scheme, &all))
    }

    /// Removes the credentials from a request, so that no handler can see or forward them, and inserts the identity.
    pub(crate) fn strip_credentials(parts: &mut Parts, verified: &VerifiedToken) {
        parts.headers.remove(::http::header::AUTHORIZATION);
        parts.headers.remove(PROOF_HEADER);
        parts.extensions.insert(verified.identity.clone());
    }

    /// Returns the protected resource metadata if this is one of its paths.
    pub(crate) fn metadata_at(&self, path: &str) -> Option<&[u8]> {
        self.metadata_paths.iter().any(|metadata_path| metadata_path == path).then_some(&*self.metadata)
    }

    /// Returns the paths at which the protected resource metadata is served.
    #[cfg(feature = "axum")]
    pub(crate) fn metadata_paths(&self) -> &[String] {
        &self.metadata_paths
    }

    /// Returns the accepted HTTP authentication schemes, such as `Bearer` and `DPoP`.
    pub(super) fn schemes(&self) -> &'static [Scheme] {
        match self.dpop {
            None => &[Scheme::Bearer],
            Some((Dpop::Optional, _)) => &[Scheme::Bearer, Scheme::Dpop],
            Some((Dpop::Required, _)) => &[Scheme::Dpop],
        }
    }
}
