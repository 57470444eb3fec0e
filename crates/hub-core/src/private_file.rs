//! Private files: atomic writes with owner-only permissions, and permission checks.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::platform::{Platform, random};
use crate::text::hex;

/// Reason why other users can access a file or folder that must be private.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InsecurePermissions {
    /// Other users can read or change the file.
    #[error("other users can read or change the file: restrict access with `chmod 600`")]
    AccessibleToOthers,
    /// Other users can write to the checked folder.
    #[error("other users can put files into the folder: restrict access with `chmod 700`")]
    WritableByOthers,
    /// Another user owns the file or folder.
    #[error("the file or folder belongs to another user: change its owner with `chown`")]
    OwnedByOther,
}

/// Verifies that a file is readable, or a folder writable, by this user only.
pub fn check_private(metadata: &Metadata) -> Result<(), InsecurePermissions> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err(InsecurePermissions::OwnedByOther);
        }
        let (others, reason) = if metadata.is_dir() {
            (0o022, InsecurePermissions::WritableByOthers)
        } else {
            (0o077, InsecurePermissions::AccessibleToOthers)
        };
        if metadata.mode() & others != 0 {
            return Err(reason);
        }
    }
    Ok(())
}

/// Reason why a path above a private file is not safe: other users can replace the file.
#[derive(Debug, thiserror::Error)]
pub enum InsecureParent {
    /// Other users can write to this folder above the file.
    #[error(
        "other users can write to the folder `{folder}` above it and replace its contents: run `chmod go-w {folder}`, or choose another folder",
        folder = .0.display()
    )]
    WritableByOthers(PathBuf),
    /// The owner of a parent folder or link is neither this user nor root.
    #[error(
        "the folder or link `{folder}` above it belongs to another user, who can replace its target: \
         change its owner with `chown`, or choose another folder",
        folder = .0.display()
    )]
    OwnedByOther(PathBuf),
}

/// Checks every folder above a path, as far as it exists: other users must not be able to rename or replace a part of
/// the path. Symbolic links are followed, also at the path itself, and every folder that contains a link or that it
/// leads through is checked.
///
/// A folder with the sticky bit, such as `/tmp`, is accepted. So is a folder writable by the user's own group, if the
/// number of that group is the number of the user (a user private group).
pub fn check_parents(path: &Path) -> Result<(), InsecureParent> {
    #[cfg(unix)]
    check_folders(&std::path::absolute(path).unwrap_or_else(|_| path.to_owned()), &mut { MAX_LINKS })?;
    Ok(())
}

/// Maximum number of symbolic links to follow, as on Linux.
#[cfg(unix)]
const MAX_LINKS: u32 = 40;

#[cfg(unix)]
fn check_folders(path: &Path, links: &mut u32) -> Result<(), InsecureParent> {
    for (index, part) in path.ancestors().enumerate() {
        if *links > 0
            && let Ok(target) = fs::read_link(part)
        {
            *links -= 1;
            if fs::symlink_metadata(part).is_ok_and(|link| is_owned_by_other(&link)) {
                return Err(InsecureParent::OwnedByOther(part.to_owned()));
            }
            check_folders(&parent_folder(part).join(target), links)?;
        }
        if index > 0 {
            check_folder(part)?;
        }
    }
    Ok(())
}

#[cfg(unix)]
fn check_folder(folder: &Path) -> Result<(), InsecureParent> {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(found) = fs::metadata(folder) else { return Ok(()) };
    let own_uid = rustix::process::geteuid().as_raw();
    if is_owned_by_other(&found) {
        return Err(InsecureParent::OwnedByOther(folder.to_owned()));
    }
    let by_group = found.mode() & 0o020 != 0 && found.gid() != own_uid;
    let is_sticky = found.mode() & 0o1000 != 0;
    if (by_group || found.mode() & 0o002 != 0) && !is_sticky {
        return Err(InsecureParent::WritableByOthers(folder.to_owned()));
    }
    Ok(())
}

/// Returns whether the owner of a file is neither this user nor root.
#[cfg(unix)]
fn is_owned_by_other(found: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    /// Owner of files whose user does not exist in a user namespace, such as the root of the host in a container.
    const UNMAPPED_UID: u32 = 65_534;
    ![0, rustix::process::geteuid().as_raw(), UNMAPPED_UID].contains(&found.uid())
}

/// Writes a file atomically: to a temporary file first, so that there is always a complete one.
pub fn write(path: &Path, bytes: &[u8], platform: &dyn Platform) -> io::Result<()> {
    let mut draft = AtomicFile::new(path, platform)?;
    draft.write_all(bytes)?;
    draft.commit()
}

/// Temporary file that replaces its target file atomically on commit. Dropping it without a commit removes it.
pub struct AtomicFile {
    file: File,
    temp_path: PathBuf,
    path: PathBuf,
}

impl AtomicFile {
    /// Creates a temporary file beside this path.
    pub fn new(path: &Path, platform: &dyn Platform) -> io::Result<Self> {
        let folder = parent_folder(path);
        create_private_folder(folder)?;
        let temp_path = folder.join(format!(".linchpin-{}", hex(&random::<8>(platform))));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        Ok(AtomicFile { file: options.open(&temp_path)?, temp_path, path: path.to_owned() })
    }

    /// Syncs the temporary file to disk and moves it to its final path.
    pub fn commit(self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.temp_path, &self.path)?;
        if cfg!(unix) { File::open(parent_folder(&self.path))?.sync_all() } else { Ok(()) }
    }
}

impl io::Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.temp_path); // the temporary file does not exist after a commit
    }
}

/// Returns the folder of a file.
pub(crate) fn parent_folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates a folder and its missing parents, accessible to the owner only.
pub fn create_private_folder(path: &Path) -> io::Result<()> {
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
        let temp_dir = tempfile::tempdir().unwrap();
        let (folder, file) = (temp_dir.path().join("folder"), temp_dir.path().join("folder/file"));
        write(&file, b"x", &crate::platform::SystemPlatform).unwrap();
        let check = |path: &Path| check_private(&fs::metadata(path).unwrap());
        assert_eq!((check(&folder), check(&file)), (Ok(()), Ok(())));
        for (path, mode, expected) in [
            (&file, 0o640, Err(InsecurePermissions::AccessibleToOthers)),
            (&file, 0o602, Err(InsecurePermissions::AccessibleToOthers)),
            (&file, 0o400, Ok(())),
            (&folder, 0o755, Ok(())),
            (&folder, 0o777, Err(InsecurePermissions::WritableByOthers)),
            (&folder, 0o720, Err(InsecurePermissions::WritableByOthers)),
        ] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(check(path), expected, "{mode:o}");
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        // Only root can change the owner of a file.
        if chown(&file, Some(65_534), None).is_ok() {
            assert_eq!(check(&file), Err(InsecurePermissions::OwnedByOther));
        }
    }

    #[test]
    fn a_folder_above_that_others_can_write_to_is_noticed() {
        let temp_dir = tempfile::tempdir().unwrap();
        let (above, path) = (temp_dir.path().join("above"), temp_dir.path().join("above/folder/file"));
        fs::create_dir(&above).unwrap();
        let own_uid = rustix::process::geteuid().as_raw();
        let group = fs::metadata(&above).map(|found| std::os::unix::fs::MetadataExt::gid(&found)).unwrap();
        for (mode, is_accepted) in [
            (0o755, true),
            (0o777, false),
            (0o757, false),
            (0o1777, true),
            (0o770, group == own_uid),
            (0o1770, true),
        ] {
            fs::set_permissions(&above, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(check_parents(&path).is_ok(), is_accepted, "{mode:o}");
        }
        if chown(&above, None, Some(65_534)).is_ok() {
            fs::set_permissions(&above, fs::Permissions::from_mode(0o770)).unwrap();
            let error = check_parents(&path).unwrap_err().to_string();
            assert!(error.contains(&format!("chmod go-w {}", above.display())), "{error}");
        }
        // Through a symbolic link.
        fs::set_permissions(&above, fs::Permissions::from_mode(0o777)).unwrap();
        let link = temp_dir.path().join("link");
        std::os::unix::fs::symlink(&above, &link).unwrap();
        fs::create_dir(above.join("folder")).unwrap();
        assert!(check_parents(&link.join("folder/file")).is_err());
        let inner = temp_dir.path().join("inner");
        std::os::unix::fs::symlink(above.join("folder"), &inner).unwrap();
        assert!(check_parents(&inner.join("file")).is_err());
        assert!(check_parents(&inner).is_err(), "a link at the path itself");
        // A link in a folder that others can write to, which leads to a folder that they cannot write to.
        let safe = temp_dir.path().join("safe");
        fs::create_dir(&safe).unwrap();
        std::os::unix::fs::symlink(&safe, above.join("middle")).unwrap();
        let first = temp_dir.path().join("first");
        std::os::unix::fs::symlink("above/middle", &first).unwrap();
        assert!(check_parents(&first.join("file")).is_err());
        fs::set_permissions(&above, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(check_parents(&first.join("file")).is_ok());
        std::os::unix::fs::symlink("circle", temp_dir.path().join("circle")).unwrap();
        assert!(check_parents(&temp_dir.path().join("circle/file")).is_ok(), "the path does not exist");
    }

    #[test]
    fn a_folder_above_of_another_user_is_noticed() {
        let temp_dir = tempfile::tempdir().unwrap();
        let above = temp_dir.path().join("above");
        fs::create_dir(&above).unwrap();
        assert!(check_parents(&above.join("file")).is_ok());
        // Only root can change the owner of a folder.
        if chown(&above, Some(12_345), None).is_ok() {
            let error = check_parents(&above.join("file")).unwrap_err().to_string();
            assert!(
                error.contains(&format!("`{}` above it belongs to another user", above.display())),
                "{error}"
            );
            let (safe, link) = (temp_dir.path().join("safe"), temp_dir.path().join("link"));
            fs::create_dir(&safe).unwrap();
            std::os::unix::fs::symlink(&safe, &link).unwrap();
            assert!(check_parents(&link).is_ok());
            std::os::unix::fs::lchown(&link, Some(12_345), None).unwrap();
            assert!(check_parents(&link).is_err());
        }
    }
}
