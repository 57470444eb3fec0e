//! Error type of outgoing requests. Messages name the host, never a query, a password or a header.

use std::error::Error as StdError;
use std::fmt;
use std::net::IpAddr;

use super::address_class::AddressClass;

/// Error of an outgoing HTTP request: its kind, a text, and the address if the policy refused it.
pub struct EgressError(Box<Inner>);

struct Inner {
    kind: EgressErrorKind,
    text: String,
    /// Address that the egress policy refused.
    address: Option<IpAddr>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// Kind of an [`EgressError`]: what failed, such as name resolution, the TLS handshake or a redirect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EgressErrorKind {
    /// A setting is invalid: a certificate, a proxy, a network.
    Setup,
    /// The URL is invalid.
    Url,
    /// The host name could not be resolved.
    Dns,
    /// The egress policy refused the address, which has this class.
    Refused(AddressClass),
    /// The address did not respond, or refused the connection.
    Connect,
    /// The proxy could not be reached, or refused the connection.
    Proxy,
    /// The TLS handshake failed.
    Tls,
    /// The connection was not established in time.
    Timeout,
    /// The connection broke, or the response is not valid HTTP.
    Http,
    /// A redirect was not followed.
    Redirect,
    /// The response exceeds the size limit.
    TooLarge,
}

impl EgressError {
    pub(super) fn new(kind: EgressErrorKind, text: impl Into<String>) -> Self {
        EgressError(Box::new(Inner { kind, text: text.into(), address: None, source: None }))
    }

    pub(super) fn setup(text: impl Into<String>) -> Self {
        Self::new(EgressErrorKind::Setup, text)
    }

    pub(super) fn with_address(mut self, address: Option<IpAddr>) -> Self {
        self.0.address = address;
        self
    }

    pub(super) fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.0.source = Some(Box::new(source));
        self
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> EgressErrorKind {
        self.0.kind
    }

    /// Returns the address that the policy refused, if known.
    pub fn address(&self) -> Option<IpAddr> {
        self.0.address
    }

    /// Returns whether the server may have received the request, or a part of it. If not, it can safely be sent
    /// again.
    pub fn may_have_been_sent(&self) -> bool {
        use EgressErrorKind::{Http, Redirect, TooLarge};
        matches!(self.0.kind, Http | Redirect | TooLarge)
    }
}

impl fmt::Display for EgressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

impl fmt::Debug for EgressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EgressError").field("kind", &self.0.kind).field("text", &self.0.text).finish()
    }
}

impl StdError for EgressError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| &**source as &(dyn StdError + 'static))
    }
}
