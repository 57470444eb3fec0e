//! Diagnosis of a server of the running hub: connection, grant status, tools, and advice.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::text;
use super::trace::DoctorStep;
use crate::api_client::query_string;
use crate::cli::{CommandContext, agent, print};
use crate::error::CliError;
use crate::terminal::{OutputStyle, one_line};

pub(crate) async fn examine(
    context: &CommandContext,
    name: &str,
    agent_name: Option<&str>,
) -> Result<ExitCode, CliError> {
    let api = context.api()?;
    let server = api.get(&format!("/servers/{}", crate::api_client::percent_encode(name))).await?;
    let slug = json_text(&server["slug"]);
    let mut steps = vec![server_step(&server), connection_step(&server, &slug)];
    let mut trace = json!([]);
    if server["authentication"]["type"] == "oauth" {
        let agent = agent::find_optional(&api, agent_name).await?;
        if agent.is_none() && server["credentials"] == "per-agent" {
            let advice = "pass --agent NAME to see the grant of that agent".to_owned();
            steps.push(
                DoctorStep::passed("sign-in", "each agent has its own OAuth grant").with_advice(Some(advice)),
            );
        } else {
            let path = format!("/servers/{slug}/sign-in{}", query_string([("agent", agent)]));
            let status = api.get(&path).await?;
            steps.extend(status["trace"].as_array().into_iter().flatten().map(trace_step));
            steps.push(sign_in_step(&status));
            trace = status["trace"].clone();
        }
    }
    steps.push(tools_step(&server, &slug));
    let skipped = server["skipped"].as_array().into_iter().flatten();
    steps.extend(
        skipped.map(|tool| DoctorStep::skipped_tool(&json_text(&tool["name"]), &json_text(&tool["reason"]))),
    );
    let is_healthy = steps.iter().all(|step| step.ok);
    print(&if context.output.json {
        let steps: Vec<_> = steps.iter().map(DoctorStep::to_json).collect();
        format!("{}\n", json!({ "server": slug, "ok": is_healthy, "steps": steps, "trace": trace }))
    } else {
        text::render(&slug, &steps, OutputStyle::stdout())
    })?;
    Ok(ExitCode::from(u8::from(!is_healthy)))
}

fn json_text(value: &Value) -> String {
    value.as_str().map(one_line).unwrap_or_default()
}

fn server_step(server: &Value) -> DoctorStep {
    let address =
        if server["url"].is_null() { json_text(&server["transport"]) } else { json_text(&server["url"]) };
    let text = format!("{} ({address})", json_text(&server["name"]));
    if server["enabled"] == false {
        let advice = format!("enable it with `linchpin server enable {}`", json_text(&server["slug"]));
        return DoctorStep::failed("server", format!("{text}: disabled"), Some(advice));
    }
    DoctorStep::passed("server", text)
}

fn connection_step(server: &Value, slug: &str) -> DoctorStep {
    match &*json_text(&server["status"]) {
        "error" => {
            let advice = format!("test it with `linchpin server test {slug}`");
            DoctorStep::failed("connection", "the last connection attempt failed", Some(advice))
        }
        "disabled" => DoctorStep::passed("connection", "no connection: the server is disabled"),
        "disconnected" => DoctorStep::passed("connection", "no connection; the next call opens one"),
        status => DoctorStep::passed("connection", status),
    }
}

/// Converts one request of the OAuth trace into a step of the diagnosis. A failed one does not fail the diagnosis:
/// discovery tries several URLs.
fn trace_step(entry: &Value) -> DoctorStep {
    let outcome = match (entry["status"].as_u64(), &entry["error"]) {
        (Some(status), _) => format!(": HTTP {status}"),
        (None, Value::String(error)) => format!(": {}", one_line(error)),
        _ => String::new(),
    };
    let text = format!(
        "{} {} at {}{outcome}",
        json_text(&entry["at"]),
        json_text(&entry["purpose"]),
        json_text(&entry["url"])
    );
    let millis = entry["duration_ms"].as_u64().unwrap_or_default();
    DoctorStep::passed("hop", text).with_duration(std::time::Duration::from_millis(millis))
}

fn sign_in_step(status: &Value) -> DoctorStep {
    let advice = status["advice"].as_str().map(one_line);
    match &*json_text(&status["state"]) {
        "active" => DoctorStep::passed("sign-in", "signed in to this server").with_advice(advice),
        "reauthorization_required" => {
            DoctorStep::failed("sign-in", "the OAuth grant is no longer accepted", advice)
        }
        _ => DoctorStep::failed("sign-in", "not signed in to this server", advice),
    }
}

fn tools_step(server: &Value, slug: &str) -> DoctorStep {
    let count = server["tools"].as_u64().unwrap_or_default();
    if let Some(error) = server["error"].as_str() {
        let advice = format!("fix the error, then sync with `linchpin server sync {slug}`");
        return DoctorStep::failed("tools", one_line(error), Some(advice));
    }
    match server["last_synced"].as_str() {
        Some(synced_at) => DoctorStep::passed("tools", format!("{count}, synced {}", one_line(synced_at))),
        None => DoctorStep::passed("tools", "the tools have not been synced yet"),
    }
}
