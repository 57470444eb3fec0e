//! Key file: the root keys, and the key that signs audit checkpoints. Only its owner may read it.
//!
//! ```text
//! # linchpin keys
//! audit 6f0c…
//! root 1 93ab…
//! root 11400714819323198485 01ff…
//! ```
//!
//! The last root key is in use. A process that changes the file holds the lock beside it, and never writes a file that
//! loses a root key unknown to it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zeroize::Zeroizing;

use super::RootKey;
use super::seal::SealingKey;
use crate::platform::{Platform, random};
use crate::private_file;
use crate::secrets::hub_secrets::HubSecrets;
use crate::text::{hex, unhex};

const HEADER: &str = "# linchpin keys";
const MAX_FILE_BYTES: u64 = 64 << 10;

/// Reason why the key file cannot be read, written or used. It contains nothing of the contents.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The key file cannot be read or written.
    #[error("the key file `{}` cannot be used: {error}", path.display())]
    Io {
        /// Path of the key file.
        path: PathBuf,
        /// I/O error.
        error: io::Error,
    },
    /// Other users can access the key file.
    #[error("the key file `{}` is not private: {reason}", path.display())]
    InsecurePermissions {
        /// Path of the key file.
        path: PathBuf,
        /// Reason why the key file is not private.
        reason: private_file::InsecurePermissions,
    },
    /// Other users can replace the key file, because they can write to a folder above it or own it.
    #[error("the key file `{}` cannot be used: {reason}", path.display())]
    InsecureParent {
        /// Path of the key file.
        path: PathBuf,
        /// Folder above the key file that other users can change, with the reason.
        reason: private_file::InsecureParent,
    },
    /// The file is not a key file.
    #[error("`{}` is not a key file (line {line}): use the key file that the hub created, or a copy of it", path.display())]
    Invalid {
        /// Path of the key file.
        path: PathBuf,
        /// Number of the invalid line.
        line: usize,
    },
}

/// Contents of the key file: the root keys of the vault, and the key that signs audit checkpoints.
#[derive(Clone)]
pub struct KeyFile {
    path: PathBuf,
    /// Seed of the key that signs audit checkpoints, chain heads and backups.
    pub audit: Zeroizing<[u8; 32]>,
    /// Root keys, which encrypt tenant keys, oldest first; the last one is in use.
    roots: Vec<RootKey>,
    hub_secrets: Arc<HubSecrets>,
}

/// Lock file beside a key file. The file is changed only by the process that holds it.
#[derive(Debug)]
pub struct KeyFileLock {
    _file: File,
}

impl KeyFile {
    /// Reads the key file, or creates it if it does not exist. Returns whether it was created.
    pub fn open(path: &Path, platform: &dyn Platform) -> Result<(Self, bool), KeyFileError> {
        private_file::check_parents(path)
            .map_err(|reason| KeyFileError::InsecureParent { path: path.to_owned(), reason })?;
        if let Some(found) = Self::read(path)? {
            return Ok((found, false));
        }
        let failed = |error| KeyFileError::Io { path: path.to_owned(), error };
        // Two hubs that start concurrently must not create two files: the second finds the file of the first.
        let lock = lock_file(path).map_err(failed)?;
        lock.lock().map_err(failed)?;
        if let Some(found) = Self::read(path)? {
            return Ok((found, false));
        }
        let (path, audit) = (path.to_owned(), Zeroizing::new(random(platform)));
        let key_file = Self::new(path, audit, vec![RootKey::new(platform)]);
        key_file.save(platform).map_err(failed)?;
        Ok((key_file, true))
    }

    /// Reads the key file, if it exists.
    fn read(path: &Path) -> Result<Option<Self>, KeyFileError> {
        let failed = |error| KeyFileError::Io { path: path.to_owned(), error };
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(failed)?,
        };
        private_file::check_private(&file.metadata().map_err(failed)?)
            .map_err(|reason| KeyFileError::InsecurePermissions { path: path.to_owned(), reason })?;
        let mut text = Zeroizing::new(String::new());
        file.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(failed)?;
        Self::parse(path, &text).map(Some)
    }

    /// Acquires the lock file beside the key file. Fails with `WouldBlock` if another process holds it.
    pub fn lock(&self) -> io::Result<KeyFileLock> {
        let file = lock_file(&self.path)?;
        match file.try_lock() {
            Ok(()) => Ok(KeyFileLock { _file: file }),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Reads the key file again: another hub may have rotated the root key.
    pub fn reload(&mut self) -> Result<(), KeyFileError> {
        let failed = |error| KeyFileError::Io { path: self.path.clone(), error };
        let found = Self::read(&self.path)?.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        if found.audit != self.audit {
            return Err(failed(io::Error::other("the file was replaced by the key file of another hub")));
        }
        self.hub_secrets.add(key_bytes(&found.roots));
        self.roots = found.roots;
        Ok(())
    }

    /// Parses the text of a key file; `path` is where it is stored.
    pub fn parse(path: &Path, text: &str) -> Result<Self, KeyFileError> {
        let broken = |line| KeyFileError::Invalid { path: path.to_owned(), line };
        let (mut audit, mut roots) = (None, Vec::<RootKey>::new());
        if text.lines().next() != Some(HEADER) {
            return Err(broken(1));
        }
        for (index, line) in text.lines().enumerate().skip(1).filter(|(_, line)| !line.trim().is_empty()) {
            let mut words = line.split_ascii_whitespace();
            let (kind, last) = (words.next(), words.next_back());
            let key = last.and_then(decode_key).ok_or_else(|| broken(index + 1))?;
            let id = words.next().map(str::parse);
            match (kind, id, words.next()) {
                (Some("audit"), None, None) if audit.is_none() => audit = Some(key),
                (Some("root"), Some(Ok(id)), None) if roots.iter().all(|root| root.id != id) => {
                    roots.extend(SealingKey::from_slice(&*key).map(|key| RootKey { id, key }));
                }
                _ => return Err(broken(index + 1)),
            }
        }
        let audit = audit.filter(|_| !roots.is_empty()).ok_or_else(|| broken(text.lines().count()))?;
        Ok(Self::new(path.to_owned(), audit, roots))
    }

    /// Returns the root key in use, which encrypts the keys of tenants.
    pub fn root(&self) -> &RootKey {
        self.roots.last().expect("a key file has a root key")
    }

    /// Finds a root key by its id.
    pub fn find_root(&self, id: u64) -> Option<&RootKey> {
        self.roots.iter().find(|root| root.id == id)
    }

    fn new(path: PathBuf, audit: Zeroizing<[u8; 32]>, roots: Vec<RootKey>) -> Self {
        let hub_secrets = HubSecrets::new(std::iter::once(&*audit).chain(key_bytes(&roots)));
        KeyFile { path, audit, roots, hub_secrets: Arc::new(hub_secrets) }
    }

    /// Returns every key that was ever in the file, to be redacted in the results of servers.
    pub(crate) fn hub_secrets(&self) -> &Arc<HubSecrets> {
        &self.hub_secrets
    }

    /// Adds a root key to the key file, which is used from now on. The previous ones stay as long as they wrap a tenant
    /// key.
    pub fn add_root(&mut self, lock: &KeyFileLock, platform: &dyn Platform) -> io::Result<()> {
        let roots = self.roots.iter().cloned().chain([RootKey::new(platform)]).collect();
        self.replace_roots(lock, roots, platform)
    }

    /// Removes all root keys except the one in use.
    pub fn remove_old_roots(&mut self, lock: &KeyFileLock, platform: &dyn Platform) -> io::Result<()> {
        let roots = vec![self.root().clone()];
        self.replace_roots(lock, roots, platform)
    }

    /// Writes the key file with other root keys. Fails if the file contains root keys unknown to this process: they
    /// would be lost.
    fn replace_roots(
        &mut self,
        _: &KeyFileLock,
        roots: Vec<RootKey>,
        platform: &dyn Platform,
    ) -> io::Result<()> {
        let found = Self::read(&self.path).map_err(io::Error::other)?;
        let is_known = |root: &RootKey| {
            self.find_root(root.id).is_some_and(|known| known.key.bytes() == root.key.bytes())
        };
        if !found.is_some_and(|found| found.audit == self.audit && found.roots.iter().all(is_known)) {
            let text = "the file was changed by another process: run `linchpin key rotate` again";
            return Err(io::Error::other(text));
        }
        self.hub_secrets.add(key_bytes(&roots)); // before the keys are written
        let before = std::mem::replace(&mut self.roots, roots);
        self.save(platform).inspect_err(|_| self.roots = before)
    }

    /// Writes the key file to its path.
    pub fn save(&self, platform: &dyn Platform) -> io::Result<()> {
        private_file::write(&self.path, self.text().as_bytes(), platform)
    }

    /// Returns the key file as text, with all keys, for writing it.
    pub fn text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(format!("{HEADER}\naudit {}\n", *encode_key(&self.audit)));
        for root in &self.roots {
            text.push_str("root ");
            text.push_str(&root.id.to_string());
            text.push(' ');
            text.push_str(&encode_key(root.key.bytes()));
            text.push('\n');
        }
        text
    }
}

/// Opens the lock file of a key file, or creates it.
fn lock_file(path: &Path) -> io::Result<File> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    private_file::create_private_folder(private_file::parent_folder(path))?;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(PathBuf::from(name))
}

fn key_bytes(roots: &[RootKey]) -> impl Iterator<Item = &[u8; 32]> {
    roots.iter().map(|root| root.key.bytes())
}

/// Encodes a key for the key file, in memory that is wiped on drop.
fn encode_key(key: &[u8; 32]) -> Zeroizing<String> {
    Zeroizing::new(hex(key))
}

/// Decodes a hexadecimal key of the key file, in memory that is wiped on drop.
fn decode_key(text: &str) -> Option<Zeroizing<[u8; 32]>> {
    let bytes = Zeroizing::new(unhex(text)?);
    Some(Zeroizing::new(bytes.as_slice().try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;
    use crate::id::TenantId;
    use crate::platform::SystemPlatform;

    fn open(folder: &TempDir) -> Result<(KeyFile, bool), String> {
        KeyFile::open(&folder.path().join("keys"), &SystemPlatform).map_err(|error| error.to_string())
    }

    #[test]
    fn it_is_made_once_and_rotated() {
        let folder = tempfile::tempdir().unwrap();
        let (mut keys, was_created) = open(&folder).unwrap();
        assert!(was_created);
        let first = keys.root().id;
        let (_, wrapped) = keys.root().create_tenant_key(&SystemPlatform, TenantId::from_u128(1), 0);
        let lock = keys.lock().unwrap();
        assert_eq!(keys.lock().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        keys.add_root(&lock, &SystemPlatform).unwrap();
        let (mut again, was_created) = open(&folder).unwrap();
        assert!(!was_created && again.root().id == keys.root().id && *again.audit == *keys.audit);
        let opened = again.find_root(first).unwrap().unwrap(&wrapped).unwrap();
        let wrapped = again.root().wrap(&SystemPlatform, &opened);
        again.remove_old_roots(&lock, &SystemPlatform).unwrap();
        let (last, _) = open(&folder).unwrap();
        assert!(last.find_root(first).is_none() && last.root().unwrap(&wrapped).is_ok());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "the file and its lock");
    }

    #[test]
    fn root_keys_that_are_not_known_here_are_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let (mut one, _) = open(&folder).unwrap();
        let (mut other, _) = open(&folder).unwrap();
        let lock = one.lock().unwrap();
        one.add_root(&lock, &SystemPlatform).unwrap();
        let written = fs::read_to_string(folder.path().join("keys")).unwrap();
        for changed in
            [other.add_root(&lock, &SystemPlatform), other.remove_old_roots(&lock, &SystemPlatform)]
        {
            assert!(changed.unwrap_err().to_string().contains("changed by another process"));
        }
        assert_eq!(fs::read_to_string(folder.path().join("keys")).unwrap(), written);
        other.reload().unwrap();
        assert_eq!(other.root().id, one.root().id);
        other.add_root(&lock, &SystemPlatform).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn only_its_owner_reads_it() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        open(&folder).unwrap();
        let path = folder.path().join("keys");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = open(&folder).err().unwrap();
        assert!(
            error.starts_with("the key file")
                && error.contains("other users can read")
                && error.ends_with("`chmod 600`"),
            "{error}"
        );
    }

    #[test]
    fn what_is_no_key_file_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        open(&folder).unwrap();
        let path = folder.path().join("keys");
        let good = fs::read_to_string(&path).unwrap();
        let root = good.lines().last().unwrap();
        for (text, line) in [
            (String::new(), 1),
            ("canary".to_owned(), 1),
            (HEADER.to_owned(), 1),
            (good.replace("audit", "audio"), 2),
            (good.replace("root ", "root x"), 3),
            (good[..good.len() - 3].to_owned(), 3),
            (format!("{good}{root}\n"), 4),
            (format!("{good}root 2 canary\n"), 4),
        ] {
            fs::write(&path, &text).unwrap();
            let error = open(&folder).err().unwrap();
            assert!(error.contains(&format!("is not a key file (line {line})")), "{error}");
            assert!(!error.contains("canary"));
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }
}
