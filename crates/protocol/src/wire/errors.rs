//! Mapping of protocol errors to the error objects of a revision.

use linchpin_jsonrpc::ErrorObject;
use serde_json::{Value, json};

use crate::error::{Error, code};
use crate::version::{Feature, Revision};

/// Returns the error object for a response to a request of `revision`.
pub fn error_object(error: &Error, revision: Revision) -> ErrorObject {
    let (code, data) = match error {
        Error::InvalidRequest(_) => (code::INVALID_REQUEST, None),
        Error::MethodNotFound(_) => (code::METHOD_NOT_FOUND, None),
        Error::InvalidParams { path, .. } if path.is_empty() => (code::INVALID_PARAMS, None),
        Error::InvalidParams { path, .. } => (code::INVALID_PARAMS, Some(json!({ "path": path }))),
        Error::ResourceNotFound { uri } => {
            let own_code = revision.has(Feature::ResourceNotFoundCode);
            let code = if own_code { code::RESOURCE_NOT_FOUND } else { code::INVALID_PARAMS };
            (code, Some(json!({ "uri": uri })))
        }
        Error::MissingClientCapability { required } => {
            let defined = revision.has(Feature::Stateless);
            let code = if defined { code::MISSING_CLIENT_CAPABILITY } else { code::INVALID_REQUEST };
            (code, Some(json!({ "requiredCapabilities": required })))
        }
        Error::UnsupportedVersion { requested, supported } => {
            let supported: Vec<Value> = supported.iter().map(|revision| revision.as_str().into()).collect();
            (code::UNSUPPORTED_VERSION, Some(json!({ "supported": supported, "requested": requested })))
        }
        Error::HeaderMismatch(_) => (code::HEADER_MISMATCH, None),
        Error::InsufficientScope { required } => {
            (code::INVALID_REQUEST, Some(json!({ "requiredScopes": required })))
        }
        Error::Internal(_) => (code::INTERNAL_ERROR, None),
        Error::Custom { code, data, .. } => (*code, data.clone()),
    };
    ErrorObject { code, message: error.to_string(), data }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_resource_has_the_code_of_its_revision() {
        let error = Error::ResourceNotFound { uri: "a:b".into() };
        for revision in Revision::ALL {
            let expected = if revision == Revision::LATEST { code::INVALID_PARAMS } else { -32002 };
            assert_eq!(error_object(&error, revision).code, expected);
        }
    }
}
