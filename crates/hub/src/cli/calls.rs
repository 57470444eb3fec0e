//! `linchpin calls`: what was called, by whom, and what came of it.

use clap::{Args, Subcommand};

use super::output::{Field, either, field, name};
use super::{Asked, agent};
use crate::api::{encoded, query};
use crate::failure::Failure;

const LIST: [Field; 6] = [
    name("id", "/id"),
    field("status", "/status"),
    field("created", "/created"),
    either("who", "/subject_name", "/subject"),
    either("tool", "/name", "/tool"),
    field("error", "/error"),
];
const ONE: [Field; 15] = [
    name("id", "/id"),
    either("tool", "/name", "/tool"),
    either("server", "/server", "/server_id"),
    field("its name there", "/tool"),
    either("who", "/subject_name", "/subject"),
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
    /// List calls, the newest first
    List(Filter),
    /// Show a call with its arguments and its result
    Show {
        /// The id of the call
        call: String,
    },
    /// Stop a call that is not over
    Cancel {
        /// The id of the call
        call: String,
    },
}

#[derive(Args, Default)]
pub(crate) struct Filter {
    /// Those of this server, by its slug or id
    #[arg(long)]
    server: Option<String>,
    /// Those of this tool, as its server calls it
    #[arg(long)]
    tool: Option<String>,
    /// Those that are so far: pending, running, success, error, denied, cancelled, unknown
    #[arg(long)]
    status: Option<String>,
    /// Filter by agent, by its name or id
    #[arg(long, conflicts_with = "subject")]
    agent: Option<String>,
    /// Filter by caller, such as agent:ID or user:ID
    #[arg(long)]
    subject: Option<String>,
    /// Those from this time on, such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Those before this time
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// How many at most; 50 when left out
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
            output.list(&api.list(&path, limit.unwrap_or(50)).await?, &LIST, "there are no calls")?;
        }
        Command::Show { call } => output.one(&api.get(&format!("/calls/{}", encoded(&call))).await?, &ONE)?,
        Command::Cancel { call } => {
            let answer = api.ask(&format!("/calls/{}/cancel", encoded(&call))).await?;
            output.one(&answer, &ONE)?;
        }
    }
    Ok(())
}
