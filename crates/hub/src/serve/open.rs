//! Opens what the hub is made of: its keys, its store, and the way out.

use std::sync::Arc;

use linchpin_hub_core::connection::Processes;
use linchpin_hub_core::hub::{Hub, Options};
use linchpin_hub_core::vault::{KeyFile, KeyFileError};
use linchpin_hub_core::world::System;

use crate::config::{Config, Durability, Place, Problem, Watched, WayOut, variable};
use crate::failure::{Failure, Kind};

/// The hub that keeps everything at this place, with what was under way when it ended last brought to an end.
/// Browsers find it at `url`.
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
            Failure::new(Kind::Other, format!("`{path}`: {error}, and say with --key-file where it is"))
        }
        _ => error.into(),
    })?;
    let ended = hub.recover().await?;
    if ended > 0 {
        tracing::warn!(
            calls = ended,
            "calls were under way when the hub ended last: nobody knows what became of them"
        );
    }
    if let Err(error) = hub.sign_audit().await {
        tracing::warn!(%error, "failed to sign the audit; retrying");
    }
    Ok(hub)
}

fn text_of(name: &str) -> Option<String> {
    variable(name)?.into_string().ok()
}

/// Has the hub go the way out of the operator's file, if it has changed. One that cannot be gone changes nothing.
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
            tracing::info!("what the hub may reach is now as the operator's file says");
        }
        Err(error) => {
            tracing::error!(%error, "the hub goes the way out that the operator's file said before");
            watched.no_way(Some(error.message().to_owned()));
        }
    }
}

/// The keys; new ones for a new hub alone.
fn keys(place: &Place, is_used: bool) -> Result<KeyFile, Failure> {
    let path = &place.keys;
    if is_used && !path.exists() {
        let text = format!(
            "`{}` is gone, with the keys that everything in {} is sealed with: put it back, or say with --key-file where it is",
            path.display(),
            place.kept_in()
        );
        return Err(Failure::new(Kind::Other, text));
    }
    let (keys, is_new) = KeyFile::open(path, &System).map_err(|error| {
        let advice = match error {
            KeyFileError::Exposed { .. } | KeyFileError::ExposedAbove { .. } => "",
            _ => ", or say with --key-file where another one is",
        };
        Failure::new(Kind::Other, format!("{error}{advice}"))
    })?;
    if is_new {
        tracing::info!(path = %path.display(), "the hub has new keys: keep a copy of them elsewhere");
    }
    Ok(keys)
}
