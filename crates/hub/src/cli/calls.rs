//! `linchpin calls`: lists, shows and cancels calls.

use clap::{Args, Subcommand};

use super::output::{Field, either, field, name};
use super::{Asked, agent};
use crate::api_client::{encoded, query};
use crate::error::Failure;

const LIST: [Field; 6] = [
    name("id", "/id"),
    field("status", "/status"),
    field("created", "/created"),
    either("subject", "/subject_name", "/subject"),
    either("tool", "/name", "/tool"),
    field("error", "/error"),
];
const ONE: [Field; 15] = [
    name("id", "/id"),
    either("tool", "/name", "/tool"),
    either("server", "/server", "/server_id"),
    field("upstream name", "/tool"),
    either("subject", "/subject_name", "/subject"),
    field("status", "/status"),
    field("error", "/error"),
    field("approval", "/approval"),
    field("created", "/created"),
    field("started", "/started"),
    field("completed", "/completed"),
    field("digest", "/digest"),
    field("arguments", "/arguments"),
    field("warning", "/warning"),
    field("result", "/summary"),
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
    /// Show calls from this time on, for example 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Show calls before this time
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Maximum number of calls. Default: 50
    #[arg(long, value_name = "COUNT")]
    limit: Option<usize>,
}

pub(super) async fn run(asked: &Asked, command: Option<Command>) -> Result<(), Failure> {
    let (api, output) = (asked.api()?, asked.output);
    match command.unwrap_or(Command::List(Filter::default())) {
        Command::List(filter) => {
            let Filter { server, tool, status, agent, subject, since, until, limit } = filter;
            let agent = agent::find_if(&api, agent.as_deref()).await?;
            let subject = subject.or(agent.map(|id| format!("agent:{id}")));
            let (about, when) = (
                [("server", server), ("tool", tool), ("status", status)],
                [("since", since), ("until", until)],
            );
            let path =
                format!("/calls{}", query(about.into_iter().chain([("subject", subject)]).chain(when)));
            output.list(&api.list(&path, limit.unwrap_or(50)).await?, &LIST, "no calls")?;
        }
        Command::Show { call } => output.one(&api.get(&format!("/calls/{}", encoded(&call))).await?, &ONE)?,
        Command::Cancel { call } => {
            let answer = api.ask(&format!("/calls/{}/cancel", encoded(&call))).await?;
            output.one(&answer, &ONE)?;
        }
    }
    Ok(())
}
