//! Proof key for code exchange (RFC 7636), with S256 and nothing else: a code is worth nothing to whoever steals it.

use serde::{Deserialize, Serialize};

use super::secret::{self, Secret};
use crate::jose::{digest, encode};

/// What only this client knows of a sign-in.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Verifier(#[serde(with = "secret::whole")] Secret);

impl Verifier {
    pub(super) fn random() -> Self {
        Verifier(random_text())
    }

    /// What is shown when the code is asked for.
    pub(super) fn challenge(&self) -> String {
        digest(self.0.expose())
    }

    /// What is shown when the code is used.
    pub(super) fn expose(&self) -> &str {
        self.0.expose()
    }
}

/// 256 random bits as text: for verifiers and states.
pub(super) fn random_text() -> Secret {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("the operating system gives random numbers");
    Secret::new(encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7636, appendix B.
    #[test]
    fn the_example_of_the_standard() {
        let verifier = Verifier("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".into());
        assert_eq!(verifier.challenge(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
        assert_eq!(Verifier::random().expose().len(), 43);
        assert!(random_text() != random_text());
    }
}
