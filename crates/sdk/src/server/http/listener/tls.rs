//! TLS of a listener, with a certificate that can be replaced at runtime.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::watchdog::MonitoredIo;
use crate::lock::lock;
use crate::{Error, Result};

/// Certificate and private key for [`Listener::tls`](crate::server::http::Listener::tls). Clones share the current
/// certificate.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
    certificate: Arc<CertificateResolver>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

/// Resolver that presents the current TLS certificate, which can be replaced, in each handshake.
#[derive(Debug)]
struct CertificateResolver(Mutex<Arc<CertifiedKey>>);

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(lock(&self.0).clone())
    }
}

impl Tls {
    /// Parses PEM: the certificate chain and the private key.
    pub fn new(certificate: &[u8], key: &[u8]) -> Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let current = Arc::new(CertificateResolver(Mutex::new(read(certificate, key, &provider)?)));
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::setup(format!("TLS is not available: {error}")))?;
        let mut config = config.with_no_client_auth().with_cert_resolver(current.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Tls { acceptor: Arc::new(config).into(), certificate: current })
    }

    /// Replaces the certificate and key for new connections. Invalid input changes nothing.
    pub fn replace(&self, certificate: &[u8], key: &[u8]) -> Result<()> {
        let read = read(certificate, key, self.acceptor.config().crypto_provider())?;
        *lock(&self.certificate.0) = read;
        Ok(())
    }

    /// Performs the TLS handshake with a client.
    pub(in crate::server::http) async fn handshake(
        &self,
        io: MonitoredIo,
    ) -> io::Result<TlsStream<MonitoredIo>> {
        self.acceptor.accept(io).await
    }
}

fn read(certificate: &[u8], key: &[u8], provider: &CryptoProvider) -> Result<Arc<CertifiedKey>> {
    let setup_error = |subject: &str, reason: &dyn fmt::Display| Error::setup(format!("{subject}: {reason}"));
    let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate)
        .collect::<std::result::Result<_, _>>()
        .map_err(|error| setup_error("the certificate is not valid PEM", &error))?;
    if chain.is_empty() {
        return Err(setup_error("the certificate is not valid PEM", &"the text contains no certificate"));
    }
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| setup_error("the key is not a valid PEM private key", &error))?;
    let read = CertifiedKey::from_der(chain, key, provider)
        .map_err(|error| setup_error("the certificate and the key cannot be used together", &error))?;
    Ok(Arc::new(read))
}
