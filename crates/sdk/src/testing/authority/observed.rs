//! Observations of the test authority: recorded requests, and counters of tokens.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::Value;

use super::form;

/// Which server of the test authority received a request: the protected endpoint, or the authorization server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthorityHost {
    /// The simulated MCP server with the protected endpoint.
    Resource,
    /// The simulated authorization server, which issues tokens.
    Authority,
}

/// HTTP request that the test authority received, including its secrets.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    /// Simulated server that received the request.
    pub host: AuthorityHost,
    /// Method of the request.
    pub method: Method,
    /// Path of the request.
    pub path: String,
    /// Query parameters, in order.
    pub query: Vec<(String, String)>,
    /// Headers of the request.
    pub headers: HeaderMap,
    /// Body of the request.
    pub body: Bytes,
}

impl RecordedRequest {
    /// Returns the value of a request header; an empty string if it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Parses the body of the request as a form.
    pub fn form(&self) -> Vec<(String, String)> {
        form::decode(&String::from_utf8_lossy(&self.body))
    }

    /// Returns a parameter of the form or the query of the recorded request. A repeated parameter counts as missing.
    pub fn parameter(&self, name: &str) -> Option<String> {
        form::find(&self.form(), name).or(form::find(&self.query, name)).map(str::to_owned)
    }

    /// Parses the body of the request as JSON; null if it is invalid.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// Requests that the test authority received, and counters of what it issued.
#[derive(Debug, Clone, Default)]
pub struct Observations {
    /// HTTP requests that the simulated servers received, in order of arrival.
    pub requests: Vec<Arc<RecordedRequest>>,
    /// Number of client registrations.
    pub registrations: usize,
    /// Number of issued authorization codes.
    pub authorizations: usize,
    /// Number of issued access tokens, for all grant types.
    pub tokens: usize,
    /// Number of accepted refresh tokens.
    pub refreshes: usize,
    /// Number of reuses of spent refresh tokens and codes.
    pub reuses: usize,
    /// Number of token families revoked after a reuse.
    pub revoked_families: usize,
    /// Number of tokens revoked by clients.
    pub revocations: usize,
    /// Number of requests that never get a response.
    pub unanswered: usize,
    /// Number of connections to the server that clients must never connect to.
    pub canary_connections: usize,
}

impl Observations {
    /// Returns the recorded requests whose path ends with a suffix: `/register`, `/authorize`, `/token`.
    pub fn with_path<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a RecordedRequest> {
        self.requests.iter().map(|request| &**request).filter(move |request| request.path.ends_with(path))
    }

    /// Returns the recorded token requests with this `grant_type`.
    pub fn with_grant_type<'a>(&'a self, grant_type: &'a str) -> impl Iterator<Item = &'a RecordedRequest> {
        self.with_path("/token")
            .filter(move |request| request.parameter("grant_type").as_deref() == Some(grant_type))
    }
}
