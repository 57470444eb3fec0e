//! Result of a request before it is encoded as JSON.

use std::sync::Arc;

use linchpin_protocol::encode::{self, Encode, Encoder};
use linchpin_protocol::model::{CallToolResult, Meta, ResultBody};
use linchpin_protocol::version::Feature;
use linchpin_protocol::{Revision, wire};
use serde_json::value::RawValue;

/// Successful result of a handled request, before it is written into the response. Most kinds are not encoded yet.
pub(crate) enum UnencodedResult {
    /// Result of a tool call, the most frequent kind.
    Tool(CallToolResult),
    /// Result of any other standard method.
    Body(Box<dyn ResultBody + Send>),
    /// Result that is already encoded for the revision of the request.
    Ready(Arc<[u8]>),
    /// Result of a custom method, as JSON.
    Custom(Box<RawValue>),
}

impl UnencodedResult {
    pub(crate) fn body(body: impl ResultBody + Send + 'static) -> Self {
        UnencodedResult::Body(Box::new(body))
    }

    /// Returns the text of a tool result, or `None` for other results.
    pub(crate) fn tool_text(&self) -> Option<String> {
        if let UnencodedResult::Tool(result) = self { Some(result.to_text()) } else { None }
    }

    /// Appends the result to `out` as JSON for `revision`.
    pub(crate) fn encode(&self, revision: Revision, identity: &[u8], out: &mut Vec<u8>) {
        match self {
            UnencodedResult::Tool(result) => wire::encode_result(revision, result, identity, out),
            UnencodedResult::Body(body) => wire::encode_result(revision, &**body, identity, out),
            UnencodedResult::Ready(json) => {
                // Reserve space for the end of the message too: growing by one byte would copy the whole buffer again.
                out.reserve(json.len() + 8);
                out.extend_from_slice(json);
            }
            UnencodedResult::Custom(json) => custom(json, revision, identity, out),
        }
    }
}

/// Encodes a custom result: an object, with a `resultType` in the stateless era; other values become its member
/// `result`.
fn custom(json: &RawValue, revision: Revision, identity: &[u8], out: &mut Vec<u8>) {
    if !revision.has(Feature::Stateless) && json.get().trim_start().starts_with('{') {
        return json.encode(&mut Encoder { out, revision });
    }
    let meta = serde_json::from_str::<Meta>(json.get()).ok().and_then(|mut members| members.remove("_meta"));
    let meta = meta.and_then(|meta| serde_json::from_value(meta).ok());
    wire::encode_result(revision, &RawResultBody(json, meta), identity, out);
}

/// Result of a custom method, whose members are already JSON.
struct RawResultBody<'a>(&'a RawValue, Option<Meta>);

impl ResultBody for RawResultBody<'_> {
    fn encode_body(&self, fields: &mut encode::Fields<'_, '_>) {
        match serde_json::from_str::<Meta>(self.0.get()) {
            Ok(members) => {
                for (key, value) in members.iter().filter(|(key, _)| *key != "resultType" && *key != "_meta")
                {
                    fields.member(key, value);
                }
            }
            Err(_) => fields.field("result", self.0),
        }
    }

    fn meta(&self) -> Option<&Meta> {
        self.1.as_ref()
    }
}
