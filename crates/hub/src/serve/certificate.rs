//! TLS certificate of the hub, reloaded when its files change.

use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use linchpin::auth::Secret;
use linchpin::server::web::Tls;
use linchpin_hub_core::private_file;

use super::LOOK;
use crate::config::{Pair, Problem, Stamp, Watched, stamp};
use crate::error::Failure;

/// Active certificate and the fingerprints of its files.
pub(super) struct Certificate {
    pub(super) tls: Tls,
    seen: Seen,
}

/// Certificate files and their fingerprints.
#[derive(PartialEq, Eq)]
struct Seen(Pair, [Option<Stamp>; 2]);

impl Seen {
    fn now(files: Pair) -> Self {
        let stamps = [&files.certificate, &files.key].map(|path| stamp(path));
        Seen(files, stamps)
    }
}

impl Certificate {
    pub(super) fn open(files: Pair) -> Result<Self, Problem> {
        let seen = Seen::now(files);
        let tls = with(&seen.0, Tls::new)?;
        Ok(Certificate { tls, seen })
    }

    /// Reloads the certificate whenever its files change, until `end`.
    pub(super) async fn follow(
        mut self,
        watched: Arc<Watched>,
        end: impl Future<Output = ()>,
    ) -> Result<(), Failure> {
        let mut end = std::pin::pin!(end);
        while tokio::time::timeout(LOOK, &mut end).await.is_err() {
            let Some(files) = watched.config().tls.clone() else { continue };
            // Take the fingerprints before reading, so that a change in between is detected by the next poll.
            let seen = Seen::now(files);
            if seen == self.seen {
                continue;
            }
            match with(&seen.0, |certificate, key| self.tls.replace(certificate, key)) {
                Ok(()) => tracing::info!("TLS certificate reloaded"),
                Err(problem) => {
                    tracing::error!(%problem, "invalid TLS certificate; using the previous one");
                }
            }
            self.seen = seen;
        }
        Ok(())
    }
}

/// Reads both files and passes their contents to `using`.
fn with<T>(files: &Pair, using: impl FnOnce(&[u8], &[u8]) -> linchpin::Result<T>) -> Result<T, Problem> {
    let Pair { certificate, key } = files;
    let text = read(certificate, false)?;
    let secret = Secret::new(read(key, true)?);
    let wrong = |error| Problem::new(certificate, format!("with its key `{}`: {error}", key.display()));
    using(text.as_bytes(), secret.expose().as_bytes()).map_err(wrong)
}

fn read(path: &Path, is_secret: bool) -> Result<String, Problem> {
    let failed = |error: io::Error| Problem::new(path, format!("cannot be read: {error}"));
    let metadata = fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(Problem::new(path, "is not a regular file: set the path of a PEM file"));
    }
    if is_secret {
        let exposed = |why| Problem::new(path, format!("insecure permissions of the TLS key: {why}"));
        private_file::check(&metadata).map_err(exposed)?;
    }
    fs::read_to_string(path).map_err(failed)
}
