//! Token store in files: encrypted, written atomically, and locked across processes.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::TokenStore;
use crate::auth::error::{AuthError, AuthErrorKind};
use crate::auth::secret::Secret;
use crate::auth::{AuthFuture, boxed};
use crate::jose::encode;

const NONCE_LEN: usize = 24;
/// Maximum size of a stored token record, in bytes.
const MAX_RECORD_BYTES: u64 = 1 << 20;
/// How long to wait for a lock held by another process.
const LOCK_TIMEOUT: Duration = Duration::from_mins(1);
/// Time between two attempts to take a lock held by another process.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Token store in a directory, encrypted with XChaCha20-Poly1305. The key is in a file that only its owner can read.
#[derive(Clone)]
pub struct FileStore(Arc<Inner>);

struct Inner {
    directory: PathBuf,
    cipher: XChaCha20Poly1305,
}

impl FileStore {
    /// Opens a token store with encrypted files in a directory. Creates the directory and the key if they do not exist.
    pub fn open(directory: impl Into<PathBuf>, key_file: impl AsRef<Path>) -> Result<Self, AuthError> {
        let (directory, key_file) = (directory.into(), key_file.as_ref());
        let open = || -> io::Result<_> {
            create_private_dir(&directory)?;
            key_file.parent().map_or(Ok(()), create_private_dir)?;
            let key = load_or_create_key(key_file)?;
            Ok(XChaCha20Poly1305::new(&(*key).into()))
        };
        let cipher = open().map_err(|error| store_error(&directory, "opened", &error))?;
        Ok(FileStore(Arc::new(Inner { directory, cipher })))
    }
}

fn store_error(path: &Path, operation: &str, error: &io::Error) -> AuthError {
    let text = format!("the token store `{}` cannot be {operation}: {error}", path.display());
    AuthError::new(AuthErrorKind::Store, text)
}

fn create_private_dir(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Returns the options to create a file that only its owner can read.
fn private_file_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn load_or_create_key(path: &Path) -> io::Result<Zeroizing<[u8; 32]>> {
    let mut key = Zeroizing::new([0; 32]);
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            getrandom::fill(&mut *key).map_err(io::Error::other)?;
            // Write to a temporary file and link it: a concurrent process finds a complete key, or loses the race.
            let temp_path = path.with_extension(crate::server::random_id());
            write_new(&temp_path, &[&*key])?;
            let linked = fs::hard_link(&temp_path, path);
            fs::remove_file(&temp_path)?;
            match linked {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    return load_or_create_key(path);
                }
                linked => linked?,
            }
        }
        Ok(mut file) => {
            #[cfg(unix)]
            if std::os::unix::fs::MetadataExt::mode(&file.metadata()?) & 0o077 != 0 {
                let text =
                    format!("the key file `{}` is readable by others: run chmod 600 on it", path.display());
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
            }
            file.read_exact(&mut *key).map_err(|error| {
                io::Error::new(
                    error.kind(),
                    format!("the key file `{}` must contain a key of 32 bytes", path.display()),
                )
            })?;
        }
        Err(error) => return Err(error),
    }
    Ok(key)
}

/// Creates a file and syncs it to disk.
fn write_new(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let mut file = private_file_options().create_new(true).open(path)?;
    parts.iter().try_for_each(|part| file.write_all(part))?;
    file.sync_all()
}

impl Inner {
    fn path(&self, key: &str, extension: &str) -> PathBuf {
        let digest = Sha256::digest(key);
        self.directory.join(format!("{}.{extension}", encode(&digest[..16])))
    }

    fn load(&self, key: &str) -> io::Result<Option<Secret>> {
        let mut sealed = Vec::new();
        match File::open(self.path(key, "sealed")) {
            Ok(file) => file.take(MAX_RECORD_BYTES).read_to_end(&mut sealed)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let plaintext = sealed.split_first_chunk::<NONCE_LEN>().and_then(|(nonce, sealed)| {
            let payload = Payload { msg: sealed, aad: key.as_bytes() };
            String::from_utf8(self.cipher.decrypt(&XNonce::from(*nonce), payload).ok()?).ok()
        });
        if plaintext.is_none() {
            // The record is lost; treat it as absent, so that it does not block a new sign-in.
            tracing::warn!(directory = %self.directory.display(), "ignoring an undecryptable token record");
        }
        Ok(plaintext.map(Secret::from))
    }

    /// Stores a token record, encrypted, through a temporary file, so that a complete record always exists.
    fn save(&self, key: &str, record: &Secret) -> io::Result<()> {
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).map_err(io::Error::other)?;
        let payload = Payload { msg: record.expose().as_bytes(), aad: key.as_bytes() };
        let sealed = self.cipher.encrypt(&XNonce::from(nonce), payload);
        let sealed = sealed.map_err(|_| io::Error::other("encryption failed"))?;
        let temp_path = self.path(key, &crate::server::random_id());
        write_new(&temp_path, &[&nonce, &sealed])?;
        fs::rename(&temp_path, self.path(key, "sealed"))?;
        // On Unix the directory must be synced, too.
        if cfg!(unix) { File::open(&self.directory)?.sync_all() } else { Ok(()) }
    }

    fn remove(&self, key: &str) -> io::Result<()> {
        match fs::remove_file(self.path(key, "sealed")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Takes the file lock of a token record, unless another process holds it.
    fn try_lock(&self, key: &str) -> io::Result<Option<File>> {
        let file = private_file_options().create(true).truncate(false).open(self.path(key, "lock"))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl FileStore {
    /// Runs file operations on the blocking thread pool.
    fn blocking<'a, T: Send + 'static>(
        &'a self,
        operation: &'static str,
        work: impl FnOnce(&Inner) -> io::Result<T> + Send + 'static,
    ) -> AuthFuture<'a, T> {
        let inner = self.0.clone();
        boxed(async move {
            let done = tokio::task::spawn_blocking(move || {
                work(&inner).map_err(|error| store_error(&inner.directory, operation, &error))
            });
            done.await.unwrap_or_else(|error| Err(AuthError::new(AuthErrorKind::Store, error.to_string())))
        })
    }
}

impl TokenStore for FileStore {
    fn load<'a>(&'a self, key: &'a str) -> AuthFuture<'a, Option<Secret>> {
        let key = key.to_owned();
        self.blocking("read", move |inner| inner.load(&key))
    }

    fn save<'a>(&'a self, key: &'a str, record: Secret) -> AuthFuture<'a, ()> {
        let key = key.to_owned();
        self.blocking("written", move |inner| inner.save(&key, &record))
    }

    fn remove<'a>(&'a self, key: &'a str) -> AuthFuture<'a, ()> {
        let key = key.to_owned();
        self.blocking("removed", move |inner| inner.remove(&key))
    }

    fn lock<'a>(&'a self, key: &'a str) -> AuthFuture<'a, Box<dyn Send>> {
        boxed(async move {
            let started = tokio::time::Instant::now();
            loop {
                let key = key.to_owned();
                if let Some(lock) = self.blocking("locked", move |inner| inner.try_lock(&key)).await? {
                    return Ok(Box::new(lock) as Box<dyn Send>);
                }
                if started.elapsed() > LOCK_TIMEOUT {
                    let lock_timeout_error = io::Error::other(
                        "another process has held the lock for a minute: end it, or try again later",
                    );
                    return Err(store_error(&self.0.directory, "locked", &lock_timeout_error));
                }
                tokio::time::sleep(LOCK_POLL_INTERVAL).await;
            }
        })
    }
}
