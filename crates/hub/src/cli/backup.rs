//! `linchpin backup` and `linchpin restore`: one file with the data of the hub's database, of any kind. Both
//! access the database directly; a backup may run while a hub uses it.

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use linchpin::egress::Egress;
use linchpin::server::Progress;
use linchpin_hub_core::audit::AuditSigner;
use linchpin_hub_core::backup::{BackupReader, BackupSummary, BackupWriter};
use linchpin_hub_core::hub::{Hub, HubOptions, LOCAL, last_checkpoint, verify};
use linchpin_hub_core::platform::{Platform as _, SystemPlatform};
use linchpin_hub_core::private_file::AtomicFile;
use linchpin_hub_core::vault::KeyFile;
use serde_json::json;
use tokio::sync::mpsc::channel;

use super::output::{Column, column};
use super::{CommandContext, audit};
use crate::config::{Config, Durability, HubPaths, RunningHub};
use crate::error::{CliError, CliErrorKind};
use crate::terminal::Screen;

/// Number of records buffered between the file and the database.
const PIPELINE_DEPTH: usize = 64;
/// Number of records between two progress updates.
const PROGRESS_INTERVAL: u64 = 1_000;

const BACKUP_COLUMNS: [Column; 5] = [
    column("file", "/file"),
    column("records", "/records"),
    column("audit entries", "/entries"),
    column("with keys", "/with_keys"),
    column("digest", "/digest"),
];
const RESTORE_COLUMNS: [Column; 7] = [
    column("created", "/at"),
    column("records", "/records"),
    column("interrupted calls", "/unknown"),
    column("audit intact", "/audit/intact"),
    column("audit entries", "/audit/entries"),
    column("note", "/audit/note"),
    column("error", "/audit/error"),
];

#[derive(Args)]
pub(crate) struct Backup {
    /// File to write; readable only by you
    file: PathBuf,
    /// Overwrite an existing file
    #[arg(long)]
    force: bool,
    /// Include the keys: anyone with the file can then decrypt all secrets in it
    #[arg(long)]
    with_keys: bool,
}

#[derive(Args)]
pub(crate) struct Restore {
    /// Backup file written by `linchpin backup`
    file: PathBuf,
}

pub(super) async fn backup(
    context: &CommandContext,
    Backup { file, force, with_keys }: Backup,
) -> Result<(), CliError> {
    let paths = local_paths(context)?;
    if file.exists() && !force {
        let text = format!("`{}` already exists: choose another file, or add --force", file.display());
        return Err(CliError::new(CliErrorKind::Other, text));
    }
    let (store, keys) = (paths.open_existing_store().await?, paths.read_keys()?);
    let write_error = |error| with_file(&file, CliError::from(error));
    let draft = BufWriter::new(AtomicFile::new(&file, &SystemPlatform).map_err(write_error)?);
    let mut writer = BackupWriter::new(draft, &keys, SystemPlatform.now(), with_keys)?;
    let (screen, (to, from)) = (Screen::new(), channel(PIPELINE_DEPTH));
    let write = async {
        let mut from = from; // moved in: dropped when writing fails, so that the copy stops
        while let Some(copied) = from.recv().await {
            writer.add(copied)?;
            if writer.records().is_multiple_of(PROGRESS_INTERVAL) {
                show_progress(context, &screen, writer.records(), None, "");
            }
        }
        writer.finish()
    };
    let (copied, write_result) = tokio::join!(store.export_snapshot(to), write);
    screen.clear();
    let (draft, contents) = match (copied, write_result) {
        (Ok(()), write_result) => write_result?,
        // A failed writer closes the channel, which fails the copy: the writer's error is the cause.
        (Err(_), Err(error)) | (Err(error), Ok(_)) => return Err(error.into()),
    };
    draft.into_inner().map_err(|error| write_error(error.into_error()))?.commit().map_err(write_error)?;
    let mut report = json!(contents);
    report["file"] = json!(file);
    report["entries"] = json!(contents.heads.get(&LOCAL));
    context.output.print_details(&report, &BACKUP_COLUMNS)?;
    if !context.output.json {
        screen.dim_line(if with_keys {
            "The backup contains the keys: protect it like the secrets of the hub."
        } else {
            "The backup does not contain the keys, and its secrets cannot be decrypted without them: back up the key file, too."
        });
    }
    Ok(())
}

pub(super) async fn restore(
    context: &CommandContext,
    Restore { file }: Restore,
) -> Result<ExitCode, CliError> {
    let paths = local_paths(context)?;
    if let Some(RunningHub { url, pid, .. }) = paths.running() {
        let text = format!(
            "a hub runs on `{}` at {url} (process {pid}): stop it first, or choose an empty directory with --data-dir",
            paths.data().display()
        );
        return Err(CliError::new(CliErrorKind::Other, text));
    }
    let file_error = |error: linchpin_hub_core::Error| with_file(&file, error.into());
    let open = || {
        let file_handle = File::open(&file).map_err(|error| with_file(&file, error.into()))?;
        BackupReader::new(BufReader::new(file_handle)).map_err(file_error)
    };
    let (reader, config, screen) = (open()?, Config::open(&paths.config)?, Screen::new());
    let (keys, are_new) = match reader.keys() {
        Some(text) if !paths.keys.exists() => (KeyFile::parse(&paths.keys, text)?, true),
        _ => (paths.read_keys()?, false),
    };
    let (size, mut next_update) = (std::fs::metadata(&file)?.len(), 0);
    let on_progress = |bytes: u64| {
        if bytes >= next_update {
            show_progress(context, &screen, bytes, Some(size), "percent checked");
            next_update = bytes + size / 100;
        }
    };
    let contents = reader.verify(&keys, on_progress).map_err(file_error)?;
    screen.clear();
    let signer = AuditSigner::new(&keys.audit);
    check_checkpoints(&paths, &contents, signer.public_key())?;

    paths.create()?;
    let lock = paths.lock()?;
    let store = paths.store(Durability::Power).await?;
    if !store.tenants().await?.is_empty() {
        let text = format!(
            "{} is not empty: restore into an empty data directory or database",
            paths.describe_store()
        );
        return Err(CliError::new(CliErrorKind::Other, text));
    }
    if are_new {
        keys.save(&SystemPlatform)?;
    }
    let (mut reader, (to, from)) = (open()?, channel(PIPELINE_DEPTH));
    let read = async {
        let (mut count, mut last) = (0, None);
        loop {
            let next = reader.next(&keys)?;
            // Hold the last record back until the end of the file is verified: the store commits only a complete copy.
            if let Some(copied) = last.take()
                && to.send(copied).await.is_err()
            {
                break; // `copy_in` returns the error
            }
            count += 1;
            if next.is_none() {
                break;
            }
            if count % PROGRESS_INTERVAL == 0 {
                show_progress(context, &screen, count, Some(contents.records), "percent restored");
            }
            last = next;
        }
        drop(to);
        Ok(())
    };
    let (stored, read) = tokio::join!(store.import_snapshot(from, contents.records), read);
    screen.clear();
    if let Err(error) = read.and(stored) {
        if are_new {
            let _ = std::fs::remove_file(&paths.keys); // the backup contains the keys
        }
        return Err(file_error(error));
    }
    let files = audit::audit_files(&paths, &config);
    let (checkpoints, heads) = (files.checkpoints.clone(), files.heads.clone());
    let options = HubOptions { checkpoints, heads, ..HubOptions::default() };
    let hub = Hub::new(Arc::new(SystemPlatform), store.clone(), keys, Egress::default(), options);
    let unknown = hub.finish_restore(&contents).await?;
    let audit = verify(&*store, LOCAL, &signer, &files).await?;
    drop(lock);
    let mut report = json!(contents);
    (report["unknown"], report["audit"]) = (json!(unknown), json!(audit));
    context.output.print_details(&report, &RESTORE_COLUMNS)?;
    Ok(ExitCode::from(u8::from(!audit.intact)))
}

/// Returns the paths of the local hub; `--hub` is an error.
fn local_paths(context: &CommandContext) -> Result<HubPaths, CliError> {
    if context.hub.is_some() {
        let text = "--hub is not supported: back up and restore on the machine of the hub";
        return Err(CliError::usage(text));
    }
    context.paths()
}

/// Checks that no local checkpoint is newer than the backup: otherwise the restored audit log would verify as
/// truncated.
fn check_checkpoints(paths: &HubPaths, contents: &BackupSummary, public_key: &[u8]) -> Result<(), CliError> {
    let file = paths.checkpoint_file();
    for (tenant, last) in &contents.heads {
        let (stored_checkpoint, _) = last_checkpoint(&file, *tenant, public_key)?;
        let stored_checkpoint = stored_checkpoint.map_or(0, |checkpoint| checkpoint.head.number);
        if stored_checkpoint > *last {
            let text = format!(
                "`{}` has a checkpoint of audit entry {stored_checkpoint}, but the backup ends with entry {last}: to restore the older state, move \
                 that file elsewhere and archive it",
                file.display()
            );
            return Err(CliError::new(CliErrorKind::Other, text));
        }
    }
    Ok(())
}

fn with_file(file: &Path, failure: CliError) -> CliError {
    failure.context(&format!("`{}`", file.display()))
}

/// Shows the progress of a backup or restore on a terminal.
fn show_progress(context: &CommandContext, screen: &Screen, done: u64, total: Option<u64>, label: &str) {
    if screen.style.is_terminal && !context.output.json {
        let number = |number: u64| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
        screen.progress(&match total {
            Some(total) => Progress::from((number(done * 100 / total.max(1)), 100.0, label)),
            None => Progress::from(number(done)),
        });
    }
}
