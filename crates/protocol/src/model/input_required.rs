//! Results that ask for input first (multi round-trip requests).

use std::collections::BTreeMap;

use serde_json::Value;

use super::results::encode_result;
use super::{Meta, ResultBody};
use crate::encode::{Encode, Encoder, Fields, model};

model! {
    /// A request from the server, carried inside a result.
    pub struct InputRequest {
        /// `elicitation/create`, `sampling/createMessage` or `roots/list`.
        method: String = "method",
        /// Its parameters.
        params: Option<Value> = "params",
    }
}

/// A result that is no result yet: the client must answer questions and ask again.
#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize)]
pub struct InputRequiredResult {
    /// The questions, by a name that the answers repeat.
    #[serde(rename = "inputRequests", default)]
    pub input_requests: Option<BTreeMap<String, InputRequest>>,
    /// What the client must send back unread.
    #[serde(rename = "requestState", default)]
    pub request_state: Option<String>,
    /// Metadata.
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
