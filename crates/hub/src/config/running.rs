//! Lock of the data directory, and the file that announces the running hub to commands.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use linchpin::auth::Secret;
use linchpin_hub_core::platform::SystemPlatform;
use linchpin_hub_core::private_file;
use serde_json::{Value, json};

use super::paths::{HubPaths, unusable_path};
use crate::error::{CliError, CliErrorKind};

/// Maximum attempts to lock the data directory: a command that checks for a running hub holds the lock for a moment.
const MAX_LOCK_ATTEMPTS: u32 = 20;
/// Delay between two attempts to lock the data directory.
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(10);

impl HubPaths {
    /// Returns the path of the file that announces the running hub (`hub.json`).
    fn running_file(&self) -> PathBuf {
        self.data().join("hub.json")
    }

    /// Locks the data directory for this process. Only one hub may use a data directory.
    pub(crate) fn lock(&self) -> Result<DataDirLock, CliError> {
        let path = self.data().join("hub.lock");
        let failed = |error: io::Error| unusable_path(&path, &error);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        for _ in 0..MAX_LOCK_ATTEMPTS {
            match file.try_lock() {
                Ok(()) => return Ok(DataDirLock { _file: file, running: self.running_file() }),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_RETRY_DELAY),
            }
        }
        let address = match RunningHub::read(&self.running_file()) {
            Some(RunningHub { url, pid, .. }) => format!(" at {url} (process {pid})"),
            None => String::new(),
        };
        let text = format!(
            "a hub is already running on `{}`{address}: use or stop it, or choose another directory with --data-dir",
            self.data().display()
        );
        Err(CliError::new(CliErrorKind::HubRunning, text))
    }

    /// Returns the path of the socket through which `linchpin gateway` connects clients to the running hub.
    pub(crate) fn gateway_socket(&self) -> PathBuf {
        self.data().join("gateway.sock")
    }

    /// Returns why `hub.json` is not trusted, if its permissions are insecure.
    pub(crate) fn insecure_permissions(&self) -> Option<private_file::InsecurePermissions> {
        private_file::check_private(&std::fs::metadata(self.running_file()).ok()?).err()
    }

    /// Returns URL and token of the hub that runs on this data directory, if one does. The file of a dead hub is
    /// ignored, since another process may listen on its address now: a running hub holds the lock.
    pub(crate) fn running(&self) -> Option<RunningHub> {
        let running = RunningHub::read(&self.running_file())?;
        let file = File::open(self.data().join("hub.lock")).ok()?;
        matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)).then_some(running)
    }
}

/// Lock of the data directory, held until it is dropped.
#[derive(Debug)]
pub(crate) struct DataDirLock {
    _file: File,
    running: PathBuf,
}

impl DataDirLock {
    /// Writes the file from which commands learn the URL of the running hub.
    pub(crate) fn announce(&self, running: &RunningHub) -> io::Result<()> {
        running.write(&self.running)
    }
}

impl Drop for DataDirLock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.running); // it may not exist
    }
}

/// Address and token of the hub that is running on the data directory.
#[derive(Debug, Clone)]
pub(crate) struct RunningHub {
    /// Base URL of the hub.
    pub(crate) url: String,
    /// Token that authenticates as the local user until the process exits.
    pub(crate) token: Secret,
    /// Process id of the hub.
    pub(crate) pid: u32,
}

impl RunningHub {
    fn read(path: &Path) -> Option<Self> {
        // Another user who can write the file could redirect requests and tokens to another address.
        let mut file = File::open(path).ok()?;
        private_file::check_private(&file.metadata().ok()?).ok()?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).ok()?;
        let read: Value = serde_json::from_slice(&text).ok()?;
        Some(RunningHub {
            url: read["url"].as_str()?.to_owned(),
            token: Secret::new(read["token"].as_str()?),
            pid: u32::try_from(read["pid"].as_u64()?).ok()?,
        })
    }

    /// Signals the running hub to reload the configuration file now.
    pub(crate) fn signal_reload(&self) -> Result<(), CliError> {
        let pid = i32::try_from(self.pid).ok().and_then(rustix::process::Pid::from_raw);
        let signalled =
            pid.map_or(Ok(()), |pid| rustix::process::kill_process(pid, rustix::process::Signal::HUP));
        signalled.map_err(|error| {
            CliError::new(
                CliErrorKind::Other,
                format!("failed to signal the hub to reload its configuration: {error}"),
            )
        })
    }

    /// Writes URL, token and process id of the hub to the file that announces it, with mode 0600.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let text = json!({ "url": self.url, "token": self.token.expose(), "pid": self.pid });
        private_file::write(path, format!("{text}\n").as_bytes(), &SystemPlatform)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::LocationArgs;
    use super::*;

    #[test]
    fn one_hub_for_each_directory() {
        let folder = tempfile::tempdir().unwrap();
        let location = LocationArgs { data_dir: Some(folder.path().join("data")), ..LocationArgs::default() };
        let paths = HubPaths::resolve(&location, &|_| None).unwrap();
        assert!(paths.running().is_none());
        paths.create().unwrap();
        assert_eq!(std::fs::metadata(paths.data()).unwrap().permissions().mode() & 0o777, 0o700);
        let lock = paths.lock().unwrap();
        let error = paths.lock().unwrap_err().to_string();
        assert!(error.contains("data`: use or stop it"), "{error}");
        assert!(paths.running().is_none());

        let token = Secret::new("canary");
        lock.announce(&RunningHub { url: "http://127.0.0.1:1".into(), token, pid: 7 }).unwrap();
        let error = paths.lock().unwrap_err().to_string();
        assert!(error.contains("data` at http://127.0.0.1:1 (process 7): use or stop it"), "{error}");
        assert!(!error.contains("canary"));
        let running = paths.running().unwrap();
        assert_eq!((&*running.url, running.token.expose(), running.pid), ("http://127.0.0.1:1", "canary", 7));
        assert_eq!(std::fs::metadata(paths.running_file()).unwrap().permissions().mode() & 0o777, 0o600);
        drop(lock);
        assert!(paths.running().is_none() && !paths.running_file().exists());

        // A file left behind by a killed hub is ignored.
        running.write(&paths.running_file()).unwrap();
        assert!(paths.running().is_none());
        paths.lock().unwrap();
    }
}
