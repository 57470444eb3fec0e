//! Error type for rejected keys and tokens. Their texts contain nothing of a key, and of a token at most the name of
//! its algorithm.

use std::borrow::Cow;
use std::fmt;

/// Reason why a cryptographic key or a signed token is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JoseError(Cow<'static, str>);

impl JoseError {
    pub(super) fn new(text: impl Into<Cow<'static, str>>) -> Self {
        JoseError(text.into())
    }

    pub(super) fn unknown_algorithm(name: &str) -> Self {
        if name.len() <= 16 && !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return JoseError::new(format!("the algorithm {name} is not supported"));
        }
        JoseError::new("the algorithm is not supported")
    }
}

impl fmt::Display for JoseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for JoseError {}
