//! `linchpin backup` and `linchpin restore`: one file with all data of the hub, independent of the database. Both
//! access the database directly; a backup may run while a hub uses it.

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use linchpin::egress::Egress;
use linchpin::server::Progress;
use linchpin_hub_core::audit::Signer;
use linchpin_hub_core::backup::{Contents, Reader, Writer};
use linchpin_hub_core::hub::{Hub, LOCAL, Options, last_checkpoint, verify};
use linchpin_hub_core::platform::{System, World as _};
use linchpin_hub_core::private_file::Draft;
use linchpin_hub_core::vault::KeyFile;
use serde_json::json;
use tokio::sync::mpsc::channel;

use super::output::{Field, field};
use super::{Asked, audit};
use crate::config::{Config, Durability, Place, Running};
use crate::error::{Failure, Kind};
use crate::terminal::Screen;

/// Number of records buffered between the file and the database.
const ON_THE_WAY: usize = 64;
/// Number of records between two progress updates.
const SHOWN: u64 = 1_000;

const WRITTEN: [Field; 5] = [
    field("file", "/file"),
    field("records", "/records"),
    field("audit entries", "/entries"),
    field("with keys", "/with_keys"),
    field("digest", "/digest"),
];
const RESTORED: [Field; 7] = [
    field("created", "/at"),
    field("records", "/records"),
    field("calls with unknown outcome", "/unknown"),
    field("audit intact", "/audit/is_whole"),
    field("audit entries", "/audit/entries"),
    field("note", "/audit/note"),
    field("problem", "/audit/problem"),
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

pub(super) async fn backup(asked: &Asked, Backup { file, force, with_keys }: Backup) -> Result<(), Failure> {
    let place = here(asked)?;
    if file.exists() && !force {
        let text = format!("`{}` already exists: choose another file, or add --force", file.display());
        return Err(Failure::new(Kind::Other, text));
    }
    let (store, keys) = (place.found_store().await?, place.found_keys()?);
    let unwritten = |error| about(&file, Failure::from(error));
    let draft = BufWriter::new(Draft::new(&file, &System).map_err(unwritten)?);
    let mut writer = Writer::new(draft, &keys, System.now(), with_keys)?;
    let (screen, (to, from)) = (Screen::new(), channel(ON_THE_WAY));
    let write = async {
        let mut from = from; // moved in: dropped when writing fails, so that the copy stops
        while let Some(copied) = from.recv().await {
            writer.add(copied)?;
            if writer.records().is_multiple_of(SHOWN) {
                show(asked, &screen, writer.records(), None, "");
            }
        }
        writer.end()
    };
    let (copied, written) = tokio::join!(store.copy_out(to), write);
    screen.clear();
    let (draft, contents) = match (copied, written) {
        (Ok(()), written) => written?,
        // A failed writer closes the channel, which fails the copy: the writer's error is the cause.
        (Err(_), Err(error)) | (Err(error), Ok(_)) => return Err(error.into()),
    };
    draft.into_inner().map_err(|error| unwritten(error.into_error()))?.keep().map_err(unwritten)?;
    let mut answer = json!(contents);
    answer["file"] = json!(file);
    answer["entries"] = json!(contents.heads.get(&LOCAL));
    asked.output.one(&answer, &WRITTEN)?;
    if !asked.output.json {
        screen.aside(if with_keys {
            "The backup contains the keys: protect it like the secrets of the hub."
        } else {
            "The backup does not contain the keys, and its secrets cannot be decrypted without them: back up the key file, too."
        });
    }
    Ok(())
}

pub(super) async fn restore(asked: &Asked, Restore { file }: Restore) -> Result<ExitCode, Failure> {
    let place = here(asked)?;
    if let Some(Running { url, pid, .. }) = place.running() {
        let text = format!(
            "a hub runs on `{}` at {url} (process {pid}): stop it first, or choose an empty directory with --data-dir",
            place.data().display()
        );
        return Err(Failure::new(Kind::Other, text));
    }
    let wrong = |error: linchpin_hub_core::Error| about(&file, error.into());
    let open = || {
        let opened = File::open(&file).map_err(|error| about(&file, error.into()))?;
        Reader::new(BufReader::new(opened)).map_err(wrong)
    };
    let (reader, config, screen) = (open()?, Config::open(&place.config)?, Screen::new());
    let (keys, are_new) = match reader.keys() {
        Some(text) if !place.keys.exists() => (KeyFile::parse(&place.keys, text)?, true),
        _ => (place.found_keys()?, false),
    };
    let (size, mut shown) = (std::fs::metadata(&file)?.len(), 0);
    let told = |bytes: u64| {
        if bytes >= shown {
            show(asked, &screen, bytes, Some(size), "percent checked");
            shown = bytes + size / 100;
        }
    };
    let contents = reader.check(&keys, told).map_err(wrong)?;
    screen.clear();
    let public_key = Signer::new(&keys.audit).public_key().to_vec();
    is_the_last(&place, &contents, &public_key)?;

    place.make()?;
    let lock = place.lock()?;
    let store = place.store(Durability::Power).await?;
    if !store.tenants().await?.is_empty() {
        let text =
            format!("{} is not empty: restore into an empty data directory or database", place.kept_in());
        return Err(Failure::new(Kind::Other, text));
    }
    if are_new {
        keys.save(&System)?;
    }
    let (mut reader, (to, from)) = (open()?, channel(ON_THE_WAY));
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
            if count % SHOWN == 0 {
                show(asked, &screen, count, Some(contents.records), "percent restored");
            }
            last = next;
        }
        drop(to);
        Ok(())
    };
    let (kept, read) = tokio::join!(store.copy_in(from, contents.records), read);
    screen.clear();
    if let Err(error) = read.and(kept) {
        if are_new {
            let _ = std::fs::remove_file(&place.keys); // the backup contains the keys
        }
        return Err(wrong(error));
    }
    let beside = audit::beside(&place, &config);
    let (checkpoints, heads) = (beside.checkpoints.clone(), beside.heads.clone());
    let options = Options { checkpoints, heads, ..Options::default() };
    let hub = Hub::new(Arc::new(System), store.clone(), keys, Egress::default(), options);
    let unknown = hub.restored(&contents).await?;
    let audit = verify(&*store, LOCAL, &public_key, &beside).await?;
    drop(lock);
    let mut answer = json!(contents);
    (answer["unknown"], answer["audit"]) = (json!(unknown), json!(audit));
    asked.output.one(&answer, &RESTORED)?;
    Ok(ExitCode::from(u8::from(!audit.is_whole)))
}

/// Returns the paths of the local hub; `--hub` is an error.
fn here(asked: &Asked) -> Result<Place, Failure> {
    if asked.hub.is_some() {
        let text = "--hub is not supported: back up and restore on the machine of the hub";
        return Err(Failure::usage(text));
    }
    asked.place()
}

/// Checks that no local checkpoint is newer than the backup: otherwise the restored audit log would verify as
/// truncated.
fn is_the_last(place: &Place, contents: &Contents, public_key: &[u8]) -> Result<(), Failure> {
    let file = place.checkpoints();
    for (tenant, last) in &contents.heads {
        let (known, _) = last_checkpoint(&file, *tenant, public_key)?;
        let known = known.map_or(0, |checkpoint| checkpoint.head.number);
        if known > *last {
            let text = format!(
                "`{}` has a checkpoint of audit entry {known}, but the backup ends with entry {last}: to restore the older state, move \
                 that file elsewhere and archive it",
                file.display()
            );
            return Err(Failure::new(Kind::Other, text));
        }
    }
    Ok(())
}

fn about(file: &Path, failure: Failure) -> Failure {
    failure.during(&format!("`{}`", file.display()))
}

/// Shows the progress on a terminal.
fn show(asked: &Asked, screen: &Screen, done: u64, total: Option<u64>, what: &str) {
    if screen.look.is_terminal && !asked.output.json {
        let number = |number: u64| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
        screen.progress(&match total {
            Some(total) => Progress::from((number(done * 100 / total.max(1)), 100.0, what)),
            None => Progress::from(number(done)),
        });
    }
}
