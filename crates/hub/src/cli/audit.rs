//! `linchpin audit`: the record of everything that was done and decided. It is read from the database itself, so that
//! nobody has to believe a hub, and none has to run.

use std::path::Path;
use std::process::ExitCode;

use clap::Subcommand;
use linchpin_hub_core::audit::Signer;
use linchpin_hub_core::hub::{AuditView, Beside, LOCAL, every_segment, verify};
use linchpin_hub_core::segment::Segment;
use linchpin_hub_core::store::MOST_ON_PAGE;
use serde_json::{Value, json};

use super::output::{Field, field};
use super::{Asked, print};
use crate::config::{Config, Place};
use crate::failure::Failure;

const VERIFIED: [Field; 8] = [
    field("whole", "/is_whole"),
    field("entries", "/entries"),
    field("last checkpoint", "/checkpoint"),
    field("segments", "/segments"),
    field("note", "/note"),
    field("first that is wrong", "/broken"),
    field("problem", "/problem"),
    field("digest", "/hash"),
];

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Check that every entry is as it was written, and that none is missing
    ///
    /// The exit code is 0 if it is whole and 1 if not.
    Verify,
    /// Write every entry as a line of JSON
    ///
    /// Entries that have left the database come after a line that names their segment and its file.
    Export {
        /// Only those after this number
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
        Command::Export { mut after } => {
            if asked.hub.is_some() {
                let text = "the audit is exported on the machine of the hub: run this there, without --hub";
                return Err(Failure::usage(text));
            }
            let place = asked.place()?;
            let (store, folder) = (place.found_store().await?, place.segments(&Config::open(&place.config)?));
            loop {
                let rows = store.audit(LOCAL, after, MOST_ON_PAGE).await?;
                // Those that are not in the store are in a segment, perhaps since a moment ago.
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
    let store = place.found_store().await?;
    let signer = Signer::new(&place.found_keys()?.audit);
    let segments = Some(place.segments(&Config::open(&place.config)?));
    let beside = Beside { checkpoints: Some(place.checkpoints()), segments };
    Ok(json!(verify(&*store, LOCAL, signer.public_key(), &beside).await?))
}

/// Which entries are in a segment, and they themselves if its file is at hand.
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
