//! Placeholder for TLS without the feature `tls`.

use std::io;

use super::watch::WatchedIo;

/// Never constructed.
#[derive(Clone)]
pub(super) enum Tls {}

impl Tls {
    #[expect(clippy::unused_async, reason = "the TLS implementation awaits")]
    pub(super) async fn secure(&self, _: WatchedIo) -> io::Result<WatchedIo> {
        match *self {}
    }
}
