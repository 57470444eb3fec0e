//! `linchpin audit export` and `linchpin audit verify --file`: an export with a signed last line, which others can verify
//! with the public key of the hub.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use linchpin_hub_core::audit::export::{ExportFooter, verify_export};
use linchpin_hub_core::audit::segment::SegmentFooter;
use linchpin_hub_core::audit::{AuditSigner, ChainHead};
use linchpin_hub_core::hub::{AuditView, LOCAL, chain_head_at, list_segments, verify};
use linchpin_hub_core::platform::{Platform as _, SystemPlatform};
use linchpin_hub_core::store::MAX_PAGE_SIZE;
use serde_json::json;

use super::audit::audit_files;
use super::output::{Column, column};
use super::{CommandContext, print};
use crate::config::Config;
use crate::error::{CliError, CliErrorKind};

const EXPORT_COLUMNS: [Column; 5] = [
    column("first entry", "/first"),
    column("last entry", "/last"),
    column("entries", "/entries"),
    column("signed at", "/signed_at"),
    column("public key", "/public_key"),
];

/// Prints the entries after `after`, and the signed last line.
pub(super) async fn export(context: &CommandContext, mut after: u64) -> Result<(), CliError> {
    if context.hub.is_some() {
        let text = "--hub is not supported: run `linchpin audit export` on the machine of the hub";
        return Err(CliError::usage(text));
    }
    let paths = context.paths()?;
    let (store, config) = (paths.open_existing_store().await?, Config::open(&paths.config)?);
    let folder = paths.segment_folder(&config);
    let signer = AuditSigner::new(&paths.read_keys()?.audit);
    let mut previous = chain_head_at(&*store, LOCAL, after).await?;
    let (mut last, mut missing) = (None, Vec::new());
    loop {
        let rows = store.audit_entries(LOCAL, after, MAX_PAGE_SIZE).await?;
        // Entries missing from the store are in a segment; they may have been moved since the last read.
        if rows.first().is_none_or(|first| first.number != after + 1) {
            let before = after;
            for segment in list_segments(&*store, LOCAL).await? {
                if segment.last > after {
                    let start = print_segment(&segment, &folder, after)?;
                    previous.get_or_insert(start);
                    if !folder.join(segment.file_name()).exists() {
                        missing.push(segment.segment);
                    }
                    after = segment.last;
                    last = Some(segment.end_head());
                }
            }
            if after != before {
                continue;
            }
        }
        let Some(row) = rows.last() else { break };
        after = row.number;
        last = Some(ChainHead { number: row.number, hash: row.hash });
        for row in rows {
            print(&format!("{}\n", json!(AuditView::from(row))))?;
        }
    }
    let Some(last) = last else { return Ok(()) }; // no entries
    verify(&*store, LOCAL, &signer, &audit_files(&paths, &config)).await?.require_intact()?;
    let previous = previous.ok_or_else(|| {
        CliError::new(
            CliErrorKind::Other,
            "the entry before the first exported one is missing: run `linchpin audit verify`",
        )
    })?;
    let footer = ExportFooter::sign(&signer, LOCAL, (previous, last), missing, SystemPlatform.now());
    Ok(print(&format!("{}\n", json!(footer)))?)
}

/// Prints a line about a segment, then its entries after `after` if its file exists. Returns the head of the chain before
/// the first printed entry, or before the segment if its file does not exist.
fn print_segment(segment: &SegmentFooter, folder: &Path, after: u64) -> Result<ChainHead, CliError> {
    let file = folder.join(segment.file_name());
    let mut line = json!(segment);
    line["file"] = json!(file);
    line["is_available"] = json!(file.exists());
    print(&format!("{line}\n"))?;
    let mut start = segment.start_head();
    segment.read::<CliError>(folder, |row| {
        if row.number > after {
            print(&format!("{}\n", json!(AuditView::from(row))))?;
        } else {
            start = ChainHead { number: row.number, hash: row.hash };
        }
        Ok(())
    })?;
    Ok(start)
}

/// Verifies an export without the data of the hub.
pub(super) fn verify_file(
    context: &CommandContext,
    file: &Path,
    public_key: Option<&str>,
) -> Result<(), CliError> {
    let failed = |error: &dyn std::fmt::Display| {
        CliError::new(CliErrorKind::Other, format!("`{}`: {error}", file.display()))
    };
    let input = File::open(file).map_err(|error| failed(&error))?;
    let found = verify_export(BufReader::new(input), public_key).map_err(|error| failed(&error))?;
    Ok(context.output.print_details(&json!(found), &EXPORT_COLUMNS)?)
}
