//! Errors of the hub as errors of an MCP server.

use linchpin::{Context, Era, Error, ErrorObject, code};
use linchpin_hub_core::ErrorKind;

/// Converts an error of a tool call. A tool that is unknown and one that the caller may not use have the same error.
pub(crate) fn tool_error(error: &linchpin_hub_core::Error, name: &str) -> Error {
    match error.kind() {
        ErrorKind::NotFound => Error::invalid_params("/name", format!("Unknown tool: {name}")),
        ErrorKind::Invalid => Error::invalid_params("/arguments", error.to_string()),
        _ => Error::tool(error.to_string()),
    }
}

/// Converts the JSON-RPC error of a server into one that the revision of the client allows.
pub(crate) fn rejection_error(rejection: &ErrorObject, cx: &Context) -> Error {
    let ErrorObject { code, message, data } = rejection.clone();
    if code == code::MISSING_CLIENT_CAPABILITY && cx.revision().era() == Era::Session {
        return Error::tool(format!("cannot send a request to this client: {message}"));
    }
    match data {
        Some(data) => Error::rpc_with(code, message, data),
        None => Error::rpc(code, message),
    }
}

/// Converts an error of a request for a prompt.
pub(crate) fn prompt_error(error: &linchpin_hub_core::Error, name: &str, cx: &Context) -> Error {
    if let Some(rejection) = error.rejection() {
        return rejection_error(rejection, cx);
    }
    match error.kind() {
        ErrorKind::NotFound => unknown_prompt(name),
        ErrorKind::Invalid => Error::invalid_params("/arguments", error.to_string()),
        _ => Error::rpc(code::INTERNAL_ERROR, error.to_string()),
    }
}

/// Creates the error for a prompt that does not exist, or that the caller may not use.
pub(crate) fn unknown_prompt(name: &str) -> Error {
    Error::invalid_params("/name", format!("Unknown prompt: {name}"))
}

/// Converts an error of a read of a resource.
pub(crate) fn resource_error(error: &linchpin_hub_core::Error, uri: &str, cx: &Context) -> Error {
    match (error.kind(), error.rejection()) {
        (ErrorKind::NotFound, _) => Error::resource_not_found(uri),
        (_, Some(rejection)) => rejection_error(rejection, cx),
        _ => Error::rpc(code::INTERNAL_ERROR, error.to_string()),
    }
}

/// Creates the error for a result that cannot be decoded.
pub(crate) fn unreadable(what: &str, error: &serde_json::Error) -> Error {
    Error::rpc(code::INTERNAL_ERROR, format!("the hub cannot decode the {what}: {error}"))
}
