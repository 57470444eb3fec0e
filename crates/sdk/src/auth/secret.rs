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
