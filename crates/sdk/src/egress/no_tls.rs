//! Placeholder without the feature `tls`: `https` connections fail with an error.

use tokio::net::TcpStream;

use super::BoxFuture;
use super::dial::Stream;
use super::error::{EgressError, EgressErrorKind};
use super::target::Host;

#[derive(Clone, Default)]
pub(super) struct Tls {}

impl Tls {
    #[expect(clippy::unused_self, reason = "same signature as with TLS")]
    pub(super) fn secure(&self, host: &Host, _: TcpStream) -> BoxFuture<Result<Stream, EgressError>> {
        let text = format!(
            "no TLS connection to `{host}`: this program was built without the feature `tls` of linchpin"
        );
        Box::pin(std::future::ready(Err(EgressError::new(EgressErrorKind::Tls, text))))
    }
}
