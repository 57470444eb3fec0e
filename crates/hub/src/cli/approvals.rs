//! `linchpin approvals`: lists, approves and denies calls that require approval.

use clap::Subcommand;
use serde_json::json;

use super::Asked;
use super::output::{Field, either, field, name};
use crate::api_client::{encoded, object, query};
use crate::call::arguments;
use crate::error::Failure;

const LIST: [Field; 6] = [
    name("id", "/id"),
    field("status", "/decision"),
    either("subject", "/call/subject_name", "/call/subject"),
    field("expires", "/expires"),
    either("tool", "/call/name", "/call/tool"),
    field("arguments", "/call/arguments"),
];

const ONE: [Field; 9] = [
    name("id", "/id"),
    field("status", "/decision"),
    either("decided by", "/decided_by_name", "/decided_by"),
    either("subject", "/call/subject_name", "/call/subject"),
    field("requested", "/created"),
    field("expires", "/expires"),
    either("tool", "/call/name", "/call/tool"),
    field("call", "/call/id"),
    field("arguments", "/call/arguments"),
];

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List approvals
    List {
        /// Filter by status: open, approved, denied, expired, used, withdrawn or all
        #[arg(long, default_value = "open")]
        decision: String,
    },
    /// Show an approval with the exact arguments of the call
    Show {
        /// Id of the approval
        approval: String,
    },
    /// Approve a call
    Approve {
        /// Id of the approval
        approval: String,
        /// Arguments that replace those of the request: a JSON object, @FILE or - (standard input)
        #[arg(long, value_name = "JSON")]
        args: Option<String>,
    },
    /// Deny a call
    Deny {
        /// Id of the approval
        approval: String,
        /// Reason, shown to the caller
        #[arg(long)]
        reason: Option<String>,
    },
}

pub(super) async fn run(asked: &Asked, command: Option<Command>) -> Result<(), Failure> {
    let (api, output) = (asked.api()?, asked.output);
    match command.unwrap_or(Command::List { decision: "open".to_owned() }) {
        Command::List { decision } => {
            let decision = Some(decision).filter(|decision| decision != "all");
            let path = format!("/approvals{}", query([("decision", decision)]));
            let mut open = api.list(&path, 1_000).await?;
            for item in open.iter_mut().filter(|item| !output.json && item["call"]["arguments"].is_null()) {
                item["call"]["arguments"] = json!("too long for the list: run `linchpin approvals show`");
            }
            output.list(&open, &LIST, "no approvals")?;
        }
        Command::Show { approval } => {
            output.one(&api.get(&format!("/approvals/{}", encoded(&approval))).await?, &ONE)?;
        }
        Command::Approve { approval, args } => {
            let arguments = match args {
                Some(args) => Some(arguments::read(&args).await?),
                None => None,
            };
            let body = object([("arguments", arguments.map(|arguments| json!(arguments)))]);
            let answer = api.post(&format!("/approvals/{}/approve", encoded(&approval)), &body).await?;
            output.done(&answer, "approved")?;
        }
        Command::Deny { approval, reason } => {
            let body = object([("reason", reason.map(|reason| json!(reason)))]);
            let answer = api.post(&format!("/approvals/{}/deny", encoded(&approval)), &body).await?;
            output.done(&answer, "denied")?;
        }
    }
    Ok(())
}
