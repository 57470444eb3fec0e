//! Secret strings: never printed, and zeroed on drop.

use std::fmt;

use zeroize::Zeroizing;

/// Secret string, such as a token or password, that is zeroed on drop. `Debug` does not print it; [`Self::expose`] is
/// the only access to the text.
#[derive(Clone, Default)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Creates a secret, whose text `Debug` does not show.
    pub fn new(text: impl Into<String>) -> Self {
        Secret(Zeroizing::new(text.into()))
    }

    /// Returns the secret text, for a request or a store; never put it into a log or an error.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl<T: Into<String>> From<T> for Secret {
    fn from(text: T) -> Self {
        Secret::new(text)
    }
}

/// Compares in constant time, so that the duration reveals nothing about the text.
impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        let (one, other) = (self.0.as_bytes(), other.0.as_bytes());
        let different = one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b));
        one.len() == other.len() && std::hint::black_box(different) == 0
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Serialization of secrets in stored records. Fields must opt in with `#[serde(with = …)]`, so that nothing else
/// serializes a secret.
pub(super) mod optional {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Secret;

    #[expect(clippy::ref_option, reason = "serde requires this signature")]
    pub(crate) fn serialize<S: Serializer>(secret: &Option<Secret>, to: S) -> Result<S::Ok, S::Error> {
        secret.as_ref().map(Secret::expose).serialize(to)
    }

    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Option<Secret>, D::Error> {
        Ok(Option::<String>::deserialize(from)?.map(Secret::from))
    }
}

/// Serialization of required secrets in stored records.
pub(super) mod required {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Secret;

    pub(crate) fn serialize<S: Serializer>(secret: &Secret, to: S) -> Result<S::Ok, S::Error> {
        secret.expose().serialize(to)
    }

    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Secret, D::Error> {
        String::deserialize(from).map(Secret::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_compared_and_never_shown() {
        let secret = Secret::new("hunter2");
        assert_eq!(secret, Secret::from("hunter2"));
        assert!(secret != Secret::from("hunter3") && secret != Secret::from("hunter"));
        assert_eq!(format!("{secret:?} {:?}", Some(&secret)), "Secret(…) Some(Secret(…))");
        assert_eq!(secret.expose(), "hunter2");
    }
}
