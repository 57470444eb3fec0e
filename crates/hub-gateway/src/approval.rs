//! Waiting for the approval of a call: the user of the client decides in an elicitation, if client and agent support
//! that; otherwise a user decides in the hub while the client receives progress.

use std::convert::Infallible;
use std::time::Duration;

use linchpin::Context;
use linchpin::client::{ClientResult, ServerRequest};
use linchpin::model::{ElicitAction, ElicitMode, ElicitParams};
use linchpin_hub_core::hub::{CLIENT_LOST_TIMEOUT, CallView};
use linchpin_hub_core::id::ApprovalId;
use linchpin_hub_core::store::CallStatus;
use linchpin_hub_core::{Result, escape_invisible};
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};

use crate::client_link::empty_elicitation;
use crate::forwarder::Forwarder;

/// Interval of the progress notifications to a client that waits.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);
/// Number of progress notifications between two records that the client is present.
const PRESENCE_TICKS: u64 = 8;
/// Time for which a client without a session may show an elicitation before it counts as gone.
const ELICITATION_TIMEOUT: Duration = Duration::from_mins(12);
/// Maximum size of arguments that are shown in an elicitation, in bytes.
const MAX_SHOWN_BYTES: usize = 16 << 10;
/// Name of the elicitation, under which clients without a session reply to it.
const ELICITATION_NAME: &str = "approval";

/// Decision of the user of a client.
enum ClientDecision {
    Decided(bool),
    /// The client cannot ask its user, or the user made no choice.
    Undecided,
}

impl Forwarder {
    /// Waits until a call that waits for an approval, or runs at another hub, has finished.
    pub(crate) async fn wait_for_outcome(&self, call: CallView, cx: &Context) -> Result<CallView> {
        let calls = self.hub.calls();
        let finished = calls.wait(self.actor, call.id);
        let mut finished = std::pin::pin!(finished);
        let mut is_pending = call.status == CallStatus::Pending;
        if is_pending && let Some(approval) = call.approval {
            let asked = self.ask_client(&call, approval, cx);
            tokio::select! {
                biased;
                finished = &mut finished => return finished,
                asked = asked => is_pending = matches!(asked?, ClientDecision::Undecided),
            }
        }
        let presence = self.report_presence(&call, is_pending, cx);
        tokio::select! {
            biased;
            finished = &mut finished => finished,
            failed = presence => failed.map(|never| match never {}),
        }
    }

    /// Asks the user of the client for the approval, and records the decision.
    async fn ask_client(
        &self,
        call: &CallView,
        approval: ApprovalId,
        cx: &Context,
    ) -> Result<ClientDecision> {
        let calls = self.hub.calls();
        let Some(elicitation) = approval_form(call) else { return Ok(ClientDecision::Undecided) };
        let request = ServerRequest::Elicit(Box::new(elicitation));
        if !cx.can_request(&request) || !calls.accepts_client_approvals(self.actor).await? {
            return Ok(ClientDecision::Undecided);
        }
        // A client without a session is not connected while its user decides.
        calls.attend(self.actor, call.id, ELICITATION_TIMEOUT).await?;
        let decision = elicit(request, cx).await;
        if let ClientDecision::Decided(is_approved) = decision {
            match calls.decide_by_client(self.actor, approval, is_approved).await {
                // A user of the hub has decided at this moment: the outcome says so.
                Err(error) if error.code() == "approval_decided" => {}
                decided => decided?,
            }
        }
        Ok(decision)
    }

    /// Reports progress to the client while the call waits, and records that the client is present.
    async fn report_presence(&self, call: &CallView, is_pending: bool, cx: &Context) -> Result<Infallible> {
        let mut ticks = interval(PROGRESS_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let place = self.hub_url.as_deref().unwrap_or("the hub");
        let message = format!("waiting for a user to approve the call in {place}");
        let mut count = 0_u64;
        loop {
            ticks.tick().await;
            if is_pending {
                #[expect(clippy::cast_precision_loss, reason = "the count stays small")]
                cx.progress(linchpin::Progress::new(count as f64 + 1.0, None, Some(message.clone())));
            }
            if count.is_multiple_of(PRESENCE_TICKS) {
                self.hub.calls().attend(self.actor, call.id, CLIENT_LOST_TIMEOUT).await?;
            }
            count += 1;
        }
    }
}

/// Sends the elicitation to the client. An error counts as no decision: a user of the hub can still decide.
async fn elicit(request: ServerRequest, cx: &Context) -> ClientDecision {
    match cx.named(ELICITATION_NAME).send_server_request(request).await {
        Ok(ClientResult::Elicit(result)) => match (result.action, result.content) {
            (ElicitAction::Accept, Some(content)) => match content["decision"].as_str() {
                Some("approve") => ClientDecision::Decided(true),
                Some("deny") => ClientDecision::Decided(false),
                _ => ClientDecision::Undecided,
            },
            (ElicitAction::Decline, _) => ClientDecision::Decided(false),
            _ => ClientDecision::Undecided,
        },
        Ok(_) => ClientDecision::Undecided,
        Err(error) => {
            tracing::debug!(%error, "failed to ask the user of a client for an approval");
            ClientDecision::Undecided
        }
    }
}

/// Creates the elicitation with the exact arguments of the call; `None` if they are too large to be shown.
fn approval_form(call: &CallView) -> Option<ElicitParams> {
    let arguments = serde_json::to_string_pretty(call.arguments.as_ref()?).ok()?;
    if arguments.len() > MAX_SHOWN_BYTES {
        return None;
    }
    let name = call.name.as_deref().unwrap_or(&call.tool);
    let message = format!(
        "Approve this tool call?\n\nTool: {}\nArguments:\n{}",
        escape_invisible(name),
        escape_invisible(&arguments)
    );
    let decision = json!({
        "type": "string", "title": "Decision",
        "oneOf": [
            { "const": "approve", "title": "Approve this call once" },
            { "const": "deny", "title": "Deny the call" },
        ],
    });
    let mut elicitation = ElicitParams { message, ..empty_elicitation(ElicitMode::Form) };
    if let Some(form) = &mut elicitation.requested_schema {
        form.properties.insert("decision".to_owned(), decision);
        form.required = Some(vec!["decision".to_owned()]);
    }
    Some(elicitation)
}
