//! `linchpin server sign-in`, `sign-out` and `trace`: OAuth sign-in to a server. The command prints the sign-in URL and
//! waits until the user has signed in.

use std::time::Duration;

use serde_json::json;

use super::credential::Whose;
use crate::api_client::query;
use crate::cli::output::field;
use crate::cli::{Asked, agent, print};
use crate::error::{Failure, Kind};
use crate::terminal::clean;

/// Interval between two requests for the status of the sign-in.
const LOOK: Duration = Duration::from_millis(500);

pub(super) async fn sign_in(asked: &Asked, whose: &Whose, no_wait: bool) -> Result<(), Failure> {
    let api = asked.api()?;
    let agent = agent::find_if(&api, whose.agent.as_deref()).await?;
    let path = format!("{}{}", whose.which.path("/sign-in"), query([("agent", agent)]));
    let mut sign_in = api.post(&path, &json!({})).await?;
    if sign_in["status"] == "waiting" && asked.output.json && !no_wait {
        asked.output.value(&sign_in)?; // the first value has the URL, a second one the result
    } else if sign_in["status"] == "waiting" && !asked.output.json {
        let (how, url) = match (sign_in["link"].as_str(), sign_in["url"].as_str()) {
            (Some(link), _) => ("Open this URL in a browser to sign in; it works once", link),
            (None, url) => {
                ("Open this URL in a browser that is logged in to the hub", url.unwrap_or_default())
            }
        };
        print(&format!("{how}:\n\n  {}\n\n", clean(url)))?;
    }
    let id = sign_in["id"].as_str().unwrap_or_default().to_owned();
    while !no_wait && sign_in["status"] == "waiting" {
        tokio::time::sleep(LOOK).await;
        sign_in = api.get(&format!("/sign-ins/{id}")).await?;
    }
    let server = &whose.which.server;
    match sign_in["status"].as_str() {
        Some("failed") => {
            let error = clean(sign_in["error"].as_str().unwrap_or_default());
            Err(Failure::new(Kind::Other, format!("sign-in to `{server}` failed: {error}")))
        }
        Some("not-needed") => Ok(asked.output.done(&sign_in, &format!("`{server}` requires no sign-in"))?),
        Some("done") => {
            let but = sign_in["sync_error"]
                .as_str()
                .map(|error| format!(", but syncing its tools failed: {}", clean(error)));
            Ok(asked.output.done(&sign_in, &format!("signed in to `{server}`{}", but.unwrap_or_default()))?)
        }
        _ => Ok(asked.output.done(&sign_in, "sign-in pending: open the URL in a browser")?),
    }
}

pub(super) async fn sign_out(asked: &Asked, whose: &Whose) -> Result<(), Failure> {
    let api = asked.api()?;
    let agent = agent::find_if(&api, whose.agent.as_deref()).await?;
    api.delete(&format!("{}{}", whose.which.path("/sign-in"), query([("agent", agent)]))).await?;
    let server = &whose.which.server;
    Ok(asked.output.done(&json!({ "signed_out": server }), &format!("signed out of `{server}`"))?)
}

pub(super) async fn trace(asked: &Asked, whose: &Whose) -> Result<(), Failure> {
    let api = asked.api()?;
    let agent = agent::find_if(&api, whose.agent.as_deref()).await?;
    let hops =
        api.list(&format!("{}{}", whose.which.path("/trace"), query([("agent", agent)])), usize::MAX).await?;
    let fields = [
        field("time", "/at"),
        field("purpose", "/what"),
        field("url", "/url"),
        field("status", "/status"),
        field("ms", "/took_ms"),
        field("error", "/error"),
    ];
    Ok(asked.output.list(&hops, &fields, "no sign-in was started yet")?)
}
