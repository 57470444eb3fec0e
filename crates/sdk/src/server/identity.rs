//! Who sends a request, and what they may do. Whoever lets requests in makes one; it holds no token.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use linchpin_protocol::Error as ProtocolError;
use serde_json::{Map, Value};

/// Who sends a request: found out by `Auth`, or made by hand for [`crate::Service::for_identity`].
#[derive(Clone, PartialEq)]
pub struct Identity {
    subject: String,
    issuer: Option<String>,
    client_id: Option<String>,
    /// Sorted, each once.
    scopes: Vec<String>,
    /// Since 1970.
    expires: Option<Duration>,
    claims: Map<String, Value>,
    key: Option<String>,
}

impl Identity {
    /// Somebody, who may do nothing that needs a scope.
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

    /// Who says so: the issuer of the token.
    #[must_use]
    pub fn with_issuer(mut self, issuer: impl Into<String>) -> Self {
        self.issuer = Some(issuer.into());
        self
    }

    /// The program that acts for them.
    #[must_use]
    pub fn with_client_id(mut self, client_id: impl Into<String>) -> Self {
        self.client_id = Some(client_id.into());
        self
    }

    /// What they may do, beside what was said before.
    #[must_use]
    pub fn with_scopes(mut self, scopes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.scopes.extend(scopes.into_iter().map(Into::into));
        self.scopes.sort_unstable();
        self.scopes.dedup();
        self
    }

    /// From when on nobody believes this any more.
    #[must_use]
    pub fn with_expiry(mut self, expires: SystemTime) -> Self {
        self.expires = Some(expires.duration_since(UNIX_EPOCH).unwrap_or_default());
        self
    }

    /// Something else that is known of them.
    #[must_use]
    pub fn with_claim(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.claims.insert(name.into(), value.into());
        self
    }

    /// Only who holds this key is them: the thumbprint of RFC 7638, as it stands in `cnf.jkt`. Their requests need a
    /// proof (`DPoP`).
    #[must_use]
    pub fn bound_to_key(mut self, thumbprint: impl Into<String>) -> Self {
        self.key = Some(thumbprint.into());
        self
    }

    /// Who they are, for those who know them: unique within an issuer.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Who says so.
    pub fn issuer(&self) -> Option<&str> {
        self.issuer.as_deref()
    }

    /// The program that acts for them.
    pub fn client_id(&self) -> Option<&str> {
        self.client_id.as_deref()
    }

    /// What they may do, in alphabetical order, with all that follows from it.
    pub fn scopes(&self) -> impl Iterator<Item = &str> {
        self.scopes.iter().map(String::as_str)
    }

    /// Whether they may do this.
    pub fn has_scope(&self, scope: &str) -> bool {
        self.scopes.binary_search_by(|own| own.as_str().cmp(scope)).is_ok()
    }

    /// Until when this is believed.
    pub fn expiry(&self) -> Option<SystemTime> {
        UNIX_EPOCH.checked_add(self.expires?)
    }

    /// Something else that the token says.
    pub fn claim(&self, name: &str) -> Option<&Value> {
        self.claims.get(name)
    }

    /// The thumbprint of the key that they must hold.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    pub(crate) fn has_all(&self, scopes: &[String]) -> bool {
        scopes.iter().all(|scope| self.has_scope(scope))
    }

    /// What sessions, tasks and state are bound to: no two of them have the same.
    pub(crate) fn principal(&self) -> String {
        Value::from_iter([self.issuer(), Some(self.subject()), self.client_id()]).to_string()
    }
}

/// Checks the scopes of a tool, in every revision and on every transport. A caller without an identity, as on stdio,
/// may call every tool.
pub(crate) fn check_scopes(identity: Option<&Identity>, required: &[String]) -> Result<(), ProtocolError> {
    if identity.is_none_or(|identity| identity.has_all(required)) {
        return Ok(());
    }
    Err(ProtocolError::InsufficientScope { required: required.to_vec() })
}

/// Whether this is a word that can be a scope (RFC 6749 3.3).
pub(crate) fn is_scope(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\')
}

/// Whether this can be a scope of a server.
pub(crate) fn check_scope_name(scope: &str) -> Result<(), String> {
    if !is_scope(scope) {
        return Err(format!(
            "{scope:?} is no scope: printable ASCII without spaces, quotes and backslashes is"
        ));
    }
    if scope == "offline_access" {
        return Err(
            "offline_access is between clients and authorization servers, and no scope of a server".into()
        );
    }
    Ok(())
}

/// Without what the token says: that may be private.
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
            assert_eq!(one.principal(), later.principal(), "another token of the same one");
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
