//! Verification of the `DPoP` proofs of requests (RFC 9449).

use std::borrow::Cow;
use std::time::Duration;

use ::http::HeaderMap;
use ::http::request::Parts;
use serde_json::Value;

use super::replay_cache::{ReplayCache, ReplayError};
use crate::auth::PROOF_HEADER;
use crate::egress::Target;
use crate::jose::{Algorithm, CompactJws, PublicKey, digest, thumbprint};

/// Tolerated clock skew of the client that creates `DPoP` proofs, in both directions.
const PROOF_SKEW: Duration = Duration::from_mins(1);
/// How long used proofs are remembered; longer than a proof can be accepted (twice the skew).
const REPLAY_WINDOW: Duration = Duration::from_secs(125);
const MAX_JTI_LEN: usize = 512;

/// Signature algorithms accepted in `DPoP` proofs. All of them, unlike for tokens: clients generate the keys, and most
/// support only one type.
pub(super) const PROOF_ALGORITHMS: [Algorithm; 9] = Algorithm::ALL;

pub(super) struct DpopVerifier(ReplayCache);

/// Reason why a `DPoP` proof is rejected.
pub(super) enum ProofError {
    Invalid(Cow<'static, str>),
    /// The replay cache is full, so reuse cannot be ruled out.
    Unavailable,
}

impl<T: Into<Cow<'static, str>>> From<T> for ProofError {
    fn from(text: T) -> Self {
        ProofError::Invalid(text.into())
    }
}

impl DpopVerifier {
    pub(super) fn new() -> Self {
        DpopVerifier(ReplayCache::new(REPLAY_WINDOW))
    }

    /// Verifies the `DPoP` proof of a request: the sender of `token` to `target` holds the key with this thumbprint,
    /// and the proof is not reused.
    pub(super) fn verify(
        &self,
        parts: &Parts,
        token: &str,
        key: &str,
        target: &Target,
        now: Duration,
    ) -> Result<(), ProofError> {
        let proof = CompactJws::parse(single_proof(&parts.headers)?)
            .map_err(|error| error.to_string().replace("token", "proof"))?;
        let header = proof.header();
        if header.typ.as_deref() != Some("dpop+jwt") {
            return Err("the typ of the proof must be dpop+jwt".into());
        }
        let jwk = header.jwk.as_ref().ok_or("the proof has no jwk")?;
        let public = PublicKey::from_jwk(jwk).map_err(|error| error.to_string())?;
        let claims = proof.verify(&public, &PROOF_ALGORITHMS).map_err(|error| error.to_string())?;
        if thumbprint(jwk).ok().as_deref() != Some(key) {
            return Err("the proof is signed by another key than the token is bound to".into());
        }
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        if text("htm") != Some(parts.method.as_str()) {
            return Err("htm of the proof does not match the request method".into());
        }
        if !text("htu").is_some_and(|url| matches_target(url, target)) {
            return Err("htu of the proof does not match the URL of this server".into());
        }
        let skew = claims.get("iat").and_then(Value::as_f64).map(|time| (time - now.as_secs_f64()).abs());
        if skew.is_none_or(|skew| skew > PROOF_SKEW.as_secs_f64()) {
            return Err("iat of the proof must be within 60 seconds of the current time".into());
        }
        if text("ath") != Some(&digest(token)) {
            return Err("ath of the proof does not match the token".into());
        }
        let id = text("jti").filter(|id| !id.is_empty() && id.len() <= MAX_JTI_LEN);
        match self.0.record(key, id.ok_or("the proof has no jti")?) {
            Ok(()) => Ok(()),
            Err(ReplayError::Used) => Err("the proof has already been used".into()),
            Err(ReplayError::Full) => Err(ProofError::Unavailable),
        }
    }
}

fn single_proof(headers: &HeaderMap) -> Result<&str, ProofError> {
    let mut values = headers.get_all(PROOF_HEADER).iter();
    let first = values.next().ok_or("the proof is missing: send it in the DPoP header")?;
    if values.next().is_some() {
        return Err("the DPoP header occurs more than once".into());
    }
    first.to_str().map_err(|_| "the DPoP header contains invalid characters".into())
}

/// Compares a URL with that of the server, ignoring the query.
fn matches_target(url: &str, target: &Target) -> bool {
    Target::configured(url).is_ok_and(|url| url.same_origin(target) && url.path() == target.path())
}
