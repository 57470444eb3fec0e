//! What a server can ask of its client: by a request of its own in the session era, inside a result in the
//! stateless era. Both sides use the same types.

use linchpin_protocol::encode::{Encode, Encoder, to_value};
use linchpin_protocol::model::{
    ClientCapabilities, CreateMessageParams, CreateMessageResult, ElicitMode, ElicitParams, ElicitResult,
    EmptyParams, InputRequest, ListRootsResult, key,
};
use linchpin_protocol::version::Feature;
use linchpin_protocol::wire::{Invalid, decode};
use linchpin_protocol::{Error as ProtocolError, Method, Revision};
use serde_json::{Value, json};

/// A question.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Question {
    /// To the user.
    Elicit(Box<ElicitParams>),
    /// To the model.
    Sample(Box<CreateMessageParams>),
    /// For the folders that the client works in.
    Roots,
}

/// The answer to a question.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Reply {
    Elicit(ElicitResult),
    Sample(Box<CreateMessageResult>),
    Roots(ListRootsResult),
}

impl Question {
    /// Reads a question.
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

    /// The capability that the other side lacks to be asked this, if it lacks one.
    pub(crate) fn lacks(&self, capabilities: &ClientCapabilities, revision: Revision) -> Option<Value> {
        let missing = |lacking: bool, required: Value| lacking.then_some(required);
        match self {
            Question::Elicit(_) if !revision.has(Feature::Elicitation) => Some(json!({ "elicitation": {} })),
            Question::Elicit(_) if self.is_url() => {
                let declared = capabilities.elicitation.as_ref().is_some_and(|can| can.url.is_some());
                let can = declared && revision.has(Feature::UrlElicitation);
                missing(!can, json!({ "elicitation": { "url": {} } }))
            }
            // A client that names no mode takes forms.
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

    /// The field of a form that a revision cannot show, if there is one: in the first ones with forms nobody can
    /// choose several things.
    pub(crate) fn unfit_field(&self, revision: Revision) -> Option<&str> {
        let Question::Elicit(params) = self else { return None };
        let form = params.requested_schema.as_ref()?;
        let mut fields = form.properties.iter().filter(|_| !revision.has(Feature::RichForms));
        fields.find(|(_, field)| field["type"] == "array").map(|(name, _)| name.as_str())
    }

    /// The question as it travels inside a result.
    pub(crate) fn to_input_request(&self, revision: Revision) -> InputRequest {
        let params = (!matches!(self, Question::Roots)).then(|| to_value(self, revision));
        InputRequest { method: self.method().name().to_owned(), params }
    }

    /// Reads the answer to this question.
    pub(crate) fn reply(&self, result: &str) -> Result<Reply, Invalid> {
        Ok(match self {
            Question::Elicit(_) => Reply::Elicit(decode(result)?),
            Question::Sample(_) => Reply::Sample(decode(result)?),
            Question::Roots => Reply::Roots(decode(result)?),
        })
    }
}

impl Reply {
    /// Adds the task that the question belongs to.
    pub(crate) fn relate(&mut self, task: Value) {
        let meta = match self {
            Reply::Elicit(result) => &mut result.meta,
            Reply::Sample(result) => &mut result.meta,
            Reply::Roots(result) => &mut result.meta,
        };
        meta.get_or_insert_default().insert(key::RELATED_TASK.to_owned(), task);
    }
}

/// The parameters.
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
