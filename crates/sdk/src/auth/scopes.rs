//! OAuth scopes (RFC 6749 section 3.3) and the selection of the scopes to request.

use std::fmt;

use crate::server::is_scope;

/// Maximum number of scopes in a set; the rest is ignored.
const MAX_SCOPES: usize = 256;

/// Ordered set of OAuth scopes, as requested or granted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scopes(Vec<String>);

impl Scopes {
    /// Parses a space-separated list of scopes.
    pub fn parse(text: &str) -> Self {
        text.split_ascii_whitespace().collect()
    }

    /// Returns whether the set of scopes is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over the scopes.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Returns whether the set of scopes contains `scope`.
    pub fn contains(&self, scope: &str) -> bool {
        self.0.iter().any(|own_scope| own_scope == scope)
    }

    /// Returns whether the set of scopes contains all of `others`.
    pub fn covers(&self, others: &Scopes) -> bool {
        others.iter().all(|scope| self.contains(scope))
    }

    /// Returns the union of two sets of scopes.
    pub(super) fn union(mut self, others: &Scopes) -> Self {
        for scope in others.iter() {
            self.add(scope);
        }
        self
    }

    fn add(&mut self, scope: &str) {
        if is_scope(scope) && self.0.len() < MAX_SCOPES && !self.contains(scope) {
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

/// Scope that yields a refresh token.
pub(super) const OFFLINE_ACCESS: &str = "offline_access";

/// Selects the scopes to request. `configured` comes from the client configuration, `challenged` from the challenge,
/// `supported` from the resource metadata; `before` was requested earlier and is retained.
pub(super) fn select(
    configured: Option<&Scopes>,
    challenged: Option<&Scopes>,
    supported: Option<&Scopes>,
    before: &Scopes,
) -> Scopes {
    let now = match (configured, challenged) {
        (Some(configured), Some(challenged)) => configured.clone().union(challenged),
        (Some(scopes), None) | (None, Some(scopes)) => scopes.clone(),
        // The earlier scopes replace `supported`: they need not come from that list.
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
        let [a, b, c] = ["a", "b", "c"].map(Scopes::parse);
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
        let scopes = Scopes::parse(" a  b a \"c\" d\\e ü ");
        assert_eq!(scopes.to_string(), "a b");
        assert!(scopes.covers(&Scopes::parse("b")) && !scopes.covers(&Scopes::parse("b c")));
        assert_eq!((0..999).map(|number| number.to_string()).collect::<Scopes>().iter().count(), MAX_SCOPES);
    }
}
