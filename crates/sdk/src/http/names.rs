//! The names of the protocol's own headers.

use http::HeaderName;

/// The revision that a message is for.
pub(crate) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The session, in revisions that have one.
pub(crate) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// The method of the request in the body.
pub(crate) const METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// The tool, prompt or resource that the request in the body is about.
pub(crate) const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// The last event that arrived before a stream broke.
pub(crate) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// How the names of headers begin that mirror an argument of a tool.
pub(crate) const PARAM_PREFIX: &str = "mcp-param-";
