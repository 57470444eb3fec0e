//! What the authority has seen: every request as it came, and what became of tokens.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::Value;

use super::form;

/// Which of its two servers a request came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The one with the protected endpoint.
    Resource,
    /// The one that gives out tokens.
    Authority,
}

/// A request as it came, with every secret in it.
#[derive(Debug, Clone)]
pub struct SeenRequest {
    /// Where it came to.
    pub place: Place,
    /// Its method.
    pub method: Method,
    /// Its path.
    pub path: String,
    /// The parameters of its query, in their order.
    pub query: Vec<(String, String)>,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl SeenRequest {
    /// A header; empty if it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The body as a form.
    pub fn form(&self) -> Vec<(String, String)> {
        form::decode(&String::from_utf8_lossy(&self.body))
    }

    /// A parameter of the form, or of the query. One that is there twice counts as none.
    pub fn parameter(&self, name: &str) -> Option<String> {
        form::find(&self.form(), name).or(form::find(&self.query, name)).map(str::to_owned)
    }

    /// The body as JSON, or null.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// Everything that has happened so far.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// The requests, in the order in which they came.
    pub requests: Vec<Arc<SeenRequest>>,
    /// Clients that registered themselves.
    pub registrations: usize,
    /// Codes that were given out.
    pub authorizations: usize,
    /// Access tokens that were given out, for whatever.
    pub tokens: usize,
    /// Refresh tokens that were taken and answered with new tokens.
    pub refreshes: usize,
    /// Refresh tokens and codes that were used again after they had been spent.
    pub reuses: usize,
    /// Families of tokens that were revoked because of that.
    pub revoked_families: usize,
    /// Tokens that a client gave back.
    pub revocations: usize,
    /// Requests whose answer never comes.
    pub unanswered: usize,
    /// Connections to the place that nobody should connect to.
    pub canary: usize,
}

impl Seen {
    /// The requests for a path that ends like this: `/register`, `/authorize`, `/token`.
    pub fn of<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a SeenRequest> {
        self.requests.iter().map(|request| &**request).filter(move |request| request.path.ends_with(path))
    }

    /// The token requests with this `grant_type`.
    pub fn grants<'a>(&'a self, grant_type: &'a str) -> impl Iterator<Item = &'a SeenRequest> {
        self.of("/token")
            .filter(move |request| request.parameter("grant_type").as_deref() == Some(grant_type))
    }
}
