//! `linchpin approvals`: lists, approves and denies calls that require approval.

use clap::Subcommand;
use serde_json::json;

use super::CommandContext;
use super::approval_rule::RuleLimits;
use super::output::{Column, column, column_or, name_column};
use crate::api_client::{json_object, percent_encode, query_string};
use crate::call::arguments;
use crate::error::CliError;

const LIST_COLUMNS: [Column; 6] = [
    name_column("id", "/id"),
    column("status", "/decision"),
    column_or("subject", "/call/subject_name", "/call/subject"),
    column("expires", "/expires"),
    column_or("tool", "/call/name", "/call/tool"),
    column("arguments", "/call/arguments"),
];

const DETAIL_COLUMNS: [Column; 9] = [
    name_column("id", "/id"),
    column("status", "/decision"),
    column_or("decided by", "/decided_by_name", "/decided_by"),
    column_or("subject", "/call/subject_name", "/call/subject"),
    column("requested", "/created"),
    column("expires", "/expires"),
    column_or("tool", "/call/name", "/call/tool"),
    column("call", "/call/id"),
    column("arguments", "/call/arguments"),
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
    /// Approve a pending call, which the hub then executes
    ///
    /// With --for-session, --for or --if-…, an approval rule covers later calls of the agent with this tool as well.
    Approve {
        /// Id of the approval
        approval: String,
        /// Arguments that replace those of the request: a JSON object, @FILE or - (standard input)
        #[arg(long, value_name = "JSON")]
        args: Option<String>,
        /// Also approve later calls of the agent with this tool in the same session
        #[arg(long)]
        for_session: bool,
        #[command(flatten)]
        limits: RuleLimits,
    },
    /// Deny a pending call, which is then not executed
    Deny {
        /// Id of the approval
        approval: String,
        /// Reason for the denial, shown to the caller
        #[arg(long)]
        reason: Option<String>,
    },
}

pub(super) async fn run(context: &CommandContext, command: Option<Command>) -> Result<(), CliError> {
    let (api, output) = (context.api()?, context.output);
    match command.unwrap_or(Command::List { decision: "open".to_owned() }) {
        Command::List { decision } => {
            let decision = Some(decision).filter(|decision| decision != "all");
            let path = format!("/approvals{}", query_string([("decision", decision)]));
            let mut open = api.list(&path, 1_000).await?;
            for item in open.iter_mut().filter(|item| !output.json && item["call"]["arguments"].is_null()) {
                item["call"]["arguments"] =
                    json!("the arguments are too long for the list: run `linchpin approvals show`");
            }
            output.print_list(&open, &LIST_COLUMNS, "no approvals")?;
        }
        Command::Show { approval } => {
            output.print_details(
                &api.get(&format!("/approvals/{}", percent_encode(&approval))).await?,
                &DETAIL_COLUMNS,
            )?;
        }
        Command::Approve { approval, args, for_session, limits } => {
            let arguments = match args {
                Some(args) => Some(arguments::read(&args).await?),
                None => None,
            };
            let mut rule = limits.members();
            rule.push(("session", for_session.then(|| json!(true))));
            let rule = Some(json_object(rule)).filter(|rule| *rule != json!({}));
            let arguments = arguments.map(|arguments| json!(arguments));
            let body = json_object([("arguments", arguments), ("rule", rule)]);
            let response =
                api.post(&format!("/approvals/{}/approve", percent_encode(&approval)), &body).await?;
            output.print_result(&response, "approved")?;
        }
        Command::Deny { approval, reason } => {
            let body = json_object([("reason", reason.map(|reason| json!(reason)))]);
            let response = api.post(&format!("/approvals/{}/deny", percent_encode(&approval)), &body).await?;
            output.print_result(&response, "denied")?;
        }
    }
    Ok(())
}
