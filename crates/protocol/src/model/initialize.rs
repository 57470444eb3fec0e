//! Parameters and result of `initialize`, the handshake of the session era.

use super::results::results;
use super::{ClientCapabilities, Implementation, Meta, ServerCapabilities};
use crate::encode::model;

model! {
    /// Parameters of `initialize`.
    pub struct InitializeParams {
        /// Requested protocol version, as a string since it may be unknown to this crate.
        protocol_version: String = "protocolVersion",
        /// Capabilities of the client.
        capabilities: ClientCapabilities = "capabilities",
        /// Identity of the client.
        client_info: Implementation = "clientInfo",
        /// Metadata of the request (`_meta`).
        meta: Option<Meta> = "_meta",
    }
}

results! {
    /// Result of `initialize`.
    pub struct InitializeResult {
        /// Negotiated protocol version.
        protocol_version: String = "protocolVersion",
        /// Capabilities of the server.
        capabilities: ServerCapabilities = "capabilities",
        /// Identity of the server.
        server_info: Implementation = "serverInfo",
        /// Instructions for the model on how to use the server.
        instructions: Option<String> = "instructions",
    }
}
