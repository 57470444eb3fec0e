//! `linchpin tool call` at a terminal: follows the events of the call, shows its progress and replies to its server
//! requests.

use std::collections::HashSet;
use std::sync::Arc;

use linchpin::client::{ClientResult, ServerRequest};
use linchpin::model::{ElicitAction, ElicitParams};
use linchpin::server::Progress;
use serde_json::{Value, json};

use crate::api_client::{ApiClient, HubEvent, json_object, percent_encode};
use crate::error::{CliError, CliErrorKind};
use crate::interaction::TerminalInteraction;
use crate::terminal::Screen;

/// Call of a tool that this command follows.
struct FollowedCall<'a> {
    api: &'a ApiClient,
    /// Current record of the call.
    view: Value,
    path: String,
    interaction: Arc<TerminalInteraction>,
    /// Ids of the server requests that were replied to.
    replied: HashSet<String>,
}

/// Calls a tool and follows the call until it has finished. `path` is the call operation of the tool, `body` its request
/// body.
pub(super) async fn call_and_follow(
    api: &ApiClient,
    path: &str,
    mut body: Value,
    answers: Vec<(String, String)>,
) -> Result<Value, CliError> {
    let screen = Arc::new(Screen::new());
    let interaction = TerminalInteraction::new(screen.clone(), answers);
    // Before the call, whose first events are then not missed.
    let mut events = match api.events().await {
        // Agents may not read events: the hub declines the server requests of their calls.
        Err(error) if error.status() == Some(403) => {
            return api.post(path, &body).await;
        }
        events => events?,
    };
    body["replies"] = json!(true);
    let view = api.post(&format!("{path}?wait=false"), &body).await?;
    interaction.set_server_name(view["server"].as_str());
    let path = format!("/calls/{}", percent_encode(view["id"].as_str().unwrap_or_default()));
    let mut call = FollowedCall { api, view, path, interaction, replied: HashSet::new() };
    while !call.has_finished() {
        if let Some(event) = events.next().await {
            call.handle(&event).await?;
        } else {
            events = api.events().await?;
            call.refresh().await?;
        }
    }
    screen.clear();
    call.interaction.show_unused_answers();
    Ok(call.view)
}

impl FollowedCall<'_> {
    fn has_finished(&self) -> bool {
        !matches!(self.view["status"].as_str(), Some("pending" | "running"))
    }

    async fn handle(&mut self, event: &HubEvent) -> Result<(), CliError> {
        if event.kind == "missed" {
            return self.refresh().await;
        }
        if event.body["call"] != self.view["id"] {
            return Ok(());
        }
        match &*event.kind {
            "call" => self.view = self.api.get(&self.path).await?,
            "call.progress" => self.interaction.show_progress(&progress(&event.body)),
            "server_request.opened" => self.reply().await?,
            _ => {}
        }
        Ok(())
    }

    /// Reads the call and its open server requests again.
    async fn refresh(&mut self) -> Result<(), CliError> {
        self.view = self.api.get(&self.path).await?;
        if self.has_finished() { Ok(()) } else { self.reply().await }
    }

    /// Replies to the open server requests of the call.
    async fn reply(&mut self) -> Result<(), CliError> {
        for request in self.api.list(&format!("{}/requests", self.path), usize::MAX).await? {
            let id = request["id"].as_str().unwrap_or_default().to_owned();
            if !self.replied.insert(id.clone()) {
                continue;
            }
            let reply = self.interaction.clone().reply(to_server_request(&request)?).await;
            let path = format!("/server-requests/{}/reply", percent_encode(&id));
            match self.api.post(&path, &reply_body(reply)).await {
                // The call may have ended while the user was typing.
                Err(error) if !matches!(error.status(), Some(404 | 409)) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Converts a server request of the hub's API into the request of the server.
fn to_server_request(request: &Value) -> Result<ServerRequest, CliError> {
    let member = |name: &str| Some(request[name].clone()).filter(|value| !value.is_null());
    let params = json_object([
        ("mode", member("kind")),
        ("message", member("message")),
        ("requestedSchema", member("schema")),
        ("url", member("url")),
    ]);
    let params: ElicitParams = serde_json::from_value(params).map_err(|error| {
        CliError::new(CliErrorKind::Protocol, format!("invalid server request of the hub: {error}"))
    })?;
    Ok(ServerRequest::Elicit(Box::new(params)))
}

/// Creates the body that replies to a server request.
fn reply_body(reply: linchpin::Result<ClientResult>) -> Value {
    let Ok(ClientResult::Elicit(result)) = reply else { return json!({ "action": "decline" }) };
    match (result.action, result.content) {
        (ElicitAction::Accept, Some(content)) => json!({ "action": "accept", "content": content }),
        (ElicitAction::Accept, None) => json!({ "action": "accept" }),
        (ElicitAction::Cancel, _) => json!({ "action": "cancel" }),
        _ => json!({ "action": "decline" }),
    }
}

/// Returns the progress in an event of the hub.
fn progress(body: &Value) -> Progress {
    let done = body["progress"].as_f64().unwrap_or_default();
    match (body["total"].as_f64(), body["message"].as_str()) {
        (Some(total), Some(message)) => (done, total, message).into(),
        (Some(total), None) => (done, total).into(),
        (None, _) => done.into(),
    }
}
