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
    asked: &CommandContext,
    name: &str,
    whose: Option<&str>,
) -> Result<ExitCode, CliError> {
    let api = asked.api()?;
    let server = api.get(&format!("/servers/{}", crate::api_client::percent_encode(name))).await?;
    let slug = text_of(&server["slug"]);
    let mut steps = vec![server_step(&server), connection_step(&server, &slug)];
    let mut hops = json!([]);
    if server["authentication"]["type"] == "oauth" {
        let agent = agent::find_optional(&api, whose).await?;
        if agent.is_none() && server["credentials"] == "per-agent" {
            let advice = "pass --agent NAME to see the grant of that agent".to_owned();
            steps.push(
                DoctorStep::passed("sign-in", "each agent has its own grant").with_advice(Some(advice)),
            );
        } else {
            let path = format!("/servers/{slug}/sign-in{}", query_string([("agent", agent)]));
            let standing = api.get(&path).await?;
            steps.extend(standing["hops"].as_array().into_iter().flatten().map(trace_step));
            steps.push(sign_in_step(&standing));
            hops = standing["hops"].clone();
        }
    }
    steps.push(tools_step(&server, &slug));
    let left_out = server["left_out"].as_array().into_iter().flatten();
    steps.extend(
        left_out.map(|tool| DoctorStep::left_out(&text_of(&tool["name"]), &text_of(&tool["reason"]))),
    );
    let is_healthy = steps.iter().all(|step| step.ok);
    print(&if asked.output.json {
        let steps: Vec<_> = steps.iter().map(DoctorStep::to_json).collect();
        format!("{}\n", json!({ "server": slug, "ok": is_healthy, "steps": steps, "hops": hops }))
    } else {
        text::render(&slug, &steps, OutputStyle::stdout())
    })?;
    Ok(ExitCode::from(u8::from(!is_healthy)))
}

fn text_of(value: &Value) -> String {
    value.as_str().map(one_line).unwrap_or_default()
}

fn server_step(server: &Value) -> DoctorStep {
    let place = if server["url"].is_null() { text_of(&server["transport"]) } else { text_of(&server["url"]) };
    let text = format!("{} ({place})", text_of(&server["name"]));
    if server["enabled"] == false {
        let advice = format!("enable it with `linchpin server enable {}`", text_of(&server["slug"]));
        return DoctorStep::failed("server", format!("{text}: disabled"), Some(advice));
    }
    DoctorStep::passed("server", text)
}

fn connection_step(server: &Value, slug: &str) -> DoctorStep {
    match &*text_of(&server["status"]) {
        "error" => {
            let advice = format!("test it with `linchpin server test {slug}`");
            DoctorStep::failed("connection", "the last connection attempt failed", Some(advice))
        }
        "disabled" => DoctorStep::passed("connection", "none: the server is disabled"),
        "disconnected" => DoctorStep::passed("connection", "none; the next call opens one"),
        status => DoctorStep::passed("connection", status),
    }
}

/// Shows one request of the OAuth trace. A failed one does not fail the diagnosis: discovery tries several URLs.
fn trace_step(hop: &Value) -> DoctorStep {
    let came = match (hop["status"].as_u64(), &hop["error"]) {
        (Some(status), _) => format!(": HTTP {status}"),
        (None, Value::String(error)) => format!(": {}", one_line(error)),
        _ => String::new(),
    };
    let text = format!("{} {} at {}{came}", text_of(&hop["at"]), text_of(&hop["what"]), text_of(&hop["url"]));
    let took = hop["took_ms"].as_u64().unwrap_or_default();
    DoctorStep::passed("hop", text).with_duration(std::time::Duration::from_millis(took))
}

fn sign_in_step(standing: &Value) -> DoctorStep {
    let advice = standing["advice"].as_str().map(one_line);
    match &*text_of(&standing["signed_in"]) {
        "yes" => DoctorStep::passed("sign-in", "signed in").with_advice(advice),
        "again" => DoctorStep::failed("sign-in", "the grant is no longer accepted", advice),
        _ => DoctorStep::failed("sign-in", "not signed in", advice),
    }
}

fn tools_step(server: &Value, slug: &str) -> DoctorStep {
    let count = server["tools"].as_u64().unwrap_or_default();
    if let Some(error) = server["error"].as_str() {
        let advice = format!("fix the error, then sync with `linchpin server sync {slug}`");
        return DoctorStep::failed("tools", one_line(error), Some(advice));
    }
    match server["last_synced"].as_str() {
        Some(when) => DoctorStep::passed("tools", format!("{count}, synced {}", one_line(when))),
        None => DoctorStep::passed("tools", "not synced yet"),
    }
}
