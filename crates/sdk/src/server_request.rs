//! Requests of a server to its client: sent as JSON-RPC requests in the session era, as input requests inside a
//! result in the stateless era. Client and server share these types.

use linchpin_protocol::encode::{Encode, Encoder, to_value};
use linchpin_protocol::model::{
    ClientCapabilities, CreateMessageParams, CreateMessageResult, ElicitMode, ElicitParams, ElicitResult,
    EmptyParams, InputRequest, ListRootsResult, key,
};
use linchpin_protocol::version::Feature;
use linchpin_protocol::wire::{InvalidValue, decode};
use linchpin_protocol::{Error as ProtocolError, Method, Revision};
use serde_json::{Value, json};

use crate::Error;

/// Error code of a request that the user rejects, as in the examples of the specification.
const USER_REJECTED: i64 = -1;

/// Request of a server to its client: elicitation, sampling or roots. It is the same in all protocol revisions.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerRequest {
    /// Elicitation: a form or a URL for the user.
    Elicit(Box<ElicitParams>),
    /// Sampling request: a prompt for the client's model.
    Sample(Box<CreateMessageParams>),
    /// Request for the list of the client's roots.
    Roots,
}

/// Result that a client returns for a [`ServerRequest`] of the same kind.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientResult {
    /// Result of an elicitation: accepted with content, declined or cancelled.
    Elicit(ElicitResult),
    /// Message of the client's model.
    Sample(Box<CreateMessageResult>),
    /// Roots of the client.
    Roots(ListRootsResult),
}

impl ServerRequest {
    /// Decodes a request of a server to a client with this method and these parameters.
    pub(crate) fn decode(method: &str, params: &str) -> Result<Self, ProtocolError> {
        let invalid = |InvalidValue { path, reason }| ProtocolError::InvalidParams { path, reason };
        match Method::find(method) {
            Some(Method::Elicit) => Ok(ServerRequest::Elicit(Box::new(decode(params).map_err(invalid)?))),
            Some(Method::CreateMessage) => {
                Ok(ServerRequest::Sample(Box::new(decode(params).map_err(invalid)?)))
            }
            Some(Method::ListRoots) => Ok(ServerRequest::Roots),
            _ => Err(ProtocolError::MethodNotFound(method.to_owned())),
        }
    }

    /// Returns the MCP method of the request.
    pub(crate) fn method(&self) -> Method {
        match self {
            ServerRequest::Elicit(_) => Method::Elicit,
            ServerRequest::Sample(_) => Method::CreateMessage,
            ServerRequest::Roots => Method::ListRoots,
        }
    }

    /// Returns the reply that refuses the request on behalf of the user: an elicitation is declined, other requests
    /// fail.
    pub fn decline(&self) -> crate::Result<ClientResult> {
        self.refuse(ElicitResult::decline())
    }

    /// Returns the reply for a user who made no choice: an elicitation is cancelled, other requests fail.
    pub fn cancel(&self) -> crate::Result<ClientResult> {
        self.refuse(ElicitResult::cancel())
    }

    fn refuse(&self, elicited: ElicitResult) -> crate::Result<ClientResult> {
        match self {
            ServerRequest::Elicit(_) => Ok(ClientResult::Elicit(elicited)),
            _ => Err(Error::rpc(USER_REJECTED, format!("the user rejected {}", self.method().name()))),
        }
    }

    /// Adds an id to an elicitation by URL that has none, for revisions that require one. A server of another revision
    /// sends none, and it may be forwarded.
    pub(crate) fn add_missing_id(&mut self, revision: Revision, new_id: impl FnOnce() -> String) {
        let needs_id = self.is_url() && revision.has(Feature::ElicitationIds);
        if let ServerRequest::Elicit(params) = self
            && needs_id
        {
            params.elicitation_id.get_or_insert_with(new_id);
        }
    }

    fn is_url(&self) -> bool {
        matches!(self, ServerRequest::Elicit(params) if params.mode == Some(ElicitMode::Url))
    }

    /// Returns the client capability that this server request needs and `capabilities` lacks.
    pub(crate) fn missing_capability(
        &self,
        capabilities: &ClientCapabilities,
        revision: Revision,
    ) -> Option<Value> {
        let missing = |is_missing: bool, required: Value| is_missing.then_some(required);
        match self {
            ServerRequest::Elicit(_) if !revision.has(Feature::Elicitation) => {
                Some(json!({ "elicitation": {} }))
            }
            ServerRequest::Elicit(_) if self.is_url() => {
                let declared =
                    capabilities.elicitation.as_ref().is_some_and(|declared| declared.url.is_some());
                let supported = declared && revision.has(Feature::UrlElicitation);
                missing(!supported, json!({ "elicitation": { "url": {} } }))
            }
            // A client that declares no mode supports forms.
            ServerRequest::Elicit(_) => {
                let declared = capabilities.elicitation.as_ref();
                let supported =
                    declared.is_some_and(|declared| declared.form.is_some() || declared.url.is_none());
                missing(!supported, json!({ "elicitation": { "form": {} } }))
            }
            ServerRequest::Sample(params) if params.tools.is_some() || params.tool_choice.is_some() => {
                let declared =
                    capabilities.sampling.as_ref().is_some_and(|declared| declared.tools.is_some());
                let supported = declared && revision.has(Feature::SamplingTools);
                missing(!supported, json!({ "sampling": { "tools": {} } }))
            }
            ServerRequest::Sample(_) => missing(capabilities.sampling.is_none(), json!({ "sampling": {} })),
            ServerRequest::Roots => missing(capabilities.roots.is_none(), json!({ "roots": {} })),
        }
    }

    /// Returns the first form field that the revision cannot express. Multiple-choice fields require
    /// `Feature::RichForms`.
    pub(crate) fn unsupported_field(&self, revision: Revision) -> Option<&str> {
        let ServerRequest::Elicit(params) = self else { return None };
        let form = params.requested_schema.as_ref()?;
        let mut fields = form.properties.iter().filter(|_| !revision.has(Feature::RichForms));
        fields.find(|(_, field)| field["type"] == "array").map(|(name, _)| name.as_str())
    }

    /// Converts the request into an input request of a result.
    pub(crate) fn to_input_request(&self, revision: Revision) -> InputRequest {
        let params = (!matches!(self, ServerRequest::Roots)).then(|| to_value(self, revision));
        InputRequest { method: self.method().name().to_owned(), params }
    }

    /// Decodes the client's result for this request.
    pub(crate) fn decode_result(&self, result: &str) -> Result<ClientResult, InvalidValue> {
        Ok(match self {
            ServerRequest::Elicit(_) => ClientResult::Elicit(decode(result)?),
            ServerRequest::Sample(_) => ClientResult::Sample(decode(result)?),
            ServerRequest::Roots => ClientResult::Roots(decode(result)?),
        })
    }
}

impl ClientResult {
    /// Returns the MCP method of the request that this result belongs to.
    pub(crate) fn method(&self) -> Method {
        match self {
            ClientResult::Elicit(_) => Method::Elicit,
            ClientResult::Sample(_) => Method::CreateMessage,
            ClientResult::Roots(_) => Method::ListRoots,
        }
    }

    /// Adds the related task to the metadata of the result.
    pub(crate) fn set_related_task(&mut self, task: Value) {
        let meta = match self {
            ClientResult::Elicit(result) => &mut result.meta,
            ClientResult::Sample(result) => &mut result.meta,
            ClientResult::Roots(result) => &mut result.meta,
        };
        meta.get_or_insert_default().insert(key::RELATED_TASK.to_owned(), task);
    }
}

/// Encodes the parameters of the request.
impl Encode for ServerRequest {
    fn encode(&self, to: &mut Encoder<'_>) {
        match self {
            ServerRequest::Elicit(params) => params.encode(to),
            ServerRequest::Sample(params) => params.encode(to),
            ServerRequest::Roots => EmptyParams::default().encode(to),
        }
    }
}

impl Encode for ClientResult {
    fn encode(&self, to: &mut Encoder<'_>) {
        match self {
            ClientResult::Elicit(result) => result.encode(to),
            ClientResult::Sample(result) => result.encode(to),
            ClientResult::Roots(result) => result.encode(to),
        }
    }
}
