//! Changes of configured servers: edits the configuration file and waits until a running hub has applied it.

use std::sync::Arc;
use std::time::Duration;

use linchpin::egress::Egress;
use linchpin_hub_core::hub::{Hub, HubOptions, LOCAL};
use linchpin_hub_core::platform::SystemPlatform;
use serde_json::{Value, json};

use super::ServerArg;
use crate::api_client::{ApiClient, percent_encode};
use crate::cli::CommandContext;
use crate::config;
use crate::error::{CliError, CliErrorKind};
use crate::serve::configured_servers;

/// Time limit for the hub to apply the configuration file.
const APPLY_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Where the settings of a server of the hub are stored.
#[derive(PartialEq, Eq)]
pub(super) enum ServerSource {
    /// The server is in the store of the hub.
    Hub,
    /// The server is in the configuration file.
    File,
    /// The server is built in: the demo server. The configuration file only enables or disables it.
    Demo,
}

impl ServerArg {
    /// Finds out where the server is stored: from the hub if one runs, else from the configuration file.
    pub(super) async fn source(&self, context: &CommandContext) -> Result<ServerSource, CliError> {
        if context.hub.is_some() {
            return Ok(ServerSource::Hub);
        }
        let paths = context.paths()?;
        if paths.running().is_some()
            && let Ok(server) = context.api()?.get(&self.path("")).await
            && server["is_configured"] == false
        {
            return Ok(ServerSource::Hub);
        }
        let config = config::WatchedConfig::open(paths.config)?.config();
        if config.servers.iter().any(|server| server.slug.as_str() == self.server) {
            return Ok(ServerSource::File);
        }
        Ok(if self.server == configured_servers::DEMO { ServerSource::Demo } else { ServerSource::Hub })
    }
}

pub(super) async fn set_enabled(
    context: &CommandContext,
    server_arg: &ServerArg,
    is_enabled: bool,
) -> Result<(), CliError> {
    let source = server_arg.source(context).await?;
    let response = if source == ServerSource::Hub {
        context.api()?.patch(&server_arg.path(""), &json!({ "enabled": is_enabled })).await?
    } else {
        let paths = context.paths()?;
        match source {
            ServerSource::Demo => config::set_demo_enabled(&paths.config, is_enabled)?,
            _ => config::set_enabled(&paths.config, &server_arg.server, is_enabled)?,
        }
        if paths.running().is_some() {
            let is_applied = |server: &Value| server["enabled"] == is_enabled;
            wait_until_applied(context, &context.api()?, &server_arg.server, is_applied).await?
        } else {
            json!({ "slug": server_arg.server, "enabled": is_enabled })
        }
    };
    let done = if is_enabled { "enabled" } else { "disabled" };
    Ok(context.output.print_result(&response, &format!("server `{}` {done}", server_arg.server))?)
}

pub(super) async fn remove(context: &CommandContext, server_arg: &ServerArg) -> Result<(), CliError> {
    match server_arg.source(context).await? {
        ServerSource::Hub => drop(context.api()?.delete(&server_arg.path("")).await?),
        ServerSource::File => remove_configured(context, server_arg).await?,
        ServerSource::Demo => {
            let text = "the demo server is built in: run `linchpin server disable demo` instead";
            return Err(CliError::new(CliErrorKind::Other, text));
        }
    }
    Ok(context.output.print_result(
        &json!({ "removed": server_arg.server }),
        &format!("server `{}` removed", server_arg.server),
    )?)
}

/// Removes a server from the configuration file, and from the store with its secrets.
async fn remove_configured(context: &CommandContext, server_arg: &ServerArg) -> Result<(), CliError> {
    let paths = context.paths()?;
    if paths.running().is_some() {
        config::remove(&paths.config, &server_arg.server)?;
        let is_undeclared = |server: &Value| {
            server.is_null()
                || server["is_undeclared"] == true
                || server_arg.server == configured_servers::DEMO
        };
        let api = context.api()?;
        let server = wait_until_applied(context, &api, &server_arg.server, is_undeclared).await?;
        if server["is_undeclared"] == true {
            api.delete(&server_arg.path("")).await?;
        }
        return Ok(());
    }
    if !paths.has_store() {
        return Ok(config::remove(&paths.config, &server_arg.server)?);
    }
    let _lock = paths.lock()?; // prevents a hub from starting
    let (store, keys) = (paths.open_existing_store().await?, paths.read_keys()?);
    config::remove(&paths.config, &server_arg.server)?;
    let hub = Hub::new(Arc::new(SystemPlatform), store, keys, Egress::default(), HubOptions::default());
    Ok(hub.registry().delete_configured(LOCAL, &server_arg.server).await?)
}

/// Makes the hub reload the configuration file, and waits until the server satisfies `is_applied`.
pub(crate) async fn wait_until_applied(
    context: &CommandContext,
    api: &ApiClient,
    slug: &str,
    is_applied: impl Fn(&Value) -> bool,
) -> Result<Value, CliError> {
    context.paths()?.running().map_or(Ok(()), |running| running.signal_reload())?;
    let wait = async {
        loop {
            match api.get(&format!("/servers/{}", percent_encode(slug))).await {
                // The hub has not read the file yet.
                Err(failure) if failure.has_code("server_not_in_file") => {}
                Err(failure) if failure.status() != Some(404) => return Err(failure),
                response => {
                    let server = response.unwrap_or_default();
                    if is_applied(&server) {
                        return Ok(server);
                    }
                }
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    let timeout_error = || {
        let text = "the configuration file was written, but the hub has not applied it yet: check its log";
        CliError::new(CliErrorKind::Timeout, text)
    };
    tokio::time::timeout(APPLY_TIMEOUT, wait).await.map_err(|_| timeout_error())?
}
