//! Names of the HTTP headers of MCP.

use http::HeaderName;

/// Header with the protocol revision of the message.
pub(crate) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// Header with the id of the MCP session, in revisions with sessions.
pub(crate) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// Header that repeats the JSON-RPC method of the request body.
pub(crate) const METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// Header that repeats the name of the tool or prompt, or the URI of the resource, of the request body.
pub(crate) const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// Header with the id of the last event received before a stream was cut.
pub(crate) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Name prefix of headers that mirror a tool argument.
pub(crate) const PARAM_PREFIX: &str = "mcp-param-";
