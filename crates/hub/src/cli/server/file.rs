//! Changes of configured servers: edits the configuration file and waits until a running hub has applied it.

use std::sync::Arc;
use std::time::Duration;

use linchpin::egress::Egress;
use linchpin_hub_core::hub::{Hub, LOCAL, Options};
use linchpin_hub_core::platform::System;
use serde_json::{Value, json};

use super::Which;
use crate::api_client::{Api, encoded};
use crate::cli::Asked;
use crate::config;
use crate::error::{Failure, Kind};
use crate::serve::configured_servers;

/// Time limit for the hub to apply the configuration file.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);

/// Where the settings of a server are stored.
#[derive(PartialEq, Eq)]
pub(super) enum Home {
    /// In the store of the hub.
    Hub,
    /// In the configuration file.
    File,
    /// Built in: the demo server. The configuration file only enables or disables it.
    Demo,
}

impl Which {
    /// Finds out where the server is stored: from the hub if one runs, else from the configuration file.
    pub(super) async fn home(&self, asked: &Asked) -> Result<Home, Failure> {
        if asked.hub.is_some() {
            return Ok(Home::Hub);
        }
        let place = asked.place()?;
        if place.running().is_some()
            && let Ok(server) = asked.api()?.get(&self.path("")).await
            && server["is_from_file"] == false
        {
            return Ok(Home::Hub);
        }
        let config = config::Watched::open(place.config)?.config();
        if config.servers.iter().any(|server| server.slug.as_str() == self.server) {
            return Ok(Home::File);
        }
        Ok(if self.server == configured_servers::DEMO { Home::Demo } else { Home::Hub })
    }
}

pub(super) async fn switch(asked: &Asked, which: &Which, is_enabled: bool) -> Result<(), Failure> {
    let home = which.home(asked).await?;
    let answer = if home == Home::Hub {
        asked.api()?.patch(&which.path(""), &json!({ "enabled": is_enabled })).await?
    } else {
        let place = asked.place()?;
        match home {
            Home::Demo => config::switch_demo(&place.config, is_enabled)?,
            _ => config::switch(&place.config, &which.server, is_enabled)?,
        }
        if place.running().is_some() {
            let is_so = |server: &Value| server["enabled"] == is_enabled;
            taken_over(asked, &asked.api()?, &which.server, is_so).await?
        } else {
            json!({ "slug": which.server, "enabled": is_enabled })
        }
    };
    let done = if is_enabled { "enabled" } else { "disabled" };
    Ok(asked.output.done(&answer, &format!("server `{}` {done}", which.server))?)
}

pub(super) async fn remove(asked: &Asked, which: &Which) -> Result<(), Failure> {
    match which.home(asked).await? {
        Home::Hub => drop(asked.api()?.delete(&which.path("")).await?),
        Home::File => remove_configured(asked, which).await?,
        Home::Demo => {
            let text = "the demo server is built in: run `linchpin server disable demo` instead";
            return Err(Failure::new(Kind::Other, text));
        }
    }
    Ok(asked
        .output
        .done(&json!({ "removed": which.server }), &format!("server `{}` removed", which.server))?)
}

/// Removes a server from the configuration file, and from the store with its secrets.
async fn remove_configured(asked: &Asked, which: &Which) -> Result<(), Failure> {
    let place = asked.place()?;
    if place.running().is_some() {
        config::remove(&place.config, &which.server)?;
        let has_left = |server: &Value| {
            server.is_null() || server["has_left_file"] == true || which.server == configured_servers::DEMO
        };
        let api = asked.api()?;
        let server = taken_over(asked, &api, &which.server, has_left).await?;
        if server["has_left_file"] == true {
            api.delete(&which.path("")).await?;
        }
        return Ok(());
    }
    if !place.has_store() {
        return Ok(config::remove(&place.config, &which.server)?);
    }
    let _lock = place.lock()?; // prevents a hub from starting
    let (store, keys) = (place.found_store().await?, place.found_keys()?);
    config::remove(&place.config, &which.server)?;
    let hub = Hub::new(Arc::new(System), store, keys, Egress::default(), Options::default());
    Ok(hub.delete_configured(LOCAL, &which.server).await?)
}

/// Makes the hub reload the configuration file, and waits until the server satisfies `is_so`.
pub(crate) async fn taken_over(
    asked: &Asked,
    api: &Api,
    slug: &str,
    is_so: impl Fn(&Value) -> bool,
) -> Result<Value, Failure> {
    asked.place()?.running().map_or(Ok(()), |running| running.hurry())?;
    let wait = async {
        loop {
            match api.get(&format!("/servers/{}", encoded(slug))).await {
                // The hub has not read the file yet.
                Err(failure) if failure.has_code("server_not_in_file") => {}
                Err(failure) if failure.status() != Some(404) => return Err(failure),
                answer => {
                    let server = answer.unwrap_or_default();
                    if is_so(&server) {
                        return Ok(server);
                    }
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    let late = || {
        let text = "the configuration file was written, but the hub has not applied it yet: check its log";
        Failure::new(Kind::Timeout, text)
    };
    tokio::time::timeout(PATIENCE, wait).await.map_err(|_| late())?
}
