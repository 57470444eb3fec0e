//! Proof Key for Code Exchange (RFC 7636), S256 only: a stolen authorization code is useless.

use serde::{Deserialize, Serialize};

use crate::auth::secret::{self, Secret};
use crate::jose::{digest, encode};

/// PKCE code verifier of one authorization request.
#[derive(Clone, Serialize, Deserialize)]
pub(in crate::auth) struct CodeVerifier(#[serde(with = "secret::required")] Secret);

impl CodeVerifier {
    pub(in crate::auth) fn random() -> Self {
        CodeVerifier(random_text())
    }

    /// Returns the `code_challenge` of the authorization request.
    pub(in crate::auth) fn challenge(&self) -> String {
        digest(self.0.expose())
    }

    /// Returns the `code_verifier` of the token request.
    pub(in crate::auth) fn expose(&self) -> &str {
        self.0.expose()
    }
}

/// Returns 256 random bits as base64url, for code verifiers and `state`.
pub(in crate::auth) fn random_text() -> Secret {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("the operating system provides random numbers");
    Secret::new(encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7636, appendix B.
    #[test]
    fn the_example_of_the_standard() {
        let verifier = CodeVerifier("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".into());
        assert_eq!(verifier.challenge(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
        assert_eq!(CodeVerifier::random().expose().len(), 43);
        assert!(random_text() != random_text());
    }
}
