//! The handshake of the session era.

use super::results::results;
use super::{ClientCapabilities, Implementation, Meta, ServerCapabilities};
use crate::encode::model;

model! {
    /// What a client says first.
    pub struct InitializeParams {
        /// The revision it would like to speak; kept as text, since it may be one we do not know.
        protocol_version: String = "protocolVersion",
        /// What it can do.
        capabilities: ClientCapabilities = "capabilities",
        /// Who it is.
        client_info: Implementation = "clientInfo",
        /// Metadata.
        meta: Option<Meta> = "_meta",
    }
}

results! {
    /// What the server answers.
    pub struct InitializeResult {
        /// The revision that will be spoken.
        protocol_version: String = "protocolVersion",
        /// What the server can do.
        capabilities: ServerCapabilities = "capabilities",
        /// Who it is.
        server_info: Implementation = "serverInfo",
        /// How to use it, for the model.
        instructions: Option<String> = "instructions",
    }
}
