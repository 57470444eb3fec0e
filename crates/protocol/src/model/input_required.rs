//! `input_required` results of multi round-trip requests.

use std::collections::BTreeMap;

use serde_json::Value;

use super::results::encode_result;
use super::{Meta, ResultBody};
use crate::encode::{Encode, Encoder, Fields, model};

model! {
    /// Request of a server to its client, carried in a result (stateless era).
    pub struct InputRequest {
        /// Method of the request: `elicitation/create`, `sampling/createMessage` or `roots/list`.
        method: String = "method",
        /// Parameters of the request.
        params: Option<Value> = "params",
    }
}

/// Intermediate result: the client must send the request again with responses to the input requests.
#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize)]
pub struct InputRequiredResult {
    /// Input requests by key. The responses use the same keys.
    #[serde(rename = "inputRequests", default)]
    pub input_requests: Option<BTreeMap<String, InputRequest>>,
    /// Opaque state that the client must send back unchanged.
    #[serde(rename = "requestState", default)]
    pub request_state: Option<String>,
    /// Metadata of the result (`_meta`).
    #[serde(rename = "_meta", default)]
    pub meta: Option<Meta>,
}

impl ResultBody for InputRequiredResult {
    fn encode_body(&self, fields: &mut Fields<'_, '_>) {
        fields.field("inputRequests", &self.input_requests);
        fields.field("requestState", &self.request_state);
    }

    fn meta(&self) -> Option<&Meta> {
        self.meta.as_ref()
    }

    fn result_type(&self) -> &'static str {
        "input_required"
    }
}

impl Encode for InputRequiredResult {
    fn encode(&self, to: &mut Encoder<'_>) {
        encode_result(self, None, to);
    }
}
