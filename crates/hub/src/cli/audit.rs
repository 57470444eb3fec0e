//! `linchpin audit`: verifies, accepts and exports the audit log. Without `--hub` it reads the database directly, so
//! the result does not depend on a hub, and no hub has to run.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Subcommand;
use linchpin::egress::Egress;
use linchpin_hub_core::audit::Signer;
use linchpin_hub_core::audit::segment::Segment;
use linchpin_hub_core::hub::{AuditView, Beside, Hub, LOCAL, Options, every_segment, verify};
use linchpin_hub_core::platform::System;
use linchpin_hub_core::store::MOST_ON_PAGE;
use serde_json::{Value, json};

use super::output::{Field, field};
use super::{Asked, print};
use crate::config::{Config, Place};
use crate::error::{Failure, Kind};

const VERIFIED: [Field; 10] = [
    field("intact", "/is_whole"),
    field("entries", "/entries"),
    field("last checkpoint", "/checkpoint"),
    field("signed head", "/head"),
    field("segments", "/segments"),
    field("note", "/note"),
    field("kind", "/kind"),
    field("first bad entry", "/broken"),
    field("problem", "/problem"),
    field("digest", "/hash"),
];

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Verify that no audit entry was changed or removed
    ///
    /// Exits with 0 if the audit log is intact, else with 1; `kind` then names the cause: `entry_changed`, `rewritten`,
    /// `end_missing`, `no_checkpoint`, `older_copy`, `all_removed` or `other_store`.
    Verify,
    /// Accept the current audit log after you restored an older copy of the data directory by hand
    ///
    /// Records the acceptance in the audit log and signs a new chain head. Stop the hub first. `linchpin restore` does
    /// this automatically.
    Accept,
    /// Export audit entries as JSON lines
    ///
    /// Entries that were moved to a segment file follow a line that names the segment and its file.
    Export {
        /// Export only entries after this number
        #[arg(long, value_name = "NUMBER", default_value = "0", value_parser = clap::value_parser!(u64).range(..=u64::MAX / 2))]
        after: u64,
    },
}

pub(super) async fn run(asked: &Asked, command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Verify => {
            let found = match &asked.hub {
                Some(_) => asked.api()?.get("/audit/verify").await?,
                None => verified(&asked.place()?).await?,
            };
            asked.output.one(&found, &VERIFIED)?;
            Ok(ExitCode::from(u8::from(found["is_whole"] != true)))
        }
        Command::Accept => {
            accept(asked).await?;
            asked.output.done(&json!({}), "audit log accepted; a new chain head was signed")?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Export { mut after } => {
            if asked.hub.is_some() {
                let text = "--hub is not supported: run `linchpin audit export` on the machine of the hub";
                return Err(Failure::usage(text));
            }
            let place = asked.place()?;
            let (store, folder) = (place.found_store().await?, place.segments(&Config::open(&place.config)?));
            loop {
                let rows = store.audit(LOCAL, after, MOST_ON_PAGE).await?;
                // Entries missing from the store are in a segment; they may have been moved since the last read.
                if rows.first().is_none_or(|first| first.number != after + 1) {
                    let before = after;
                    for segment in every_segment(&*store, LOCAL).await? {
                        if segment.last > after {
                            print_segment(&segment, &folder, after)?;
                            after = segment.last;
                        }
                    }
                    if after != before {
                        continue;
                    }
                }
                let Some(last) = rows.last() else { return Ok(ExitCode::SUCCESS) };
                after = last.number;
                for row in rows {
                    print(&format!("{}\n", json!(AuditView::from(row))))?;
                }
            }
        }
    }
}

async fn verified(place: &Place) -> Result<Value, Failure> {
    let config = Config::open(&place.config)?;
    let beside = beside(place, &config);
    let store = match place.found_store().await {
        Err(failure) if !place.has_store() && place.keys.exists() => {
            let signer = Signer::new(&place.found_keys()?.audit);
            let head =
                beside.heads.as_ref().map(|file| file.find(None, LOCAL, signer.public_key())).transpose()?;
            return Err(match head.flatten() {
                Some(last) => {
                    let text = format!(
                        "{failure} (kind `all_removed`: the signed head covers {} entries)",
                        last.head.number
                    );
                    Failure::new(Kind::Other, text)
                }
                None => failure,
            });
        }
        store => store?,
    };
    let signer = Signer::new(&place.found_keys()?.audit);
    Ok(json!(verify(&*store, LOCAL, signer.public_key(), &beside).await?))
}

/// Returns the audit files outside the database: checkpoints, chain heads and segments.
pub(super) fn beside(place: &Place, config: &Config) -> Beside {
    let (checkpoints, segments) = (Some(place.checkpoints()), Some(place.segments(config)));
    Beside { checkpoints, heads: Some(place.heads(config)), segments }
}

/// Signs the current chain head while no hub runs.
async fn accept(asked: &Asked) -> Result<(), Failure> {
    if asked.hub.is_some() {
        let text = "--hub is not supported: run `linchpin audit accept` on the machine of the hub";
        return Err(Failure::usage(text));
    }
    let place = asked.place()?;
    let config = Config::open(&place.config)?;
    let _lock = place.lock()?;
    let (store, keys) = (place.found_store().await?, place.found_keys()?);
    let Beside { checkpoints, heads, segments } = beside(&place, &config);
    let options = Options { checkpoints, heads, segments, ..Options::default() };
    let hub = Hub::new(Arc::new(System), store, keys, Egress::default(), options);
    Ok(hub.accept_audit().await?)
}

/// Prints a line about a segment, then its entries after `after` if its file exists.
fn print_segment(segment: &Segment, folder: &Path, after: u64) -> Result<(), Failure> {
    let file = folder.join(segment.file());
    let mut line = json!(segment);
    line["file"] = json!(file);
    line["is_at_hand"] = json!(file.exists());
    print(&format!("{line}\n"))?;
    segment.read::<Failure>(folder, |row| {
        if row.number > after {
            print(&format!("{}\n", json!(AuditView::from(row))))?;
        }
        Ok(())
    })?;
    Ok(())
}
