//! Reader of the configuration file, which checks its permissions. The file must be accessible to its owner alone: it
//! controls which processes are started, and may contain secrets.

use std::fs::{FileType, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use linchpin_hub_core::private_file;
use rustix::fs::OFlags;

use super::{Config, ConfigError};

/// Maximum size of the configuration file in bytes.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Fingerprint of a file that detects changes without reading it: inode, size, and change time of content or mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp(u64, u64, (i64, i64));

/// Returns the current fingerprint of `path`; `None` if the file does not exist.
pub(crate) fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(Stamp(metadata.ino(), metadata.len(), (metadata.ctime(), metadata.ctime_nsec())))
}

/// Reads the configuration file as text; `None` if it does not exist.
pub(super) fn read_text(path: &Path) -> Result<Option<String>, ConfigError> {
    let failed = |error: io::Error| ConfigError::new(path, format!("the file cannot be read: {error}"));
    // Without O_NONBLOCK, opening a pipe blocks until a writer opens it.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    let metadata = file.metadata().map_err(failed)?;
    let kind = metadata.file_type();
    if !kind.is_file() {
        let text = format!(
            "the path leads to {}, not to a regular file: replace it, or choose another file with --config",
            file_type_name(kind)
        );
        return Err(ConfigError::new(path, text));
    }
    private_file::check_private(&metadata).map_err(|reason| {
        ConfigError::new(path, format!("insecure permissions of a file that starts processes: {reason}"))
    })?;
    let mut text = String::new();
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(ConfigError::new(
            path,
            format!("the file is larger than {} MB: check that it is the right file", MAX_FILE_BYTES >> 20),
        ));
    }
    Ok(Some(text))
}

fn file_type_name(kind: FileType) -> &'static str {
    match () {
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a pipe",
        () => "a device",
    }
}

/// Reads and parses the configuration file; `None` if it does not exist.
pub(super) fn read(path: &Path) -> Result<Option<Config>, ConfigError> {
    read_text(path)?.map(|text| Config::parse(path, &text)).transpose()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc::sync_channel;
    use std::time::Duration;

    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;

    #[test]
    fn what_is_no_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let (directory, pipe) = (folder.path().join("directory"), folder.path().join("pipe"));
        fs::create_dir(&directory).unwrap();
        mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        for (path, expected) in [
            (directory, "leads to a directory, not to a regular file"),
            (pipe, "leads to a pipe, not to a regular file"),
            ("/dev/null".into(), "leads to a device, not to a regular file"),
        ] {
            let (done, read) = sync_channel(1);
            std::thread::spawn(move || done.send(read_text(&path)));
            let problem =
                read.recv_timeout(Duration::from_mins(1)).expect("opening must not block").unwrap_err();
            assert!(problem.to_string().contains(expected), "{problem}");
        }
    }
}
