//! `linchpin doctor`: diagnoses the connection to a server step by step, with advice for failed steps.

mod advice;
mod hub;
mod text;
mod trace;
mod traced_auth;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use linchpin::client::{LeftOut, Listing};
use linchpin::model::ServerCapabilities;
use linchpin::{Client, ClientBuilder, Revision};
use linchpin_hub_core::hub::usable_tools;
use serde_json::{Value, json};

pub(crate) use self::hub::examine;
pub(crate) use self::trace::{Step, Trace};
use crate::cli::print;
use crate::error::Failure;
use crate::target::{Place, Target};
use crate::terminal::{Look, one_line};
pub(crate) use traced_auth::Watched;

/// Newest revision of the session era.
const LAST_WITH_SESSIONS: Revision = Revision::LATEST_SESSION;

pub(crate) async fn run(mut target: Target, json: bool) -> Result<ExitCode, Failure> {
    let trace = Arc::new(Trace::new());
    target.trace = Some(trace.clone());
    begin(&target.place, &trace);
    let begun = Instant::now();
    let place = name(&target.place);
    let is_url = matches!(target.place, Place::Url(..));
    let watched = trace.clone();
    let work = async move |client: &Client| {
        agreed(client, &watched, begun, is_url);
        lists(client, &watched, is_url).await;
        Ok(())
    };
    let undressed = |client: ClientBuilder| client;
    if let Err(failure) = target.with(undressed, work).await {
        if matches!(failure.kind, crate::error::Kind::Interrupted(_) | crate::error::Kind::Usage) {
            return Err(failure);
        }
        failed("protocol", &failure, &trace, is_url);
    }
    let steps = trace.steps();
    let healthy = steps.iter().all(|step| step.ok);
    print(&if json {
        let steps: Vec<Value> = steps.iter().map(Step::to_json).collect();
        format!("{}\n", json!({ "server": place, "ok": healthy, "steps": steps }))
    } else {
        text::show(&place, &steps, Look::stdout())
    })?;
    Ok(ExitCode::from(u8::from(!healthy)))
}

/// Records a failure of this step, or of the sign-in that the step required.
fn failed(step: &'static str, failure: &Failure, trace: &Trace, is_url: bool) {
    if failure.is_about_signing_in() {
        trace.not_signed_in(&failure.to_string());
    } else {
        trace.failed(step, &failure.to_string(), advice::for_failure(failure, is_url));
    }
}

/// Records the steps before the connection: whether the program exists.
fn begin(place: &Place, trace: &Trace) {
    if let Place::Command(command) = place
        && let Some(program) = command.first()
    {
        match find(program) {
            Some(path) => trace.add(Step::good("program", path.display().to_string())),
            None => trace.add(Step::bad(
                "program",
                format!("`{}` was not found", one_line(&program.to_string_lossy())),
                Some("check the name; a program outside PATH needs its full path".into()),
            )),
        }
    }
}

/// Finds a program the way the system does.
fn find(program: &std::ffi::OsStr) -> Option<std::path::PathBuf> {
    let path = std::path::Path::new(program);
    if path.components().count() > 1 {
        return path.is_file().then(|| path.to_owned());
    }
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(path))
        .find(|found| found.is_file())
}

fn name(place: &Place) -> String {
    match place {
        Place::Url(url, _) => {
            linchpin::egress::Target::typed(url).map_or_else(|_| "a URL".into(), |url| url.to_string())
        }
        Place::Command(words) => {
            one_line(&words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "))
        }
    }
}

/// Records the negotiated era, revision, session and capabilities.
fn agreed(client: &Client, trace: &Trace, begun: Instant, is_url: bool) {
    let revision = client.revision();
    let era = if revision <= LAST_WITH_SESSIONS {
        "sessions (the server supports initialize, not server/discover)"
    } else {
        "stateless (every request is independent)"
    };
    trace.add(Step::good("era", era).after(begun.elapsed()));
    trace.add(Step::good("revision", revision.as_str()));
    if is_url {
        trace.add(Step::good("session", trace.transport(revision)));
    }
    let server = client.server().map_or_else(
        || "unnamed".to_owned(),
        |server| one_line(&format!("{} {}", server.name, server.version)),
    );
    trace.add(Step::good("server", server));
    trace.add(Step::good("capabilities", capabilities(client.capabilities())));
}

fn capabilities(can: &ServerCapabilities) -> String {
    let named = [
        ("tools", can.tools.is_some()),
        ("resources", can.resources.is_some()),
        ("prompts", can.prompts.is_some()),
        ("completions", can.completions.is_some()),
        ("logging", can.logging.is_some()),
        ("tasks", can.tasks.is_some()),
    ];
    let own = named.into_iter().filter(|(_, there)| *there).map(|(name, _)| name.to_owned());
    let extensions = can.extensions.iter().flatten().map(|(name, _)| one_line(name));
    let all: Vec<_> = own.chain(extensions).collect();
    if all.is_empty() { "none".into() } else { all.join(", ") }
}

async fn lists(client: &Client, trace: &Trace, is_url: bool) {
    if client.capabilities().tools.is_none() {
        return trace.add(Step::good("tools", "none announced"));
    }
    let begun = Instant::now();
    match client.tools().listing().await.map(usable_tools) {
        Ok(Listing { items: tools, left_out, .. }) => {
            let shown: Vec<_> = tools.iter().take(5).map(|tool| one_line(&tool.name)).collect();
            let more = if tools.len() > shown.len() { ", …" } else { "" };
            let text = format!("{}: {}{more}", tools.len(), shown.join(", "));
            trace.add(
                Step::good("tools", if tools.is_empty() { "0".into() } else { text }).after(begun.elapsed()),
            );
            for LeftOut { name, reason, .. } in &left_out {
                trace.add(Step::left_out(name, reason));
            }
        }
        Err(error) => failed("tools", &Failure::from(error), trace, is_url),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_are_named_with_the_rest() {
        assert_eq!(capabilities(&ServerCapabilities::default()), "none");
        let extensions = [("com.example/own".to_owned(), json!({}))].into_iter().collect();
        let can = ServerCapabilities {
            logging: Some(serde_json::Map::new()),
            extensions: Some(extensions),
            ..ServerCapabilities::default()
        };
        assert_eq!(capabilities(&can), "logging, com.example/own");
    }
}
