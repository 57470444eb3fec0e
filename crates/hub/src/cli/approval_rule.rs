//! `linchpin approval-rule`: manages approvals that cover later calls of agents.

use std::ops::RangeInclusive;

use clap::{Args, Subcommand};
use linchpin_hub_core::approval_rule::RULE_MINUTES;
use serde_json::{Value, json};

use super::output::{Column, column, column_or, name_column};
use super::{CommandContext, agent, duration};
use crate::api_client::{ApiClient, json_object, percent_encode, query_string};
use crate::error::CliError;

const LIST_COLUMNS: [Column; 7] = [
    name_column("id", "/id"),
    column_or("agent", "/agent_name", "/agent"),
    column_or("tool", "/name", "/tool"),
    column("valid", "/is_valid"),
    column("expires", "/expires"),
    column("session", "/session"),
    column("conditions", "/conditions"),
];

const DETAIL_COLUMNS: [Column; 11] = [
    name_column("id", "/id"),
    column_or("agent", "/agent_name", "/agent"),
    column_or("tool", "/name", "/tool"),
    column("pin", "/pin"),
    column("valid", "/is_valid"),
    column("expires", "/expires"),
    column("session", "/session"),
    column("conditions", "/conditions"),
    column("approval", "/approval"),
    column_or("created by", "/created_by_name", "/created_by"),
    column("created", "/created"),
];

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List approval rules
    List {
        /// Only rules of this agent, by name or id
        #[arg(long)]
        agent: Option<String>,
        /// Only rules for tools of this server, by slug or id
        #[arg(long)]
        server: Option<String>,
    },
    /// Show an approval rule
    Show {
        /// Id of the approval rule
        rule: String,
    },
    /// Add an approval rule: calls of the agent that it covers need no approval
    ///
    /// Example: `linchpin approval-rule add Helper mcp_files__read --if-prefix /path=/data/ --for 8h`
    Add {
        /// Name or id of the agent
        agent: String,
        /// Qualified name of the tool, for example `mcp_demo__add`
        tool: String,
        /// Only calls of this session
        #[arg(long, value_name = "SESSION")]
        session: Option<String>,
        #[command(flatten)]
        limits: RuleLimits,
    },
    /// Revoke an approval rule: later calls require approval again
    Revoke {
        /// Id of the approval rule
        rule: String,
    },
}

/// Options that limit an approval rule.
#[derive(Args)]
pub(crate) struct RuleLimits {
    /// How long the rule is valid: whole minutes, at least 1m and at most 168h
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_minutes)]
    minutes: Option<u64>,
    /// Only calls with this JSON value, or text, at a JSON Pointer in the arguments; repeatable
    #[arg(long, value_name = "POINTER=VALUE", value_parser = super::parse_pair)]
    if_equals: Vec<(String, String)>,
    /// Only calls with a string that starts with this text at a JSON Pointer; repeatable
    #[arg(long, value_name = "POINTER=TEXT", value_parser = super::parse_pair)]
    if_prefix: Vec<(String, String)>,
    /// Only calls with one of these JSON values at a JSON Pointer; repeatable
    #[arg(long, value_name = "POINTER=LIST", value_parser = parse_list)]
    if_in: Vec<(String, Value)>,
}

impl RuleLimits {
    /// Returns the members of a request body that limit a rule.
    pub(super) fn members(&self) -> Vec<(&'static str, Option<Value>)> {
        let equals = self.if_equals.iter().map(|(pointer, value)| {
            let value = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
            json!({ "pointer": pointer, "equals": value })
        });
        let prefix =
            self.if_prefix.iter().map(|(pointer, text)| json!({ "pointer": pointer, "prefix": text }));
        let accepted = self.if_in.iter().map(|(pointer, values)| json!({ "pointer": pointer, "in": values }));
        let conditions: Vec<_> = equals.chain(prefix).chain(accepted).collect();
        vec![
            ("minutes", self.minutes.map(|minutes| json!(minutes))),
            ("conditions", (!conditions.is_empty()).then(|| json!(conditions))),
        ]
    }
}

/// Parses a validity into whole minutes.
fn parse_minutes(text: &str) -> Result<u64, String> {
    const MINUTE: u64 = 60_000;
    let range: RangeInclusive<u64> = RULE_MINUTES.start() * MINUTE..=RULE_MINUTES.end() * MINUTE;
    let millis = duration::parse_millis(text, &range)?;
    if millis.is_multiple_of(MINUTE) { Ok(millis / MINUTE) } else { Err("must be whole minutes".to_owned()) }
}

fn parse_list(text: &str) -> Result<(String, Value), String> {
    let (pointer, list) = super::parse_pair(text)?;
    let list = serde_json::from_str::<Vec<Value>>(&list);
    list.map(|list| (pointer, json!(list))).map_err(|_| "the value must be a JSON list".to_owned())
}

pub(super) async fn run(context: &CommandContext, command: Command) -> Result<(), CliError> {
    let (api, output) = (context.api()?, context.output);
    let path = |rule: &str| format!("/approval-rules/{}", percent_encode(rule));
    match command {
        Command::List { agent, server } => {
            let agent = agent::find_optional(&api, agent.as_deref()).await?;
            let query = query_string([("agent", agent), ("server", server)]);
            let rules = api.list(&format!("/approval-rules{query}"), usize::MAX).await?;
            output.print_list(&rules, &LIST_COLUMNS, "no approval rules")?;
        }
        Command::Show { rule } => output.print_details(&api.get(&path(&rule)).await?, &DETAIL_COLUMNS)?,
        Command::Add { agent, tool, session, limits } => {
            let rule = add(&api, &agent, &tool, session, &limits).await?;
            let id = rule["id"].as_str().unwrap_or_default();
            output.print_result(&rule, &format!("approval rule {id} added"))?;
        }
        Command::Revoke { rule } => {
            api.delete(&path(&rule)).await?;
            output.print_result(&json!({ "revoked": rule }), &format!("approval rule {rule} revoked"))?;
        }
    }
    Ok(())
}

async fn add(
    api: &ApiClient,
    agent: &str,
    tool: &str,
    session: Option<String>,
    limits: &RuleLimits,
) -> Result<Value, CliError> {
    let mut members = limits.members();
    members.push(("agent", Some(json!(agent::find(api, agent).await?))));
    members.push(("tool", Some(json!(tool))));
    members.push(("session", session.map(|session| json!(session))));
    api.post("/approval-rules", &json_object(members)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_validity_is_in_whole_minutes() {
        for (text, minutes) in [("1m", 1), ("60", 1), ("8h", 480), ("168h", 10_080)] {
            assert_eq!(parse_minutes(text), Ok(minutes), "{text}");
        }
        for text in ["59s", "90s", "169h", "", "x"] {
            assert!(parse_minutes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn conditions_are_json_or_text() {
        let pair = |pointer: &str, value: &str| (pointer.to_owned(), value.to_owned());
        let limits = RuleLimits {
            minutes: Some(5),
            if_equals: vec![pair("/n", "5"), pair("/s", "five"), pair("/t", "\"5\"")],
            if_prefix: vec![pair("/path", "/data/")],
            if_in: vec![parse_list("/mode=[\"a\", 1]").unwrap()],
        };
        let expected = json!([
            {"pointer": "/n", "equals": 5},
            {"pointer": "/s", "equals": "five"},
            {"pointer": "/t", "equals": "5"},
            {"pointer": "/path", "prefix": "/data/"},
            {"pointer": "/mode", "in": ["a", 1]},
        ]);
        assert_eq!(json_object(limits.members()), json!({"minutes": 5, "conditions": expected}));
        assert!(parse_list("/mode=a").is_err() && parse_list("[1]").is_err());
    }
}
