//! Opens what the hub is made of: its keys, its store, and the way out.

use std::sync::Arc;

use linchpin::client::Lineage;
use linchpin::egress::{Egress, Policy};
use linchpin_hub_core::hub::{Hub, Options};
use linchpin_hub_core::vault::{KeyFile, KeyFileError};
use linchpin_hub_core::world::System;

use crate::config::{Config, Durability, Place};
use crate::failure::{Failure, Kind};

/// The hub that keeps everything at this place, with what was under way when it ended last brought to an end.
/// Browsers find it at `url`.
pub(super) async fn hub(
    place: &Place,
    durability: Durability,
    config: &Config,
    url: &str,
    lineage: Lineage,
) -> Result<Arc<Hub>, Failure> {
    let store = place.store(durability).await?;
    let keys = keys(place, !store.tenants().await?.is_empty())?;
    let egress = Egress::builder().policy(policy(config)).build();
    let egress = egress.map_err(|error| Failure::new(Kind::Other, error.to_string()))?;
    let callback = Some(format!("{url}/oauth/callback"));
    let (checkpoints, segments) = (Some(place.checkpoints()), Some(place.segments(config)));
    let (retention, lineage) = (config.retention(), Some(lineage));
    let options = Options { checkpoints, segments, retention, callback, lineage, ..Options::default() };
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
    Ok(hub)
}

/// Public addresses, and the networks that the operator allows.
fn policy(config: &Config) -> Policy {
    config.networks.iter().fold(Policy::public_only(), |policy, network| policy.allow(*network))
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
            KeyFileError::Exposed { .. } => "",
            _ => ", or say with --key-file where another one is",
        };
        Failure::new(Kind::Other, format!("{error}{advice}"))
    })?;
    if is_new {
        tracing::info!(path = %path.display(), "the hub has new keys: keep a copy of them elsewhere");
    }
    Ok(keys)
}
