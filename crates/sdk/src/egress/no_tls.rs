//! Placeholder for outgoing TLS without the feature `tls`: `https` connections fail with an error.

use tokio::net::TcpStream;

use super::BoxFuture;
use super::dial::BoxedStream;
use super::error::{EgressError, EgressErrorKind};
use super::target::Host;

#[derive(Clone, Default)]
pub(super) struct TlsConnector {}

impl TlsConnector {
    #[expect(clippy::unused_self, reason = "same signature as with TLS")]
    pub(super) fn handshake(&self, host: &Host, _: TcpStream) -> BoxFuture<Result<BoxedStream, EgressError>> {
        let text = format!(
            "no TLS connection to `{host}`: this program was built without the feature `tls` of linchpin"
        );
        Box::pin(std::future::ready(Err(EgressError::new(EgressErrorKind::Tls, text))))
    }
}
