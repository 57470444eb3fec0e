//! The certificate of the hub: read from its files, and read again when they have changed.

use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use linchpin::auth::Secret;
use linchpin::server::web::Tls;
use linchpin_hub_core::private;

use super::LOOK;
use crate::config::{Pair, Problem, Stamp, Watched, stamp};
use crate::failure::Failure;

/// A certificate that is in use, and the files as they were when it was read.
pub(super) struct Certificate {
    pub(super) tls: Tls,
    seen: Seen,
}

/// Which files, and what tells one state of them from another.
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

    /// Takes over what the files hold, whenever that changes.
    pub(super) async fn follow(
        mut self,
        watched: Arc<Watched>,
        end: impl Future<Output = ()>,
    ) -> Result<(), Failure> {
        let mut end = std::pin::pin!(end);
        while tokio::time::timeout(LOOK, &mut end).await.is_err() {
            let Some(files) = watched.config().tls.clone() else { continue };
            // Before they are read: a change in between is seen the next time.
            let seen = Seen::now(files);
            if seen == self.seen {
                continue;
            }
            match with(&seen.0, |certificate, key| self.tls.replace(certificate, key)) {
                Ok(()) => tracing::info!("the certificate has changed"),
                Err(problem) => {
                    tracing::error!(%problem, "the certificate cannot be used; the one before stays in force");
                }
            }
            self.seen = seen;
        }
        Ok(())
    }
}

/// Has what is in the files used.
fn with<T>(files: &Pair, using: impl FnOnce(&[u8], &[u8]) -> linchpin::Result<T>) -> Result<T, Problem> {
    let Pair { certificate, key } = files;
    let text = read(certificate, false)?;
    let secret = Secret::new(read(key, true)?);
    let wrong = |error| Problem::new(certificate, format!("with its key `{}`: {error}", key.display()));
    using(text.as_bytes(), secret.expose().as_bytes()).map_err(wrong)
}

fn read(path: &Path, is_secret: bool) -> Result<String, Problem> {
    let failed = |error: io::Error| Problem::new(path, format!("it cannot be read: {error}"));
    let metadata = fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(Problem::new(path, "it is no file: name one with PEM"));
    }
    if is_secret {
        let exposed =
            |why| Problem::new(path, format!("it is the key of the hub, and not yours alone: {why}"));
        private::check(&metadata).map_err(exposed)?;
    }
    fs::read_to_string(path).map_err(failed)
}
