//! `linchpin calls`: lists, shows and cancels calls.

use clap::{Args, Subcommand};

use super::output::{Column, column, column_or, name_column};
use super::{CommandContext, agent};
use crate::api_client::{percent_encode, query_string};
use crate::error::CliError;

const LIST_COLUMNS: [Column; 6] = [
    name_column("id", "/id"),
    column("status", "/status"),
    column("created", "/created"),
    column_or("subject", "/subject_name", "/subject"),
    column_or("tool", "/name", "/tool"),
    column("error", "/error"),
];
const DETAIL_COLUMNS: [Column; 15] = [
    name_column("id", "/id"),
    column_or("tool", "/name", "/tool"),
    column_or("server", "/server", "/server_id"),
    column("upstream name", "/tool"),
    column_or("subject", "/subject_name", "/subject"),
    column("status", "/status"),
    column("error", "/error"),
    column("approval", "/approval"),
    column("created", "/created"),
    column("started", "/started"),
    column("completed", "/completed"),
    column("digest", "/digest"),
    column("arguments", "/arguments"),
    column("warning", "/warning"),
    column("result", "/summary"),
];

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List calls, newest first
    List(Filter),
    /// Show a call with its arguments and result
    Show {
        /// Id of the call
        call: String,
    },
    /// Cancel a pending or running call
    Cancel {
        /// Id of the call
        call: String,
    },
}

#[derive(Args, Default)]
pub(crate) struct Filter {
    /// Filter by server (slug or id)
    #[arg(long)]
    server: Option<String>,
    /// Filter by the upstream name of the tool
    #[arg(long)]
    tool: Option<String>,
    /// Filter by status: pending, running, success, error, denied, cancelled, unknown
    #[arg(long)]
    status: Option<String>,
    /// Filter by agent (name or id)
    #[arg(long, conflicts_with = "subject")]
    agent: Option<String>,
    /// Filter by subject, for example agent:ID or user:ID
    #[arg(long)]
    subject: Option<String>,
    /// List only calls created at or after this time, for example 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// List only calls created before this time
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Maximum number of calls to list. Default: 50
    #[arg(long, value_name = "COUNT")]
    limit: Option<usize>,
}

pub(super) async fn run(context: &CommandContext, command: Option<Command>) -> Result<(), CliError> {
    let (api, output) = (context.api()?, context.output);
    match command.unwrap_or(Command::List(Filter::default())) {
        Command::List(filter) => {
            let Filter { server, tool, status, agent, subject, since, until, limit } = filter;
            let agent = agent::find_optional(&api, agent.as_deref()).await?;
            let subject = subject.or(agent.map(|id| format!("agent:{id}")));
            let (filters, times) = (
                [("server", server), ("tool", tool), ("status", status)],
                [("since", since), ("until", until)],
            );
            let path = format!(
                "/calls{}",
                query_string(filters.into_iter().chain([("subject", subject)]).chain(times))
            );
            output.print_list(&api.list(&path, limit.unwrap_or(50)).await?, &LIST_COLUMNS, "no calls")?;
        }
        Command::Show { call } => output
            .print_details(&api.get(&format!("/calls/{}", percent_encode(&call))).await?, &DETAIL_COLUMNS)?,
        Command::Cancel { call } => {
            let call_view = api.post_empty(&format!("/calls/{}/cancel", percent_encode(&call))).await?;
            output.print_details(&call_view, &DETAIL_COLUMNS)?;
        }
    }
    Ok(())
}
