//! Scopes (RFC 6749 3.3): which ones are asked for, and what is added when a server wants more.

use std::fmt;

use crate::server::is_scope;

/// The most scopes that are asked for at once; nobody means more.
const MOST: usize = 256;

/// A set of scopes, in the order in which they came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scopes(Vec<String>);

impl Scopes {
    /// Reads a list with spaces between.
    pub fn read(text: &str) -> Self {
        text.split_ascii_whitespace().collect()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Whether this one is among them.
    pub fn contains(&self, scope: &str) -> bool {
        self.0.iter().any(|known| known == scope)
    }

    /// Whether all of those are among them.
    pub fn covers(&self, others: &Scopes) -> bool {
        others.iter().all(|scope| self.contains(scope))
    }

    /// These and those.
    pub(super) fn union(mut self, others: &Scopes) -> Self {
        for scope in others.iter() {
            self.add(scope);
        }
        self
    }

    fn add(&mut self, scope: &str) {
        if is_scope(scope) && self.0.len() < MOST && !self.contains(scope) {
            self.0.push(scope.to_owned());
        }
    }
}

impl<S: AsRef<str>> FromIterator<S> for Scopes {
    fn from_iter<I: IntoIterator<Item = S>>(scopes: I) -> Self {
        let mut all = Scopes::default();
        for scope in scopes {
            all.add(scope.as_ref());
        }
        all
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

/// The scope that brings a token to renew tokens with.
pub(super) const OFFLINE_ACCESS: &str = "offline_access";

/// What is to be asked for. `wanted` is what the host of the client says; `challenged` what the operation needs;
/// `supported` what the server lists; `before` what was asked for earlier and must not be lost.
pub(super) fn select(
    wanted: Option<&Scopes>,
    challenged: Option<&Scopes>,
    supported: Option<&Scopes>,
    before: &Scopes,
) -> Scopes {
    let now = match (wanted, challenged) {
        (Some(wanted), Some(challenged)) => wanted.clone().union(challenged),
        (Some(scopes), None) | (None, Some(scopes)) => scopes.clone(),
        // What was asked for before did not come from this list alone.
        (None, None) if !before.is_empty() => Scopes::default(),
        (None, None) => supported.cloned().unwrap_or_default(),
    };
    before.clone().union(&now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_challenge_comes_first_and_nothing_is_lost() {
        let [a, b, c] = ["a", "b", "c"].map(Scopes::read);
        let none = Scopes::default();
        let text = |scopes: Scopes| scopes.to_string();
        assert_eq!(text(select(None, Some(&a), Some(&b), &none)), "a");
        assert_eq!(text(select(None, None, Some(&b), &none)), "b");
        assert_eq!(text(select(None, None, None, &none)), "");
        assert_eq!(text(select(None, Some(&a), Some(&b), &c)), "c a");
        assert_eq!(text(select(None, None, Some(&b), &c)), "c");
        assert_eq!(text(select(Some(&b), Some(&a), None, &none)), "b a");
        assert_eq!(text(select(Some(&b), None, Some(&c), &none)), "b");
    }

    #[test]
    fn a_set_of_words() {
        let scopes = Scopes::read(" a  b a \"c\" d\\e ü ");
        assert_eq!(scopes.to_string(), "a b");
        assert!(scopes.covers(&Scopes::read("b")) && !scopes.covers(&Scopes::read("b c")));
        assert_eq!((0..999).map(|number| number.to_string()).collect::<Scopes>().iter().count(), MOST);
    }
}
