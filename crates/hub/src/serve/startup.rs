//! Startup of the hub: opens keys, store and egress.

use std::sync::Arc;

use linchpin_hub_core::connection::Processes;
use linchpin_hub_core::hub::{Hub, HubOptions};
use linchpin_hub_core::platform::SystemPlatform;
use linchpin_hub_core::vault::{KeyFile, KeyFileError};

use crate::config::{Config, ConfigError, Durability, EgressConfig, HubPaths, WatchedConfig, env_variable};
use crate::error::{CliError, CliErrorKind};

/// Opens the hub at these paths and records an outcome for calls that were running when it stopped. `url` is the base
/// URL for browsers.
pub(super) async fn open_hub(
    paths: &HubPaths,
    durability: Durability,
    config: &Config,
    url: &str,
    processes: Processes,
) -> Result<Arc<Hub>, CliError> {
    let store = paths.store(durability).await?;
    let keys = open_keys(paths, !store.tenants().await?.is_empty())?;
    let egress = config.egress.build(&env_text).map_err(|error| {
        ConfigError::new(&paths.config, error.message()).with_field(error.field().unwrap_or("egress"))
    })?;
    let callback = Some(format!("{url}/oauth/callback"));
    let (checkpoints, segments) = (Some(paths.checkpoint_file()), Some(paths.segment_folder(config)));
    let (heads, retention) = (Some(paths.head_file(config)), config.retention());
    let limits = config.hub_limits();
    let options = HubOptions {
        checkpoints,
        heads,
        segments,
        retention,
        limits,
        callback,
        processes,
        span_context: crate::otel::is_enabled().then_some(crate::otel::context_of),
        ..HubOptions::default()
    };
    let hub = Arc::new(Hub::new(Arc::new(SystemPlatform), store, keys, egress, options));
    hub.unlock().await.map_err(|error| match error.code() {
        "wrong_key_file" => {
            let path = paths.keys.display();
            CliError::new(
                CliErrorKind::Other,
                format!(
                    "the key file `{path}` does not fit the data: {error}, and set its path with --key-file"
                ),
            )
        }
        _ => error.into(),
    })?;
    hub.identity().ensure_local_user().await?;
    let recovered = hub.calls().recover().await?;
    if recovered > 0 {
        tracing::warn!(
            calls = recovered,
            "calls that were running when a hub stopped are recorded with the status `unknown`"
        );
    }
    if let Err(error) = hub.audit().sign().await {
        tracing::warn!(%error, "failed to sign the audit; retrying");
    }
    Ok(hub)
}

fn env_text(name: &str) -> Option<String> {
    env_variable(name)?.into_string().ok()
}

/// Applies the egress settings of the configuration file, if they have changed. Invalid settings change nothing.
pub(super) fn apply_egress(hub: &Hub, watched: &WatchedConfig, before: &mut EgressConfig) {
    let now = &watched.config().egress;
    if now == before {
        return watched.set_egress_error(None);
    }
    match now.build(&env_text) {
        Ok(egress) => {
            hub.change_egress(&egress);
            *before = now.clone();
            watched.set_egress_error(None);
            tracing::info!("changed egress configuration applied");
        }
        Err(error) => {
            tracing::error!(%error, "invalid egress configuration; using the previous one");
            watched.set_egress_error(Some(error.message().to_owned()));
        }
    }
}

/// Opens the key file of the hub. Creates keys only for a new hub.
fn open_keys(paths: &HubPaths, is_used: bool) -> Result<KeyFile, CliError> {
    let path = &paths.keys;
    if is_used && !path.exists() {
        let text = format!(
            "the key file `{}` is missing, and the data in {} is encrypted with its keys: restore the file, or set its \
             path with --key-file",
            path.display(),
            paths.describe_store()
        );
        return Err(CliError::new(CliErrorKind::Other, text));
    }
    let (keys, is_new) = KeyFile::open(path, &SystemPlatform).map_err(|error| {
        let advice = match error {
            KeyFileError::InsecurePermissions { .. } | KeyFileError::InsecureParent { .. } => "",
            _ => ", or set another path with --key-file",
        };
        CliError::new(CliErrorKind::Other, format!("{error}{advice}"))
    })?;
    if is_new {
        tracing::info!(path = %path.display(), "created new keys; store a copy of the key file in a safe location");
    }
    Ok(keys)
}
