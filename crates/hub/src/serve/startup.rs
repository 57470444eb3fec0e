//! Startup of the hub: opens keys, store and egress.

use std::sync::Arc;

use linchpin_hub_core::connection::Processes;
use linchpin_hub_core::hub::{Hub, Options};
use linchpin_hub_core::platform::System;
use linchpin_hub_core::vault::{KeyFile, KeyFileError};

use crate::config::{Config, Durability, Place, Problem, Watched, WayOut, variable};
use crate::error::{Failure, Kind};

/// Opens the hub at these paths and records an outcome for calls that were running when it stopped. `url` is the base
/// URL for browsers.
pub(super) async fn hub(
    place: &Place,
    durability: Durability,
    config: &Config,
    url: &str,
    processes: Processes,
) -> Result<Arc<Hub>, Failure> {
    let store = place.store(durability).await?;
    let keys = keys(place, !store.tenants().await?.is_empty())?;
    let egress = config.egress.open(&text_of).map_err(|error| {
        Problem::new(&place.config, error.message()).field(error.field().unwrap_or("egress"))
    })?;
    let callback = Some(format!("{url}/oauth/callback"));
    let (checkpoints, segments) = (Some(place.checkpoints()), Some(place.segments(config)));
    let (heads, retention) = (Some(place.heads(config)), config.retention());
    let options =
        Options { checkpoints, heads, segments, retention, callback, processes, ..Options::default() };
    let hub = Arc::new(Hub::new(Arc::new(System), store, keys, egress, options));
    hub.ensure_local().await?;
    hub.unlock().await.map_err(|error| match error.code() {
        "wrong_key_file" => {
            let path = place.keys.display();
            Failure::new(Kind::Other, format!("`{path}`: {error}, and set its path with --key-file"))
        }
        _ => error.into(),
    })?;
    let ended = hub.recover().await?;
    if ended > 0 {
        tracing::warn!(calls = ended, "calls were running when the hub stopped; their outcome is unknown");
    }
    if let Err(error) = hub.sign_audit().await {
        tracing::warn!(%error, "failed to sign the audit; retrying");
    }
    Ok(hub)
}

fn text_of(name: &str) -> Option<String> {
    variable(name)?.into_string().ok()
}

/// Applies the egress settings of the configuration file, if they have changed. Invalid settings change nothing.
pub(super) fn take_way(hub: &Hub, watched: &Watched, before: &mut WayOut) {
    let now = &watched.config().egress;
    if now == before {
        return watched.no_way(None);
    }
    match now.open(&text_of) {
        Ok(egress) => {
            hub.change_egress(&egress);
            *before = now.clone();
            watched.no_way(None);
            tracing::info!("egress configuration applied");
        }
        Err(error) => {
            tracing::error!(%error, "invalid egress configuration; using the previous one");
            watched.no_way(Some(error.message().to_owned()));
        }
    }
}

/// Opens the key file. Creates keys only for a new hub.
fn keys(place: &Place, is_used: bool) -> Result<KeyFile, Failure> {
    let path = &place.keys;
    if is_used && !path.exists() {
        let text = format!(
            "the key file `{}` is missing, and the data in {} is encrypted with its keys: restore the file, or set its \
             path with --key-file",
            path.display(),
            place.kept_in()
        );
        return Err(Failure::new(Kind::Other, text));
    }
    let (keys, is_new) = KeyFile::open(path, &System).map_err(|error| {
        let advice = match error {
            KeyFileError::Exposed { .. } | KeyFileError::ExposedAbove { .. } => "",
            _ => ", or set another path with --key-file",
        };
        Failure::new(Kind::Other, format!("{error}{advice}"))
    })?;
    if is_new {
        tracing::info!(path = %path.display(), "created new keys; store a copy of the key file in a safe location");
    }
    Ok(keys)
}
