//! Requests of a server to its client: sent as JSON-RPC requests in the session era, as input requests inside a
//! result in the stateless era. Client and server share these types.

use linchpin_protocol::encode::{Encode, Encoder, to_value};
use linchpin_protocol::model::{
    ClientCapabilities, CreateMessageParams, CreateMessageResult, ElicitMode, ElicitParams, ElicitResult,
    EmptyParams, InputRequest, ListRootsResult, key,
};
use linchpin_protocol::version::Feature;
use linchpin_protocol::wire::{Invalid, decode};
use linchpin_protocol::{Error as ProtocolError, Method, Revision};
use serde_json::{Value, json};

/// A request of the server to its client.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Question {
    /// Elicitation: a form or a URL for the user.
    Elicit(Box<ElicitParams>),
    /// Sampling: a prompt for the client's model.
    Sample(Box<CreateMessageParams>),
    /// The list of the client's roots.
    Roots,
}

/// The client's result for a server request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Reply {
    Elicit(ElicitResult),
    Sample(Box<CreateMessageResult>),
    Roots(ListRootsResult),
}

impl Question {
    /// Decodes the request with this method and these parameters.
    pub(crate) fn decode(method: &str, params: &str) -> Result<Self, ProtocolError> {
        let invalid = |Invalid { path, reason }| ProtocolError::InvalidParams { path, reason };
        match Method::find(method) {
            Some(Method::Elicit) => Ok(Question::Elicit(Box::new(decode(params).map_err(invalid)?))),
            Some(Method::CreateMessage) => Ok(Question::Sample(Box::new(decode(params).map_err(invalid)?))),
            Some(Method::ListRoots) => Ok(Question::Roots),
            _ => Err(ProtocolError::MethodNotFound(method.to_owned())),
        }
    }

    pub(crate) fn method(&self) -> Method {
        match self {
            Question::Elicit(_) => Method::Elicit,
            Question::Sample(_) => Method::CreateMessage,
            Question::Roots => Method::ListRoots,
        }
    }

    fn is_url(&self) -> bool {
        matches!(self, Question::Elicit(params) if params.mode == Some(ElicitMode::Url))
    }

    /// Returns the client capability that this request needs and `capabilities` lacks.
    pub(crate) fn lacks(&self, capabilities: &ClientCapabilities, revision: Revision) -> Option<Value> {
        let missing = |lacking: bool, required: Value| lacking.then_some(required);
        match self {
            Question::Elicit(_) if !revision.has(Feature::Elicitation) => Some(json!({ "elicitation": {} })),
            Question::Elicit(_) if self.is_url() => {
                let declared = capabilities.elicitation.as_ref().is_some_and(|can| can.url.is_some());
                let can = declared && revision.has(Feature::UrlElicitation);
                missing(!can, json!({ "elicitation": { "url": {} } }))
            }
            // A client that declares no mode supports forms.
            Question::Elicit(_) => {
                let can = capabilities.elicitation.as_ref();
                let can = can.is_some_and(|can| can.form.is_some() || can.url.is_none());
                missing(!can, json!({ "elicitation": { "form": {} } }))
            }
            Question::Sample(params) if params.tools.is_some() || params.tool_choice.is_some() => {
                let declared = capabilities.sampling.as_ref().is_some_and(|can| can.tools.is_some());
                let can = declared && revision.has(Feature::SamplingTools);
                missing(!can, json!({ "sampling": { "tools": {} } }))
            }
            Question::Sample(_) => missing(capabilities.sampling.is_none(), json!({ "sampling": {} })),
            Question::Roots => missing(capabilities.roots.is_none(), json!({ "roots": {} })),
        }
    }

    /// Returns the first form field that the revision cannot express. Multiple-choice fields require
    /// `Feature::RichForms`.
    pub(crate) fn unfit_field(&self, revision: Revision) -> Option<&str> {
        let Question::Elicit(params) = self else { return None };
        let form = params.requested_schema.as_ref()?;
        let mut fields = form.properties.iter().filter(|_| !revision.has(Feature::RichForms));
        fields.find(|(_, field)| field["type"] == "array").map(|(name, _)| name.as_str())
    }

    /// Converts the request into an input request of a result.
    pub(crate) fn to_input_request(&self, revision: Revision) -> InputRequest {
        let params = (!matches!(self, Question::Roots)).then(|| to_value(self, revision));
        InputRequest { method: self.method().name().to_owned(), params }
    }

    /// Decodes the result for this request.
    pub(crate) fn reply(&self, result: &str) -> Result<Reply, Invalid> {
        Ok(match self {
            Question::Elicit(_) => Reply::Elicit(decode(result)?),
            Question::Sample(_) => Reply::Sample(decode(result)?),
            Question::Roots => Reply::Roots(decode(result)?),
        })
    }
}

impl Reply {
    /// Adds the related task to the metadata of the result.
    pub(crate) fn relate(&mut self, task: Value) {
        let meta = match self {
            Reply::Elicit(result) => &mut result.meta,
            Reply::Sample(result) => &mut result.meta,
            Reply::Roots(result) => &mut result.meta,
        };
        meta.get_or_insert_default().insert(key::RELATED_TASK.to_owned(), task);
    }
}

/// Encodes the parameters.
impl Encode for Question {
    fn encode(&self, to: &mut Encoder<'_>) {
        match self {
            Question::Elicit(params) => params.encode(to),
            Question::Sample(params) => params.encode(to),
            Question::Roots => EmptyParams::default().encode(to),
        }
    }
}

impl Encode for Reply {
    fn encode(&self, to: &mut Encoder<'_>) {
        match self {
            Reply::Elicit(result) => result.encode(to),
            Reply::Sample(result) => result.encode(to),
            Reply::Roots(result) => result.encode(to),
        }
    }
}
