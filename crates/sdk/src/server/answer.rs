//! A result on its way out.

use std::sync::Arc;

use linchpin_protocol::encode::{self, Encode, Encoder};
use linchpin_protocol::model::{CallToolResult, Meta, ResultBody};
use linchpin_protocol::version::Feature;
use linchpin_protocol::{Revision, wire};
use serde_json::value::RawValue;

/// What a request gave.
pub(crate) enum Answer {
    /// A call of a tool: the most frequent one.
    Tool(CallToolResult),
    /// Any other result of the model.
    Body(Box<dyn ResultBody + Send>),
    /// A result that is JSON of the right revision already.
    Ready(Arc<[u8]>),
    /// The result of a method of the author's own.
    Custom(Box<RawValue>),
}

impl Answer {
    pub(crate) fn body(body: impl ResultBody + Send + 'static) -> Self {
        Answer::Body(Box::new(body))
    }

    /// What a tool says, if this is a tool's.
    pub(crate) fn tool_text(&self) -> Option<String> {
        if let Answer::Tool(result) = self { Some(result.to_text()) } else { None }
    }

    /// Appends the result as JSON.
    pub(crate) fn encode(&self, revision: Revision, identity: &[u8], out: &mut Vec<u8>) {
        match self {
            Answer::Tool(result) => wire::encode_result(revision, result, identity, out),
            Answer::Body(body) => wire::encode_result(revision, &**body, identity, out),
            Answer::Ready(json) => {
                // Also for what ends the message: one byte more would have all of it copied once more.
                out.reserve(json.len() + 8);
                out.extend_from_slice(json);
            }
            Answer::Custom(json) => custom(json, revision, identity, out),
        }
    }
}

/// A result is an object, with a `resultType` in the stateless era; other values go into its member `result`.
fn custom(json: &RawValue, revision: Revision, identity: &[u8], out: &mut Vec<u8>) {
    if !revision.has(Feature::Stateless) && json.get().trim_start().starts_with('{') {
        return json.encode(&mut Encoder { out, revision });
    }
    let meta = serde_json::from_str::<Meta>(json.get()).ok().and_then(|mut members| members.remove("_meta"));
    let meta = meta.and_then(|meta| serde_json::from_value(meta).ok());
    wire::encode_result(revision, &Custom(json, meta), identity, out);
}

/// A result whose members are JSON already.
struct Custom<'a>(&'a RawValue, Option<Meta>);

impl ResultBody for Custom<'_> {
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
