//! `linchpin server sign-in`, `sign-out` and `trace`: OAuth sign-in to a server. The command prints the sign-in URL and
//! waits until the user has signed in.

use std::time::Duration;

use serde_json::json;

use super::credential::CredentialTarget;
use crate::api_client::query_string;
use crate::cli::output::column;
use crate::cli::{CommandContext, agent, print};
use crate::error::{CliError, CliErrorKind};
use crate::terminal::sanitize;

/// Interval between two requests for the status of the sign-in.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

pub(super) async fn sign_in(
    context: &CommandContext,
    target: &CredentialTarget,
    no_wait: bool,
) -> Result<(), CliError> {
    let api = context.api()?;
    let agent = agent::find_optional(&api, target.agent.as_deref()).await?;
    let path = format!("{}{}", target.server.path("/sign-in"), query_string([("agent", agent)]));
    let mut sign_in = api.post(&path, &json!({})).await?;
    if sign_in["status"] == "waiting" && context.output.json && !no_wait {
        context.output.print_value(&sign_in)?; // the first value has the URL, a second one the result
    } else if sign_in["status"] == "waiting" && !context.output.json {
        let (instruction, url) = match (sign_in["link"].as_str(), sign_in["url"].as_str()) {
            (Some(link), _) => ("Open this URL in a browser to sign in; it works once", link),
            (None, url) => {
                ("Open this URL in a browser that is logged in to the hub", url.unwrap_or_default())
            }
        };
        print(&format!("{instruction}:\n\n  {}\n\n", sanitize(url)))?;
    }
    let id = sign_in["id"].as_str().unwrap_or_default().to_owned();
    while !no_wait && sign_in["status"] == "waiting" {
        tokio::time::sleep(POLL_INTERVAL).await;
        sign_in = api.get(&format!("/sign-ins/{id}")).await?;
    }
    let server = &target.server.server;
    match sign_in["status"].as_str() {
        Some("failed") => {
            let error = sanitize(sign_in["error"].as_str().unwrap_or_default());
            Err(CliError::new(CliErrorKind::Other, format!("sign-in to `{server}` failed: {error}")))
        }
        Some("not-needed") => Ok(context
            .output
            .print_result(&sign_in, &format!("the server `{server}` requires no sign-in"))?),
        Some("done") => {
            let sync_error = sign_in["sync_error"]
                .as_str()
                .map(|error| format!(", but syncing its tools failed: {}", sanitize(error)));
            Ok(context.output.print_result(
                &sign_in,
                &format!("signed in to `{server}`{}", sync_error.unwrap_or_default()),
            )?)
        }
        _ => Ok(context
            .output
            .print_result(&sign_in, "sign-in pending: open the URL in a browser to complete it")?),
    }
}

pub(super) async fn sign_out(context: &CommandContext, target: &CredentialTarget) -> Result<(), CliError> {
    let api = context.api()?;
    let agent = agent::find_optional(&api, target.agent.as_deref()).await?;
    api.delete(&format!("{}{}", target.server.path("/sign-in"), query_string([("agent", agent)]))).await?;
    let server = &target.server.server;
    Ok(context.output.print_result(&json!({ "signed_out": server }), &format!("signed out of `{server}`"))?)
}

pub(super) async fn trace(context: &CommandContext, target: &CredentialTarget) -> Result<(), CliError> {
    let api = context.api()?;
    let agent = agent::find_optional(&api, target.agent.as_deref()).await?;
    let entries = api
        .list(&format!("{}{}", target.server.path("/trace"), query_string([("agent", agent)])), usize::MAX)
        .await?;
    let fields = [
        column("time", "/at"),
        column("purpose", "/purpose"),
        column("url", "/url"),
        column("status", "/status"),
        column("ms", "/duration_ms"),
        column("error", "/error"),
    ];
    Ok(context.output.print_list(&entries, &fields, "no sign-in was started yet")?)
}
