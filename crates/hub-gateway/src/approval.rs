//! Waiting for the approval of a call: the user of the client decides in an elicitation, if client and agent support
//! that; otherwise a user decides in the hub while the client receives progress.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use linchpin::client::{ClientResult, ServerRequest};
use linchpin::model::{ElicitAction, ElicitMode, ElicitParams};
use linchpin::{Context, Era};
use linchpin_hub_core::hub::{CLIENT_LOST_TIMEOUT, CallView};
use linchpin_hub_core::id::ApprovalId;
use linchpin_hub_core::store::CallStatus;
use linchpin_hub_core::{Result, escape_invisible};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use crate::client_link::empty_elicitation;
use crate::forwarder::Forwarder;

/// Interval of the progress notifications to a client that waits.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);
/// Step of the progress while the call waits: tiny, so that any progress of the tool is larger.
const PROGRESS_STEP: f64 = 1e-4;
/// Number of ticks of [`PROGRESS_INTERVAL`] between two records that the client is present.
const PRESENCE_TICKS: u64 = 8;
/// Time for which a client without a session may show an elicitation before it counts as gone.
const ELICITATION_TIMEOUT: Duration = Duration::from_mins(12);
/// Maximum size of arguments that are shown in an elicitation, in bytes.
const MAX_SHOWN_BYTES: usize = 16 << 10;

/// Decision of the user of a client.
enum ClientDecision {
    Decided(bool),
    /// The client cannot ask its user, or the user made no choice.
    Undecided,
}

impl Forwarder {
    /// Waits until a call that waits for an approval, or runs at another hub, has finished.
    pub(crate) async fn wait_for_outcome(&self, call: CallView, cx: &Context) -> Result<CallView> {
        let is_pending = AtomicBool::new(call.status == CallStatus::Pending);
        let (mut finished, mut presence) = (
            std::pin::pin!(self.hub.calls().wait(self.actor, call.id)),
            std::pin::pin!(self.report_presence(&call, &is_pending, cx)),
        );
        if let Some(approval) = call.approval.filter(|_| is_pending.load(Ordering::Relaxed)) {
            let mut asked = std::pin::pin!(self.ask_client(&call, approval, cx));
            tokio::select! {
                biased;
                finished = &mut finished => return finished,
                decision = &mut asked => {
                    is_pending.store(matches!(decision?, ClientDecision::Undecided), Ordering::Relaxed);
                }
                never = &mut presence => match never {},
            }
        }
        tokio::select! {
            biased;
            finished = &mut finished => finished,
            never = &mut presence => match never {},
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
        if cx.revision().era() == Era::Stateless {
            // The client is not connected while its user decides.
            calls.attend(self.actor, call.id, ELICITATION_TIMEOUT).await?;
        }
        // A name that the client cannot know before it is asked.
        let decision = elicit(request, &format!("approval-{approval}"), cx).await;
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
    async fn report_presence(&self, call: &CallView, is_pending: &AtomicBool, cx: &Context) -> Infallible {
        let mut ticks = interval(PROGRESS_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let place = self.hub_url.as_deref().unwrap_or("the hub");
        let approve = call.approval.map(|approval| format!("linchpin approvals approve {approval}"));
        let message = format!("waiting for approval: {}", approve.as_deref().unwrap_or(place));
        let (mut count, mut progress) = (0_u64, 0.0);
        loop {
            ticks.tick().await;
            if is_pending.load(Ordering::Relaxed) {
                progress += PROGRESS_STEP;
                cx.progress(linchpin::Progress::new(progress, None, Some(message.clone())));
            }
            if count.is_multiple_of(PRESENCE_TICKS)
                && cx.is_attached()
                && let Err(error) = self.hub.calls().attend(self.actor, call.id, CLIENT_LOST_TIMEOUT).await
            {
                tracing::debug!(call.id = %call.id, %error, "failed to record the presence of a client");
            }
            count += 1;
        }
    }
}

/// Sends the elicitation to the client. An error counts as no decision: a user of the hub can still decide.
async fn elicit(request: ServerRequest, name: &str, cx: &Context) -> ClientDecision {
    match cx.named(name).send_server_request(request).await {
        Ok(ClientResult::Elicit(result)) => match (result.action, result.content) {
            (ElicitAction::Accept, Some(content)) => match content.get("decision").and_then(Value::as_str) {
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
