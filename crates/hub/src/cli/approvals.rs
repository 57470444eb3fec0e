//! `linchpin approvals`: calls that wait for a yes or no.

use clap::Subcommand;
use serde_json::json;

use super::Asked;
use super::output::{Field, either, field, name};
use crate::api::{encoded, object, query};
use crate::call::arguments;
use crate::failure::Failure;

const LIST: [Field; 6] = [
    name("id", "/id"),
    field("decision", "/decision"),
    either("who", "/call/subject_name", "/call/subject"),
    field("expires", "/expires"),
    either("tool", "/call/name", "/call/tool"),
    field("arguments", "/call/arguments"),
];

const ONE: [Field; 9] = [
    name("id", "/id"),
    field("decision", "/decision"),
    either("by", "/decided_by_name", "/decided_by"),
    either("who", "/call/subject_name", "/call/subject"),
    field("asked", "/created"),
    field("expires", "/expires"),
    either("tool", "/call/name", "/call/tool"),
    field("call", "/call/id"),
    field("arguments", "/call/arguments"),
];

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List what waits for an answer
    List {
        /// Filter by decision: open, approved, denied, expired, used, withdrawn or all
        #[arg(long, default_value = "open")]
        decision: String,
    },
    /// Show a question with the exact arguments of the call
    Show {
        /// The id of the question
        approval: String,
    },
    /// Say yes
    Approve {
        /// The id of the question
        approval: String,
        /// Other arguments, in place of those that were asked for: a JSON object, @FILE or -
        #[arg(long, value_name = "JSON")]
        args: Option<String>,
    },
    /// Say no
    Deny {
        /// The id of the question
        approval: String,
        /// Why not: told to whoever wanted the call
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
                item["call"]["arguments"] = json!("too long for a list: see `linchpin approvals show`");
            }
            output.list(&open, &LIST, "nothing waits for an answer")?;
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
