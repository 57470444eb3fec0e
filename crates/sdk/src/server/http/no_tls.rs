//! Without the feature `tls` there is none.

use std::io;

use super::watch::WatchedIo;

/// Nobody has one.
#[derive(Clone)]
pub(super) enum Tls {}

impl Tls {
    #[expect(clippy::unused_async, reason = "the other one waits")]
    pub(super) async fn secure(&self, _: WatchedIo) -> io::Result<WatchedIo> {
        match *self {}
    }
}
