//! Application of the import plan: stdio servers go to the configuration file, remote servers to the hub, secrets to
//! the vault. A server is disabled until a user has approved it.

use std::path::Path;

use linchpin::auth::Secret;
use serde_json::{Map, Value, json};

use super::plan::{Row, Step};
use super::server::{CREDENTIAL, Wanted};
use crate::api_client::{Api, encoded};
use crate::cli::{Asked, taken_over};
use crate::config;
use crate::error::{Failure, Kind};

/// Fields of a stdio server that an import removes from the configuration file if the imported server lacks them.
const OPTIONAL: [&str; 4] = ["args", "env", "secrets", "directory"];

/// Imports one server. Sets `is_there` once the server is stored, even if a later step fails.
pub(super) async fn act(
    asked: &Asked,
    api: Option<&Api>,
    row: &Row,
    is_there: &mut bool,
) -> Result<(), Failure> {
    let (Some(wanted), Some(slug)) = (&row.wanted, &row.slug) else { return Ok(()) };
    let slug = slug.as_str();
    if wanted.is_program {
        let file = asked.place()?.config;
        write(asked, api, &file, row, wanted, slug, is_there).await?;
        enter(api, slug, wanted, &row.enter).await?;
        if row.is_confirmed {
            config::switch(&file, slug, true)?;
            if let Some(api) = api {
                taken_over(asked, api, slug, |server| server["enabled"] == true).await?;
            }
        }
        return Ok(());
    }
    let Some(api) = api else {
        return Err(Failure::new(Kind::Other, "no hub runs: start one with `linchpin`"));
    };
    let mut fields = wanted.fields.clone();
    if row.step == Step::Added {
        fields.insert("slug".into(), json!(slug));
        fields.insert("enabled".into(), json!(false));
        api.post("/servers", &Value::Object(fields)).await?;
    } else if row.needs_enabling() {
        fields.insert("enabled".into(), json!(false));
        for (name, usual) in [
            ("transport", json!("http")),
            ("headers", json!({})),
            ("authentication", json!({ "type": "none" })),
        ] {
            fields.entry(name).or_insert(usual);
        }
        api.patch(&format!("/servers/{slug}"), &Value::Object(fields)).await?;
    }
    *is_there = true;
    enter(Some(api), slug, wanted, &row.enter).await?;
    if row.is_confirmed {
        api.patch(&format!("/servers/{slug}"), &json!({ "enabled": true })).await?;
    }
    Ok(())
}

/// Writes a stdio server to the configuration file, disabled, and waits until the hub has applied it.
async fn write(
    asked: &Asked,
    api: Option<&Api>,
    file: &Path,
    row: &Row,
    wanted: &Wanted,
    slug: &str,
    is_there: &mut bool,
) -> Result<(), Failure> {
    let mut fields: Map<_, _> = wanted.fields.clone();
    fields.insert("enabled".into(), json!(false));
    if row.step == Step::Added {
        config::add(file, slug, &fields)?;
        *is_there = true;
        if let Some(api) = api {
            taken_over(asked, api, slug, |server| server["has_left_file"] == false).await?;
        }
        return Ok(());
    }
    if !row.needs_enabling() {
        *is_there = true;
        return Ok(());
    }
    for name in OPTIONAL {
        fields.entry(name).or_insert(Value::Null);
    }
    let Some(api) = api else {
        config::update(file, slug, &fields)?;
        *is_there = true;
        return Ok(());
    };
    let before = api.get(&format!("/servers/{}", encoded(slug))).await?;
    let has_changed = config::update(file, slug, &fields)?;
    *is_there = true;
    taken_over(asked, api, slug, |server| !has_changed || server["version"] != before["version"]).await?;
    Ok(())
}

/// Stores secrets in the vault.
async fn enter(api: Option<&Api>, slug: &str, wanted: &Wanted, names: &[String]) -> Result<(), Failure> {
    for name in names {
        let (Some(api), Some(Some(secret))) = (api, wanted.secrets.get(name)) else { continue };
        let path = match name.as_str() {
            CREDENTIAL if !wanted.is_program => format!("/servers/{slug}/{CREDENTIAL}"),
            name => format!("/servers/{slug}/secrets/{}", encoded(name)),
        };
        api.put(&path, &json!({ "secret": Secret::expose(secret) })).await?;
    }
    Ok(())
}
