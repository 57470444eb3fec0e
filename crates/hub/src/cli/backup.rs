//! `linchpin backup` and `linchpin restore`: everything that the hub keeps, in one file, whatever database it is in. Both work on
//! the database itself; a backup also while a hub uses it.

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
use linchpin_hub_core::private::Draft;
use linchpin_hub_core::vault::KeyFile;
use linchpin_hub_core::world::{System, World as _};
use serde_json::json;
use tokio::sync::mpsc::channel;

use super::output::{Field, field};
use super::{Asked, audit};
use crate::config::{Config, Durability, Place, Running};
use crate::failure::{Failure, Kind};
use crate::terminal::Screen;

/// How much is on its way between the file and the database.
const ON_THE_WAY: usize = 64;
/// How often it is shown how far it is.
const SHOWN: u64 = 1_000;

const WRITTEN: [Field; 5] = [
    field("file", "/file"),
    field("records", "/records"),
    field("entries of the audit", "/entries"),
    field("keys in it", "/with_keys"),
    field("digest", "/digest"),
];
const RESTORED: [Field; 7] = [
    field("made", "/at"),
    field("records", "/records"),
    field("calls that were under way", "/unknown"),
    field("audit whole", "/audit/is_whole"),
    field("entries of the audit", "/audit/entries"),
    field("note", "/audit/note"),
    field("problem", "/audit/problem"),
];

#[derive(Args)]
pub(crate) struct Backup {
    /// The file to write, for you alone
    file: PathBuf,
    /// Overwrite a file that is there
    #[arg(long)]
    force: bool,
    /// Put the keys into it, too: whoever has the file can then open every secret in it
    #[arg(long)]
    with_keys: bool,
}

#[derive(Args)]
pub(crate) struct Restore {
    /// A file that `linchpin backup` has written
    file: PathBuf,
}

pub(super) async fn backup(asked: &Asked, Backup { file, force, with_keys }: Backup) -> Result<(), Failure> {
    let place = here(asked)?;
    if file.exists() && !force {
        let text = format!("`{}` is there already: give another file, or --force", file.display());
        return Err(Failure::new(Kind::Other, text));
    }
    let (store, keys) = (place.found_store().await?, place.found_keys()?);
    let unwritten = |error| about(&file, Failure::from(error));
    let draft = BufWriter::new(Draft::new(&file, &System).map_err(unwritten)?);
    let mut writer = Writer::new(draft, &keys, System.now(), with_keys)?;
    let (screen, (to, from)) = (Screen::new(), channel(ON_THE_WAY));
    let write = async {
        let mut from = from; // it goes with whoever writes
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
        // Whoever does not write is also who takes nothing more.
        (Err(_), Err(error)) | (Err(error), Ok(_)) => return Err(error.into()),
    };
    draft.into_inner().map_err(|error| unwritten(error.into_error()))?.keep().map_err(unwritten)?;
    let mut answer = json!(contents);
    answer["file"] = json!(file);
    answer["entries"] = json!(contents.heads.get(&LOCAL));
    asked.output.one(&answer, &WRITTEN)?;
    if !asked.output.json {
        screen.aside(if with_keys {
            "The keys are in it: keep it as you would keep every secret that is in the hub."
        } else {
            "The keys are not in it, and without them nobody opens its secrets: keep a copy of the key file, too."
        });
    }
    Ok(())
}

pub(super) async fn restore(asked: &Asked, Restore { file }: Restore) -> Result<ExitCode, Failure> {
    let place = here(asked)?;
    if let Some(Running { url, pid, .. }) = place.running() {
        let text = format!(
            "a hub runs on `{}` at {url} (process {pid}): a backup is restored into an empty place while no hub runs. End \
             that hub first, or give another directory with --data-dir",
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
        let text = format!("there is something in {} already: restore into an empty place", place.kept_in());
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
            // The last one goes only when the end is found to be right: without it nothing is kept.
            if let Some(copied) = last.take()
                && to.send(copied).await.is_err()
            {
                break; // the store says why
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
            let _ = std::fs::remove_file(&place.keys); // it is in the backup
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

/// Where the hub is, which must be here.
fn here(asked: &Asked) -> Result<Place, Failure> {
    if asked.hub.is_some() {
        let text = "backups are made and restored on the machine of the hub: run this there, without --hub";
        return Err(Failure::usage(text));
    }
    asked.place()
}

/// Checkpoints that are here must not know of more than the backup: the audit would be found to be cut off, as it would be.
fn is_the_last(place: &Place, contents: &Contents, public_key: &[u8]) -> Result<(), Failure> {
    let file = place.checkpoints();
    for (tenant, last) in &contents.heads {
        let (known, _) = last_checkpoint(&file, *tenant, public_key)?;
        let known = known.map_or(0, |checkpoint| checkpoint.head.number);
        if known > *last {
            let text = format!(
                "`{}` says that the audit went on to entry {known}, and the backup ends with entry {last}: to go back to it, put that file \
                 elsewhere, and keep it",
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

/// Shows people how far it is.
fn show(asked: &Asked, screen: &Screen, done: u64, total: Option<u64>, what: &str) {
    if screen.look.is_terminal && !asked.output.json {
        let number = |number: u64| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
        screen.progress(&match total {
            Some(total) => Progress::from((number(done * 100 / total.max(1)), 100.0, what)),
            None => Progress::from(number(done)),
        });
    }
}
