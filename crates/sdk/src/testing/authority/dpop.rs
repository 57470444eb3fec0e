//! `DPoP` proofs: the sender of a request owns the key that its token is bound to (RFC 9449).

use http::HeaderValue;

use super::http::Reply;
use super::jwt::{Token, digest, thumbprint};
use super::misbehavior::Switch::{Dpop, DpopNonce, DpopNonceForever};
use super::observed::SeenRequest;
use super::shared::State;
use crate::server::unguessable;

/// Allowed clock skew in seconds.
const SKEW: u64 = 300;

/// Why a proof was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unproven {
    /// The proof is missing or invalid.
    Invalid,
    /// The proof lacks the nonce, which the response must contain.
    Nonce,
}

impl Unproven {
    pub(super) fn error(self) -> &'static str {
        match self {
            Unproven::Invalid => "invalid_dpop_proof",
            Unproven::Nonce => "use_dpop_nonce",
        }
    }
}

/// Adds the nonce of the next proof to a response.
pub(super) fn tell_nonce(state: &State, reply: &mut Reply) {
    if state.behaviour.has_any([DpopNonce, DpopNonceForever])
        && let Ok(nonce) = HeaderValue::try_from(&state.nonce)
    {
        reply.headers_mut().insert("dpop-nonce", nonce);
    }
}

/// Checks the proof of a request to `url`, and returns the thumbprint of its key; `None` if there is no proof and
/// none is required. `token` is the access token of the request.
pub(super) fn check(
    state: &mut State,
    request: &SeenRequest,
    url: &str,
    token: Option<&str>,
) -> Result<Option<String>, Unproven> {
    let mut proofs = request.headers.get_all("dpop").iter();
    let (proof, second) = (proofs.next(), proofs.next());
    let Some(proof) = proof else {
        let is_needed = token.is_some() || state.behaviour.has_any([Dpop, DpopNonce, DpopNonceForever]);
        return if is_needed { Err(Unproven::Invalid) } else { Ok(None) };
    };
    let proof = proof.to_str().ok().and_then(Token::parse).filter(|_| second.is_none());
    let proof = proof.ok_or(Unproven::Invalid)?;
    let (jwk, now) = (&proof.header["jwk"], state.now().as_secs());
    let is_good = proof.header["typ"] == "dpop+jwt"
        && jwk.get("d").is_none()
        && proof.is_signed_by(jwk)
        && proof.claim("htm") == request.method.as_str()
        && proof.claim("htu") == url
        && proof.claims["iat"].as_u64().is_some_and(|time| time.abs_diff(now) <= SKEW)
        && token.is_none_or(|token| proof.claim("ath") == digest(token))
        && !proof.claim("jti").is_empty()
        && state.used.insert(proof.claim("jti").to_owned());
    if !is_good {
        return Err(Unproven::Invalid);
    }
    if state.behaviour.has(DpopNonceForever) {
        state.nonce = unguessable();
        return Err(Unproven::Nonce);
    }
    if state.behaviour.has(DpopNonce) && proof.claim("nonce") != state.nonce {
        return Err(Unproven::Nonce);
    }
    Ok(Some(thumbprint(jwk)))
}
