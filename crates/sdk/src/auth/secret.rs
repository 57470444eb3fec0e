//! Texts that must not be seen: they cannot be printed, and are overwritten when they are dropped.

use std::fmt;

use zeroize::Zeroizing;

/// A token, a password, a key. Nothing prints it; [`Self::expose`] is the only way to its text.
#[derive(Clone, Default)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes the text in.
    pub fn new(text: impl Into<String>) -> Self {
        Secret(Zeroizing::new(text.into()))
    }

    /// The text: for a request or a store, never for a log or an error.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl<T: Into<String>> From<T> for Secret {
    fn from(text: T) -> Self {
        Secret::new(text)
    }
}

/// Compares every byte, whatever they are: how long it takes says nothing of the text.
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

/// How records that are kept write a secret: for fields that say `#[serde(with = …)]`, so that nothing else can.
pub(super) mod kept {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Secret;

    #[expect(clippy::ref_option, reason = "serde gives it so")]
    pub(crate) fn serialize<S: Serializer>(secret: &Option<Secret>, to: S) -> Result<S::Ok, S::Error> {
        secret.as_ref().map(Secret::expose).serialize(to)
    }

    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Option<Secret>, D::Error> {
        Ok(Option::<String>::deserialize(from)?.map(Secret::from))
    }
}

/// The same for a secret that is always there.
pub(super) mod whole {
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
