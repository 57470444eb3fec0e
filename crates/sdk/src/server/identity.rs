//! Authenticated identity of a client and its scopes. The authentication layer creates it; it contains no token.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use linchpin_protocol::Error as ProtocolError;
use serde_json::{Map, Value};

/// Identity of the sender of a request, created by `Auth` or by hand for [`crate::Service::for_identity`].
#[derive(Clone, PartialEq)]
pub struct Identity {
    subject: String,
    issuer: Option<String>,
    client_id: Option<String>,
    /// Granted scopes, sorted, without duplicates.
    scopes: Vec<String>,
    /// Expiry of the token, since the Unix epoch.
    expires: Option<Duration>,
    claims: Map<String, Value>,
    key: Option<String>,
}

impl Identity {
    /// Creates an identity without scopes.
    pub fn new(subject: impl Into<String>) -> Self {
        Identity {
            subject: subject.into(),
            issuer: None,
            client_id: None,
            scopes: Vec::new(),
            expires: None,
            claims: Map::new(),
            key: None,
        }
    }

    /// Sets the issuer of the token that established the identity.
    #[must_use]
    pub fn with_issuer(mut self, issuer: impl Into<String>) -> Self {
        self.issuer = Some(issuer.into());
        self
    }

    /// Sets the OAuth client that acts for the subject.
    #[must_use]
    pub fn with_client_id(mut self, client_id: impl Into<String>) -> Self {
        self.client_id = Some(client_id.into());
        self
    }

    /// Adds scopes that are granted to the identity.
    #[must_use]
    pub fn with_scopes(mut self, scopes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.scopes.extend(scopes.into_iter().map(Into::into));
        self.scopes.sort_unstable();
        self.scopes.dedup();
        self
    }

    /// Sets when the token of the identity expires.
    #[must_use]
    pub fn with_expiry(mut self, expires: SystemTime) -> Self {
        self.expires = Some(expires.duration_since(UNIX_EPOCH).unwrap_or_default());
        self
    }

    /// Adds a claim to the identity.
    #[must_use]
    pub fn with_claim(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.claims.insert(name.into(), value.into());
        self
    }

    /// Binds the identity to a key, given by its thumbprint (RFC 7638) as in `cnf.jkt`. Requests then need a `DPoP`
    /// proof.
    #[must_use]
    pub fn bound_to_key(mut self, thumbprint: impl Into<String>) -> Self {
        self.key = Some(thumbprint.into());
        self
    }

    /// Returns the subject of the token (`sub`), which is unique within the issuer.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Returns the issuer of the token.
    pub fn issuer(&self) -> Option<&str> {
        self.issuer.as_deref()
    }

    /// Returns the OAuth client that acts for the subject.
    pub fn client_id(&self) -> Option<&str> {
        self.client_id.as_deref()
    }

    /// Returns the scopes of the token in alphabetical order, including implied ones.
    pub fn scopes(&self) -> impl Iterator<Item = &str> {
        self.scopes.iter().map(String::as_str)
    }

    /// Returns whether the identity has a scope.
    pub fn has_scope(&self, scope: &str) -> bool {
        self.scopes.binary_search_by(|granted| granted.as_str().cmp(scope)).is_ok()
    }

    /// Returns when the token of the identity expires.
    pub fn expiry(&self) -> Option<SystemTime> {
        UNIX_EPOCH.checked_add(self.expires?)
    }

    /// Returns a claim of the token.
    pub fn claim(&self, name: &str) -> Option<&Value> {
        self.claims.get(name)
    }

    /// Returns the thumbprint of the `DPoP` key that the token is bound to, if any.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    pub(crate) fn has_all(&self, scopes: &[String]) -> bool {
        scopes.iter().all(|scope| self.has_scope(scope))
    }

    /// Returns the principal that sessions, tasks and request state are bound to, unique for each issuer, subject and
    /// client.
    pub(crate) fn principal(&self) -> String {
        Value::from_iter([self.issuer(), Some(self.subject()), self.client_id()]).to_string()
    }
}

/// Checks the required scopes of a tool, in every revision and on every transport. A caller without an identity, as on
/// stdio, may call every tool.
pub(crate) fn check_scopes(identity: Option<&Identity>, required: &[String]) -> Result<(), ProtocolError> {
    if identity.is_none_or(|identity| identity.has_all(required)) {
        return Ok(());
    }
    Err(ProtocolError::InsufficientScope { required: required.to_vec() })
}

/// Returns whether a word is a valid scope token (RFC 6749, section 3.3).
pub(crate) fn is_scope(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\')
}

/// Checks that a scope is one that a server can require: valid syntax, and not `offline_access`.
pub(crate) fn check_scope_name(scope: &str) -> Result<(), String> {
    if !is_scope(scope) {
        return Err(format!(
            "{scope:?} is not a valid scope: use printable ASCII without spaces, quotes and backslashes"
        ));
    }
    if scope == "offline_access" {
        return Err("offline_access is not a scope of a resource server: remove it".into());
    }
    Ok(())
}

/// Omits the claims, which may be private.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("subject", &self.subject)
            .field("issuer", &self.issuer)
            .field("client_id", &self.client_id)
            .field("scopes", &self.scopes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn principals_are_told_apart() {
        let all = [
            Identity::new("a"),
            Identity::new("a").with_issuer("b"),
            Identity::new("b").with_issuer("a"),
            Identity::new("a").with_client_id("b"),
            Identity::new("a\",\"b"),
            Identity::new("a").with_issuer("b").with_client_id("c"),
        ];
        for (index, one) in all.iter().enumerate() {
            for other in &all[index + 1..] {
                assert_ne!(one.principal(), other.principal());
            }
            let later = one.clone().with_scopes(["x"]).with_claim("name", "Ada").with_expiry(UNIX_EPOCH);
            assert_eq!(one.principal(), later.principal(), "another token of the same client");
        }
    }

    #[test]
    fn scopes_are_compared_exactly() {
        let identity = Identity::new("a").with_scopes(["b", "a", "b"]).with_scopes(["c:d"]);
        assert_eq!(identity.scopes().collect::<Vec<_>>(), ["a", "b", "c:d"]);
        assert!(identity.has_scope("a") && identity.has_scope("c:d"));
        assert!(!identity.has_scope("c") && !identity.has_scope("A") && !identity.has_scope(""));
        assert!(identity.has_all(&[]) && !identity.has_all(&["a".into(), "x".into()]));
        for scope in ["", "a b", "a\"b", "a\\b", "é", "a\n", "offline_access"] {
            assert!(check_scope_name(scope).is_err(), "{scope}");
        }
        assert_eq!(check_scope_name("https://example.com/a!#[~"), Ok(()));
    }

    #[test]
    fn what_a_token_says_is_not_printed() {
        let shown = format!("{:?}", Identity::new("ada").with_claim("email", "ada@example.com"));
        assert!(shown.contains("ada") && !shown.contains("example.com"), "{shown}");
    }
}
