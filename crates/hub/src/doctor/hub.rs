//! Diagnosis of a server of the running hub: connection, grant status, tools, and advice.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::text;
use super::trace::Step;
use crate::api_client::query;
use crate::cli::{Asked, agent, print};
use crate::error::Failure;
use crate::terminal::{Look, one_line};

pub(crate) async fn examine(asked: &Asked, name: &str, whose: Option<&str>) -> Result<ExitCode, Failure> {
    let api = asked.api()?;
    let server = api.get(&format!("/servers/{}", crate::api_client::encoded(name))).await?;
    let slug = said(&server["slug"]);
    let mut steps = vec![known(&server), connection(&server, &slug)];
    let mut hops = json!([]);
    if server["authentication"]["type"] == "oauth" {
        let agent = agent::find_if(&api, whose).await?;
        if agent.is_none() && server["credentials"] == "per-agent" {
            let advice = "pass --agent NAME to see the grant of that agent".to_owned();
            steps.push(Step::good("sign-in", "each agent has its own grant").advised(Some(advice)));
        } else {
            let path = format!("/servers/{slug}/sign-in{}", query([("agent", agent)]));
            let standing = api.get(&path).await?;
            steps.extend(standing["hops"].as_array().into_iter().flatten().map(hop));
            steps.push(sign_in(&standing));
            hops = standing["hops"].clone();
        }
    }
    steps.push(tools(&server, &slug));
    let left_out = server["left_out"].as_array().into_iter().flatten();
    steps.extend(left_out.map(|tool| Step::left_out(&said(&tool["name"]), &said(&tool["reason"]))));
    let is_healthy = steps.iter().all(|step| step.ok);
    print(&if asked.output.json {
        let steps: Vec<_> = steps.iter().map(Step::to_json).collect();
        format!("{}\n", json!({ "server": slug, "ok": is_healthy, "steps": steps, "hops": hops }))
    } else {
        text::show(&slug, &steps, Look::stdout())
    })?;
    Ok(ExitCode::from(u8::from(!is_healthy)))
}

fn said(value: &Value) -> String {
    value.as_str().map(one_line).unwrap_or_default()
}

fn known(server: &Value) -> Step {
    let place = if server["url"].is_null() { said(&server["transport"]) } else { said(&server["url"]) };
    let text = format!("{} ({place})", said(&server["name"]));
    if server["enabled"] == false {
        let advice = format!("enable it with `linchpin server enable {}`", said(&server["slug"]));
        return Step::bad("server", format!("{text}: disabled"), Some(advice));
    }
    Step::good("server", text)
}

fn connection(server: &Value, slug: &str) -> Step {
    match &*said(&server["status"]) {
        "error" => {
            let advice = format!("test it with `linchpin server test {slug}`");
            Step::bad("connection", "the last connection attempt failed", Some(advice))
        }
        "disabled" => Step::good("connection", "none: the server is disabled"),
        "disconnected" => Step::good("connection", "none; the next call opens one"),
        status => Step::good("connection", status),
    }
}

/// Shows one request of the OAuth trace. A failed one does not fail the diagnosis: discovery tries several URLs.
fn hop(hop: &Value) -> Step {
    let came = match (hop["status"].as_u64(), &hop["error"]) {
        (Some(status), _) => format!(": HTTP {status}"),
        (None, Value::String(error)) => format!(": {}", one_line(error)),
        _ => String::new(),
    };
    let text = format!("{} {} at {}{came}", said(&hop["at"]), said(&hop["what"]), said(&hop["url"]));
    let took = hop["took_ms"].as_u64().unwrap_or_default();
    Step::good("hop", text).after(std::time::Duration::from_millis(took))
}

fn sign_in(standing: &Value) -> Step {
    let advice = standing["advice"].as_str().map(one_line);
    match &*said(&standing["signed_in"]) {
        "yes" => Step::good("sign-in", "signed in").advised(advice),
        "again" => Step::bad("sign-in", "the grant is no longer accepted", advice),
        _ => Step::bad("sign-in", "not signed in", advice),
    }
}

fn tools(server: &Value, slug: &str) -> Step {
    let count = server["tools"].as_u64().unwrap_or_default();
    if let Some(error) = server["error"].as_str() {
        let advice = format!("fix the error, then sync with `linchpin server sync {slug}`");
        return Step::bad("tools", one_line(error), Some(advice));
    }
    match server["last_synced"].as_str() {
        Some(when) => Step::good("tools", format!("{count}, synced {}", one_line(when))),
        None => Step::good("tools", "not synced yet"),
    }
}
