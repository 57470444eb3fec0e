//! TLS certificate of the hub, reloaded when its files change.

use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use linchpin::auth::Secret;
use linchpin::server::web::Tls;
use linchpin_hub_core::private_file;

use super::CONFIG_POLL;
use crate::config::{ConfigError, Stamp, TlsFiles, WatchedConfig, stamp};
use crate::error::CliError;

/// TLS certificate that the hub currently uses, and the fingerprints of its files.
pub(super) struct Certificate {
    pub(super) tls: Tls,
    stamps: FileStamps,
}

/// Paths of the TLS certificate and key, and their fingerprints when they were read.
#[derive(PartialEq, Eq)]
struct FileStamps(TlsFiles, [Option<Stamp>; 2]);

impl FileStamps {
    fn current(files: TlsFiles) -> Self {
        let stamps = [&files.certificate, &files.key].map(|path| stamp(path));
        FileStamps(files, stamps)
    }
}

impl Certificate {
    pub(super) fn open(files: TlsFiles) -> Result<Self, ConfigError> {
        let stamps = FileStamps::current(files);
        let tls = with_files(&stamps.0, Tls::new)?;
        Ok(Certificate { tls, stamps })
    }

    /// Reloads the certificate whenever its files change, until `end`.
    pub(super) async fn watch_files(
        mut self,
        watched: Arc<WatchedConfig>,
        end: impl Future<Output = ()>,
    ) -> Result<(), CliError> {
        let mut end = std::pin::pin!(end);
        while tokio::time::timeout(CONFIG_POLL, &mut end).await.is_err() {
            let Some(files) = watched.config().tls.clone() else { continue };
            // Take the fingerprints before reading, so that a change in between is detected by the next poll.
            let stamps = FileStamps::current(files);
            if stamps == self.stamps {
                continue;
            }
            match with_files(&stamps.0, |certificate, key| self.tls.replace(certificate, key)) {
                Ok(()) => tracing::info!("TLS certificate reloaded"),
                Err(problem) => {
                    tracing::error!(%problem, "invalid TLS certificate; using the previous one");
                }
            }
            self.stamps = stamps;
        }
        Ok(())
    }
}

/// Reads the certificate and key files and passes their contents to `load`.
fn with_files<T>(
    files: &TlsFiles,
    load: impl FnOnce(&[u8], &[u8]) -> linchpin::Result<T>,
) -> Result<T, ConfigError> {
    let TlsFiles { certificate, key } = files;
    let text = read(certificate, false)?;
    let secret = Secret::new(read(key, true)?);
    let invalid_pair = |error| {
        ConfigError::new(
            certificate,
            format!("the certificate cannot be used with the key `{}`: {error}", key.display()),
        )
    };
    load(text.as_bytes(), secret.expose().as_bytes()).map_err(invalid_pair)
}

fn read(path: &Path, is_secret: bool) -> Result<String, ConfigError> {
    let failed = |error: io::Error| ConfigError::new(path, format!("the file cannot be read: {error}"));
    let metadata = fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(ConfigError::new(
            path,
            "the path does not lead to a regular file: set the path of a PEM file",
        ));
    }
    if is_secret {
        let insecure =
            |reason| ConfigError::new(path, format!("insecure permissions of the TLS key: {reason}"));
        private_file::check_private(&metadata).map_err(insecure)?;
    }
    fs::read_to_string(path).map_err(failed)
}
