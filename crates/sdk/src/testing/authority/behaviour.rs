//! Behaviour of the test authority: enabled misbehaviours and overridden values.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use super::misbehaviour::Misbehaviour;

/// Behaviour of a test authority: its misbehaviours and overridden values.
/// [`Authority::conforming`](super::Authority::conforming) is the default.
#[derive(Debug, Clone)]
#[must_use = "pass it to `Authority::start`"]
pub struct Behaviour {
    pub(super) misbehaviours: BTreeSet<Misbehaviour>,
    pub(super) metadata: BTreeMap<String, Value>,
    pub(super) resource_metadata: BTreeMap<String, Value>,
    pub(super) challenge: Option<String>,
    pub(super) metadata_redirect: Option<String>,
    pub(super) origins: Option<[String; 2]>,
    pub(super) documents: BTreeMap<String, Value>,
    pub(super) lifetime: Duration,
}

impl Behaviour {
    pub(super) fn conforming() -> Self {
        Behaviour {
            misbehaviours: BTreeSet::new(),
            metadata: BTreeMap::new(),
            resource_metadata: BTreeMap::new(),
            challenge: None,
            metadata_redirect: None,
            origins: None,
            documents: BTreeMap::new(),
            lifetime: Duration::from_hours(1),
        }
    }

    /// Adds a misbehaviour to the behaviour of the test authority.
    pub fn with(mut self, misbehaviour: Misbehaviour) -> Self {
        self.misbehaviours.insert(misbehaviour);
        self
    }

    /// Overrides a field of the authorization server metadata; null removes it.
    pub fn metadata(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.metadata.insert(name.to_owned(), value.into());
        self
    }

    /// Overrides a field of the protected resource metadata; null removes it. Tokens are issued for exactly the
    /// `resource` set here.
    pub fn resource_metadata(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.resource_metadata.insert(name.to_owned(), value.into());
        self
    }

    /// Overrides the `WWW-Authenticate` header of responses to requests without a token.
    pub fn challenge(mut self, text: impl Into<String>) -> Self {
        self.challenge = Some(text.into());
        self
    }

    /// Redirects requests for the authorization server metadata to this URL.
    pub fn redirect_metadata(mut self, url: impl Into<String>) -> Self {
        self.metadata_redirect = Some(url.into());
        self
    }

    /// Sets the origins that the test authority announces for its two servers, for tests with a proxy in between. It
    /// only has an effect at the start; [`Authority::address`](super::Authority::address) returns the real addresses.
    pub fn origins(mut self, resource: impl Into<String>, authority: impl Into<String>) -> Self {
        self.origins = Some([resource.into(), authority.into()]);
        self
    }

    /// Registers the content of a client ID metadata document, by its URL. It is not fetched, so that tests need no web
    /// server with a certificate.
    pub fn document(mut self, url: &str, document: Value) -> Self {
        self.documents.insert(url.to_owned(), document);
        self
    }

    /// Sets the lifetime of the access tokens that the test authority issues. Default: 1 h.
    pub fn lifetime(mut self, time: Duration) -> Self {
        self.lifetime = time;
        self
    }

    pub(super) fn is_enabled(&self, misbehaviour: Misbehaviour) -> bool {
        self.misbehaviours.contains(&misbehaviour)
    }

    pub(super) fn is_any_enabled<const N: usize>(&self, misbehaviours: [Misbehaviour; N]) -> bool {
        misbehaviours.into_iter().any(|misbehaviour| self.is_enabled(misbehaviour))
    }
}
