//! Reading the operator's file. Whoever can write it starts programs, and what it says may be secret: only its owner may
//! read it.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::SystemTime;

use linchpin_hub_core::private::is_open_to_others;

use super::{Config, Problem};

const LONGEST: u64 = 4 << 20;

/// What tells one state of a file from another without reading it: its number, its size, and when it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp(u64, u64, Option<SystemTime>);

/// What `path` is like now; `None` if there is no such file.
pub(super) fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(path).ok()?;
    let number = std::os::unix::fs::MetadataExt::ino(&metadata);
    Some(Stamp(number, metadata.len(), metadata.modified().ok()))
}

/// The text; `None` if there is no such file.
pub(super) fn text(path: &Path) -> Result<Option<String>, Problem> {
    let failed = |error: io::Error| Problem::new(path, format!("it cannot be read: {error}"));
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    if is_open_to_others(&file).map_err(failed)? {
        let text =
            "others can read or change it, and it decides what is started: take that away with `chmod 600`";
        return Err(Problem::new(path, text));
    }
    let mut text = String::new();
    file.take(LONGEST + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > LONGEST {
        return Err(Problem::new(
            path,
            format!("it is longer than {} MB: is it the right file?", LONGEST >> 20),
        ));
    }
    Ok(Some(text))
}

/// What the file says; `None` if there is none.
pub(super) fn read(path: &Path) -> Result<Option<Config>, Problem> {
    text(path)?.map(|text| Config::parse(path, &text)).transpose()
}
