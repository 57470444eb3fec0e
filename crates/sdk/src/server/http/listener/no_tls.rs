//! Placeholder for the TLS of a listener, without the feature `tls`.

use std::io;

use super::watchdog::MonitoredIo;

/// Placeholder for the TLS settings of a listener, without the feature `tls`; never constructed.
#[derive(Clone)]
pub(in crate::server::http) enum Tls {}

impl Tls {
    #[expect(clippy::unused_async, reason = "the TLS implementation awaits")]
    pub(in crate::server::http) async fn handshake(&self, _: MonitoredIo) -> io::Result<MonitoredIo> {
        match *self {}
    }
}
