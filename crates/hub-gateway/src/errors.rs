//! Errors of the hub as errors of an MCP server.

use linchpin::{Error, code};
use linchpin_hub_core::ErrorKind;

/// Converts an error of a tool call. A tool that is unknown and one that the caller may not use have the same error.
pub(crate) fn tool_error(error: &linchpin_hub_core::Error, name: &str) -> Error {
    match error.kind() {
        ErrorKind::NotFound => Error::invalid_params("/name", format!("Unknown tool: {name}")),
        ErrorKind::Invalid => Error::invalid_params("/arguments", error.to_string()),
        _ => Error::tool(error.to_string()),
    }
}

/// Converts an error of a request for a prompt.
pub(crate) fn prompt_error(error: &linchpin_hub_core::Error, name: &str) -> Error {
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
pub(crate) fn resource_error(error: &linchpin_hub_core::Error, uri: &str) -> Error {
    match error.kind() {
        ErrorKind::NotFound => Error::resource_not_found(uri),
        _ => Error::rpc(code::INTERNAL_ERROR, error.to_string()),
    }
}

/// Creates the error for a result that cannot be decoded.
pub(crate) fn unreadable(what: &str, error: &serde_json::Error) -> Error {
    Error::rpc(code::INTERNAL_ERROR, format!("the hub cannot decode the {what}: {error}"))
}
