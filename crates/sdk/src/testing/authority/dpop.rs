//! Check of `DPoP` proofs by the test authority: the sender of a request owns the key that its token is bound to (RFC
//! 9449).

use http::HeaderValue;

use super::http::AuthorityReply;
use super::jwt::{ParsedToken, digest, thumbprint};
use super::misbehaviour::Misbehaviour::{Dpop, DpopNonce, DpopNonceForever};
use super::observed::RecordedRequest;
use super::shared::AuthorityState;
use crate::server::random_id;

/// Allowed clock skew of a `DPoP` proof in seconds.
const MAX_CLOCK_SKEW: u64 = 300;

/// Why the test authority rejects a `DPoP` proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProofRejection {
    /// The `DPoP` proof is missing or invalid.
    Invalid,
    /// The `DPoP` proof lacks the nonce, which the error response must contain.
    Nonce,
}

impl ProofRejection {
    pub(super) fn error(self) -> &'static str {
        match self {
            ProofRejection::Invalid => "invalid_dpop_proof",
            ProofRejection::Nonce => "use_dpop_nonce",
        }
    }
}

/// Adds the nonce of the next proof to a response.
pub(super) fn add_nonce(state: &AuthorityState, reply: &mut AuthorityReply) {
    if state.behaviour.is_any_enabled([DpopNonce, DpopNonceForever])
        && let Ok(nonce) = HeaderValue::try_from(&state.nonce)
    {
        reply.headers_mut().insert("dpop-nonce", nonce);
    }
}

/// Checks the `DPoP` proof of a request to `url`, and returns the thumbprint of its key; `None` if there is no proof
/// and none is required. `token` is the access token of the request.
pub(super) fn check_proof(
    state: &mut AuthorityState,
    request: &RecordedRequest,
    url: &str,
    token: Option<&str>,
) -> Result<Option<String>, ProofRejection> {
    let mut proofs = request.headers.get_all("dpop").iter();
    let (proof, second) = (proofs.next(), proofs.next());
    let Some(proof) = proof else {
        let is_needed =
            token.is_some() || state.behaviour.is_any_enabled([Dpop, DpopNonce, DpopNonceForever]);
        return if is_needed { Err(ProofRejection::Invalid) } else { Ok(None) };
    };
    let proof = proof.to_str().ok().and_then(ParsedToken::parse).filter(|_| second.is_none());
    let proof = proof.ok_or(ProofRejection::Invalid)?;
    let (jwk, now) = (&proof.header["jwk"], state.now().as_secs());
    let is_valid = proof.header["typ"] == "dpop+jwt"
        && jwk.get("d").is_none()
        && proof.is_signed_by(jwk)
        && proof.claim("htm") == request.method.as_str()
        && proof.claim("htu") == url
        && proof.claims["iat"].as_u64().is_some_and(|time| time.abs_diff(now) <= MAX_CLOCK_SKEW)
        && token.is_none_or(|token| proof.claim("ath") == digest(token))
        && !proof.claim("jti").is_empty()
        && state.used_ids.insert(proof.claim("jti").to_owned());
    if !is_valid {
        return Err(ProofRejection::Invalid);
    }
    if state.behaviour.is_enabled(DpopNonceForever) {
        state.nonce = random_id();
        return Err(ProofRejection::Nonce);
    }
    if state.behaviour.is_enabled(DpopNonce) && proof.claim("nonce") != state.nonce {
        return Err(ProofRejection::Nonce);
    }
    Ok(Some(thumbprint(jwk)))
}
