//! `linchpin doctor`: diagnoses the connection to a server step by step, with advice for failed steps.

mod advice;
mod hub;
mod text;
mod trace;
mod traced_auth;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use linchpin::client::{Listing, SkippedEntry};
use linchpin::model::ServerCapabilities;
use linchpin::{Client, ClientBuilder, Revision};
use linchpin_hub_core::hub::usable_tools;
use serde_json::{Value, json};

pub(crate) use self::hub::examine;
pub(crate) use self::trace::{DoctorStep, Trace};
use crate::cli::print;
use crate::error::CliError;
use crate::target::{Target, TargetServer};
use crate::terminal::{OutputStyle, one_line};
pub(crate) use traced_auth::TracedAuthorizer;

/// Newest revision of the session era.
const LATEST_SESSION_REVISION: Revision = Revision::LATEST_SESSION;

pub(crate) async fn run(mut target: Target, json: bool) -> Result<ExitCode, CliError> {
    let trace = Arc::new(Trace::new());
    target.trace = Some(trace.clone());
    record_program(&target.server, &trace);
    let started = Instant::now();
    let name = target_name(&target.server);
    let is_url = matches!(target.server, TargetServer::Url(..));
    let watched = trace.clone();
    let work = async move |client: &Client| {
        record_negotiation(client, &watched, started, is_url);
        record_tools(client, &watched, is_url).await;
        Ok(())
    };
    let undressed = |client: ClientBuilder| client;
    if let Err(failure) = target.with_client(undressed, work).await {
        if matches!(
            failure.kind,
            crate::error::CliErrorKind::Interrupted(_) | crate::error::CliErrorKind::Usage
        ) {
            return Err(failure);
        }
        record_failure("protocol", &failure, &trace, is_url);
    }
    let steps = trace.steps();
    let healthy = steps.iter().all(|step| step.ok);
    print(&if json {
        let steps: Vec<Value> = steps.iter().map(DoctorStep::to_json).collect();
        format!("{}\n", json!({ "server": name, "ok": healthy, "steps": steps }))
    } else {
        text::render(&name, &steps, OutputStyle::stdout())
    })?;
    Ok(ExitCode::from(u8::from(!healthy)))
}

/// Records the failure of a `linchpin doctor` step, or of the sign-in that the step required.
fn record_failure(step: &'static str, failure: &CliError, trace: &Trace, is_url: bool) {
    if failure.is_auth_error() {
        trace.fail_sign_in_step(&failure.to_string());
    } else {
        trace.record_failure(step, &failure.to_string(), advice::for_failure(failure, is_url));
    }
}

/// Records the step before the connection in the diagnosis: whether the program exists.
fn record_program(server: &TargetServer, trace: &Trace) {
    if let TargetServer::Command(command) = server
        && let Some(program) = command.first()
    {
        match find_program(program) {
            Some(path) => trace.add(DoctorStep::passed("program", path.display().to_string())),
            None => trace.add(DoctorStep::failed(
                "program",
                format!("the program `{}` was not found", one_line(&program.to_string_lossy())),
                Some("check the name; a program outside PATH needs its full path".into()),
            )),
        }
    }
}

/// Finds the file of a program: as a path, or in the folders of `PATH`. Does not check whether it is executable.
fn find_program(program: &std::ffi::OsStr) -> Option<std::path::PathBuf> {
    let path = std::path::Path::new(program);
    if path.components().count() > 1 {
        return path.is_file().then(|| path.to_owned());
    }
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(path))
        .find(|found| found.is_file())
}

fn target_name(server: &TargetServer) -> String {
    match server {
        TargetServer::Url(url, _) => {
            linchpin::egress::Target::configured(url).map_or_else(|_| "a URL".into(), |url| url.to_string())
        }
        TargetServer::Command(words) => {
            one_line(&words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "))
        }
    }
}

/// Records the negotiated era, revision, session and capabilities in the diagnosis of `linchpin doctor`.
fn record_negotiation(client: &Client, trace: &Trace, started: Instant, is_url: bool) {
    let revision = client.revision();
    let era = if revision <= LATEST_SESSION_REVISION {
        "sessions (the server supports initialize, not server/discover)"
    } else {
        "stateless (every request is independent)"
    };
    trace.add(DoctorStep::passed("era", era).with_duration(started.elapsed()));
    trace.add(DoctorStep::passed("revision", revision.as_str()));
    if is_url {
        trace.add(DoctorStep::passed("session", trace.describe_session(revision)));
    }
    let server = client.server().map_or_else(
        || "unnamed".to_owned(),
        |server| one_line(&format!("{} {}", server.name, server.version)),
    );
    trace.add(DoctorStep::passed("server", server));
    trace.add(DoctorStep::passed("capabilities", capabilities(client.capabilities())));
}

fn capabilities(server_capabilities: &ServerCapabilities) -> String {
    let named = [
        ("tools", server_capabilities.tools.is_some()),
        ("resources", server_capabilities.resources.is_some()),
        ("prompts", server_capabilities.prompts.is_some()),
        ("completions", server_capabilities.completions.is_some()),
        ("logging", server_capabilities.logging.is_some()),
        ("tasks", server_capabilities.tasks.is_some()),
    ];
    let present =
        named.into_iter().filter(|(_, is_supported)| *is_supported).map(|(name, _)| name.to_owned());
    let extensions = server_capabilities.extensions.iter().flatten().map(|(name, _)| one_line(name));
    let all: Vec<_> = present.chain(extensions).collect();
    if all.is_empty() { "none".into() } else { all.join(", ") }
}

async fn record_tools(client: &Client, trace: &Trace, is_url: bool) {
    if client.capabilities().tools.is_none() {
        return trace.add(DoctorStep::passed("tools", "none announced"));
    }
    let started = Instant::now();
    match client.tools().listing().await.map(usable_tools) {
        Ok(Listing { items: tools, skipped, .. }) => {
            let tool_names: Vec<_> = tools.iter().take(5).map(|tool| one_line(&tool.name)).collect();
            let more = if tools.len() > tool_names.len() { ", …" } else { "" };
            let text = format!("{}: {}{more}", tools.len(), tool_names.join(", "));
            trace.add(
                DoctorStep::passed("tools", if tools.is_empty() { "0".into() } else { text })
                    .with_duration(started.elapsed()),
            );
            for SkippedEntry { name, reason, .. } in &skipped {
                trace.add(DoctorStep::skipped_tool(name, reason));
            }
        }
        Err(error) => record_failure("tools", &CliError::from(error), trace, is_url),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_are_named_with_the_rest() {
        assert_eq!(capabilities(&ServerCapabilities::default()), "none");
        let extensions = [("com.example/own".to_owned(), json!({}))].into_iter().collect();
        let server_capabilities = ServerCapabilities {
            logging: Some(serde_json::Map::new()),
            extensions: Some(extensions),
            ..ServerCapabilities::default()
        };
        assert_eq!(capabilities(&server_capabilities), "logging, com.example/own");
    }
}
