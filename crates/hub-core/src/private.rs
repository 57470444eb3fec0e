//! Files that only their owner may read.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::text::hex;
use crate::world::{World, random};

/// Why something is not in the hands of this user alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Exposed {
    /// Others may read it, or change it.
    #[error("others can read or change it: take that away with `chmod 600`")]
    ToOthers,
    /// Others may put files into it.
    #[error("others can put files into it: take that away with `chmod 700`")]
    ToWriters,
    /// Whoever owns it may do anything with it.
    #[error("it belongs to another user: make it yours with `chown`")]
    ToOwner,
}

/// Who else can get at a file, or write into a folder.
pub fn check(metadata: &Metadata) -> Result<(), Exposed> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err(Exposed::ToOwner);
        }
        let (others, why) =
            if metadata.is_dir() { (0o022, Exposed::ToWriters) } else { (0o077, Exposed::ToOthers) };
        if metadata.mode() & others != 0 {
            return Err(why);
        }
    }
    Ok(())
}

/// Writes a file. Beside the old one first, so that there is always a whole one.
pub fn write(path: &Path, bytes: &[u8], world: &dyn World) -> io::Result<()> {
    let mut draft = Draft::new(path, world)?;
    draft.write_all(bytes)?;
    draft.keep()
}

/// A file that is written beside where it is to be. It is gone unless it is kept.
pub struct Draft {
    file: File,
    beside: PathBuf,
    path: PathBuf,
}

impl Draft {
    /// Begins one for this path.
    pub fn new(path: &Path, world: &dyn World) -> io::Result<Self> {
        let folder = folder(path);
        make_folder(folder)?;
        let beside = folder.join(format!(".linchpin-{}", hex(&random::<8>(world))));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        Ok(Draft { file: options.open(&beside)?, beside, path: path.to_owned() })
    }

    /// Puts it where it is to be, when it is on the disk.
    pub fn keep(self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.beside, &self.path)?;
        if cfg!(unix) { File::open(folder(&self.path))?.sync_all() } else { Ok(()) }
    }
}

impl io::Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.beside); // it is not there if it was kept
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes a folder and those above it, as far as they are not there.
pub fn make_folder(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown};

    use super::*;

    #[test]
    fn what_others_can_get_at_is_noticed() {
        let place = tempfile::tempdir().unwrap();
        let (folder, file) = (place.path().join("folder"), place.path().join("folder/file"));
        write(&file, b"x", &crate::world::System).unwrap();
        let check = |path: &Path| check(&fs::metadata(path).unwrap());
        assert_eq!((check(&folder), check(&file)), (Ok(()), Ok(())));
        for (path, mode, expected) in [
            (&file, 0o640, Err(Exposed::ToOthers)),
            (&file, 0o602, Err(Exposed::ToOthers)),
            (&file, 0o400, Ok(())),
            (&folder, 0o755, Ok(())),
            (&folder, 0o777, Err(Exposed::ToWriters)),
            (&folder, 0o720, Err(Exposed::ToWriters)),
        ] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(check(path), expected, "{mode:o}");
        }
        // Only the owner of the machine can give files away.
        if chown(&file, Some(65_534), None).is_ok() {
            assert_eq!(check(&file), Err(Exposed::ToOwner));
        }
    }
}
