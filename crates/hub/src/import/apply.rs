//! Application of the import plan: stdio servers go to the configuration file, remote servers to the hub, secrets to
//! the vault. A server is disabled until a user has approved it.

use std::path::Path;

use linchpin::auth::Secret;
use serde_json::{Map, Value, json};

use super::plan::{PlanAction, PlanEntry};
use super::server::{CREDENTIAL, ImportedServer};
use crate::api_client::{ApiClient, percent_encode};
use crate::cli::{CommandContext, wait_until_applied};
use crate::config;
use crate::error::{CliError, CliErrorKind};

/// Fields of a stdio server that an import removes from the configuration file if the imported server lacks them.
const OPTIONAL_FIELDS: [&str; 4] = ["args", "env", "secrets", "directory"];

/// Imports one server. Sets `is_stored` once the server is stored, even if a later step fails.
pub(super) async fn apply_server(
    context: &CommandContext,
    api: Option<&ApiClient>,
    row: &PlanEntry,
    is_stored: &mut bool,
) -> Result<(), CliError> {
    let (Some(imported), Some(slug)) = (&row.imported, &row.slug) else { return Ok(()) };
    let slug = slug.as_str();
    if imported.is_stdio {
        let file = context.paths()?.config;
        write_configured(context, api, &file, row, imported, slug, is_stored).await?;
        store_secrets(api, slug, imported, &row.secrets_to_store).await?;
        if row.is_confirmed {
            config::set_enabled(&file, slug, true)?;
            if let Some(api) = api {
                wait_until_applied(context, api, slug, |server| server["enabled"] == true).await?;
            }
        }
        return Ok(());
    }
    let Some(api) = api else {
        return Err(CliError::new(CliErrorKind::Other, "no hub runs: start one with `linchpin`"));
    };
    let mut fields = imported.fields.clone();
    if row.action == PlanAction::Add {
        fields.insert("slug".into(), json!(slug));
        fields.insert("enabled".into(), json!(false));
        api.post("/servers", &Value::Object(fields)).await?;
    } else if row.needs_approval() {
        fields.insert("enabled".into(), json!(false));
        for (name, default) in [
            ("transport", json!("http")),
            ("headers", json!({})),
            ("authentication", json!({ "type": "none" })),
        ] {
            fields.entry(name).or_insert(default);
        }
        api.patch(&format!("/servers/{slug}"), &Value::Object(fields)).await?;
    }
    *is_stored = true;
    store_secrets(Some(api), slug, imported, &row.secrets_to_store).await?;
    if row.is_confirmed {
        api.patch(&format!("/servers/{slug}"), &json!({ "enabled": true })).await?;
    }
    Ok(())
}

/// Writes a stdio server to the configuration file, disabled, and waits until the hub has applied it.
async fn write_configured(
    context: &CommandContext,
    api: Option<&ApiClient>,
    file: &Path,
    row: &PlanEntry,
    imported: &ImportedServer,
    slug: &str,
    is_stored: &mut bool,
) -> Result<(), CliError> {
    let mut fields: Map<_, _> = imported.fields.clone();
    fields.insert("enabled".into(), json!(false));
    if row.action == PlanAction::Add {
        config::add(file, slug, &fields)?;
        *is_stored = true;
        if let Some(api) = api {
            wait_until_applied(context, api, slug, |server| server["is_undeclared"] == false).await?;
        }
        return Ok(());
    }
    if !row.needs_approval() {
        *is_stored = true;
        return Ok(());
    }
    for name in OPTIONAL_FIELDS {
        fields.entry(name).or_insert(Value::Null);
    }
    let Some(api) = api else {
        config::update(file, slug, &fields)?;
        *is_stored = true;
        return Ok(());
    };
    let before = api.get(&format!("/servers/{}", percent_encode(slug))).await?;
    let has_changed = config::update(file, slug, &fields)?;
    *is_stored = true;
    wait_until_applied(context, api, slug, |server| !has_changed || server["version"] != before["version"])
        .await?;
    Ok(())
}

/// Stores the secrets of an imported server in the vault.
async fn store_secrets(
    api: Option<&ApiClient>,
    slug: &str,
    imported: &ImportedServer,
    names: &[String],
) -> Result<(), CliError> {
    for name in names {
        let (Some(api), Some(Some(secret))) = (api, imported.secrets.get(name)) else { continue };
        let path = match name.as_str() {
            CREDENTIAL if !imported.is_stdio => format!("/servers/{slug}/{CREDENTIAL}"),
            name => format!("/servers/{slug}/secrets/{}", percent_encode(name)),
        };
        api.put(&path, &json!({ "secret": Secret::expose(secret) })).await?;
    }
    Ok(())
}
