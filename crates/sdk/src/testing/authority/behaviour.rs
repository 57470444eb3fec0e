//! How the authority behaves: which switches are on, and what it says in place of the truth.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use super::switch::Switch;

/// How an authority behaves. [`Authority::honest`](super::Authority::honest) is where it begins.
#[derive(Debug, Clone)]
#[must_use = "it does nothing by itself"]
pub struct Behaviour {
    pub(super) switches: BTreeSet<Switch>,
    pub(super) metadata: BTreeMap<String, Value>,
    pub(super) resource_metadata: BTreeMap<String, Value>,
    pub(super) challenge: Option<String>,
    pub(super) metadata_redirect: Option<String>,
    pub(super) origins: Option<[String; 2]>,
    pub(super) documents: BTreeMap<String, Value>,
    pub(super) lifetime: Duration,
}

impl Behaviour {
    pub(super) fn honest() -> Self {
        Behaviour {
            switches: BTreeSet::new(),
            metadata: BTreeMap::new(),
            resource_metadata: BTreeMap::new(),
            challenge: None,
            metadata_redirect: None,
            origins: None,
            documents: BTreeMap::new(),
            lifetime: Duration::from_hours(1),
        }
    }

    /// Misbehaves in one way more.
    pub fn with(mut self, switch: Switch) -> Self {
        self.switches.insert(switch);
        self
    }

    /// Says something else in the metadata of the authorization server; null leaves it out.
    pub fn metadata(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.metadata.insert(name.to_owned(), value.into());
        self
    }

    /// Says something else in the metadata of the protected resource; null leaves it out. Tokens are for the `resource`
    /// that is said here, to the letter.
    pub fn resource_metadata(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.resource_metadata.insert(name.to_owned(), value.into());
        self
    }

    /// Says something else in `WWW-Authenticate` when a token is missing.
    pub fn challenge(mut self, text: impl Into<String>) -> Self {
        self.challenge = Some(text.into());
        self
    }

    /// Redirects whoever asks for the metadata of the authorization server to this URL.
    pub fn redirect_metadata(mut self, url: impl Into<String>) -> Self {
        self.metadata_redirect = Some(url.into());
        self
    }

    /// Says that its two servers are at these origins, for tests with something in between. This counts from the start
    /// alone; [`Authority::address`](super::Authority::address) says where they are in truth.
    pub fn origins(mut self, resource: impl Into<String>, authority: impl Into<String>) -> Self {
        self.origins = Some([resource.into(), authority.into()]);
        self
    }

    /// What a client says of itself at a URL. It is not fetched: no test needs a web server with a certificate.
    pub fn document(mut self, url: &str, document: Value) -> Self {
        self.documents.insert(url.to_owned(), document);
        self
    }

    /// How long access tokens last; an hour when nothing is said.
    pub fn lifetime(mut self, time: Duration) -> Self {
        self.lifetime = time;
        self
    }

    pub(super) fn has(&self, switch: Switch) -> bool {
        self.switches.contains(&switch)
    }

    pub(super) fn has_any<const N: usize>(&self, switches: [Switch; N]) -> bool {
        switches.into_iter().any(|switch| self.has(switch))
    }
}
