//! Interaction with the user at the terminal during a tool call: server requests, progress and log messages. It does
//! not know where the call runs.

use std::sync::Arc;

use linchpin::client::{ClientResult, ServerRequest};
use linchpin::model::{
    ClientCapabilities, ElicitMode, ElicitationCapability, ListRootsResult, LogParams, RootsCapability,
};
use linchpin::server::Progress;
use serde_json::json;

use crate::elicit::TerminalElicitor;
use crate::roots;
use crate::terminal::{Screen, one_line};

/// Terminal of the user who makes a call.
pub(crate) struct TerminalInteraction {
    screen: Arc<Screen>,
    elicitor: Arc<TerminalElicitor>,
}

impl TerminalInteraction {
    /// Creates the interaction. `answers` are the values of the `--answer` options: form field and value.
    pub(crate) fn new(screen: Arc<Screen>, answers: Vec<(String, String)>) -> Arc<Self> {
        let elicitor = TerminalElicitor::new(screen.clone(), answers);
        Arc::new(TerminalInteraction { screen, elicitor })
    }

    /// Returns the client capabilities for the server requests that [`Self::reply`] does not refuse.
    pub(crate) fn capabilities() -> ClientCapabilities {
        let supported = || Some(json!({}));
        ClientCapabilities {
            elicitation: Some(ElicitationCapability { form: supported(), url: supported() }),
            roots: Some(RootsCapability { list_changed: Some(true) }),
            ..ClientCapabilities::default()
        }
    }

    /// Sets the server name shown above each elicitation.
    pub(crate) fn set_server_name(&self, server: Option<&str>) {
        self.elicitor.set_server_name(server.map(one_line));
    }

    /// Replies to a server request: asks the user, or returns the current directory as a root. Sampling is refused.
    pub(crate) async fn reply(self: Arc<Self>, request: ServerRequest) -> linchpin::Result<ClientResult> {
        let elicitor = self.elicitor.clone();
        Ok(match request {
            ServerRequest::Elicit(params) if params.mode == Some(ElicitMode::Url) => {
                ClientResult::Elicit(elicitor.url(*params).await?)
            }
            ServerRequest::Elicit(params) => ClientResult::Elicit(elicitor.elicit_form(*params).await?),
            ServerRequest::Roots => {
                ClientResult::Roots(ListRootsResult { roots: roots::current_directory(), meta: None })
            }
            ServerRequest::Sample(_) => return request.decline(),
        })
    }

    /// Shows the progress of the call.
    pub(crate) fn show_progress(&self, progress: &Progress) {
        self.screen.progress(progress);
    }

    /// Shows a log message of the server.
    pub(crate) fn show_log(&self, message: &LogParams) {
        let logger =
            message.logger.as_deref().map(|logger| format!(" {}", one_line(logger))).unwrap_or_default();
        let text = message.data.as_str().map_or_else(|| one_line(&message.data.to_string()), one_line);
        self.screen.dim_line(&format!("log {}{logger}: {text}", message.level.as_str()));
    }

    /// Prints a note for each `--answer` that no form used.
    pub(crate) fn show_unused_answers(&self) {
        self.elicitor.show_unused();
    }
}
