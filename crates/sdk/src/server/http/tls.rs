//! TLS for a listener: a certificate with its key, which can be replaced while connections are served.

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

use super::watch::WatchedIo;
use crate::sync::lock;
use crate::{Error, Result};

/// A certificate with its key, for [`Listener::tls`](super::Listener::tls). Clones share what is in use.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
    current: Arc<Current>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

/// What is shown to whoever connects.
#[derive(Debug)]
struct Current(Mutex<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(lock(&self.0).clone())
    }
}

impl Tls {
    /// Reads PEM: the certificate with those that lead to its authority, and its key.
    pub fn new(certificate: &[u8], key: &[u8]) -> Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let current = Arc::new(Current(Mutex::new(read(certificate, key, &provider)?)));
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::setup(format!("there is no TLS: {error}")))?;
        let mut config = config.with_no_client_auth().with_cert_resolver(current.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Tls { acceptor: Arc::new(config).into(), current })
    }

    /// Uses others from the next connection on. What cannot be used changes nothing.
    pub fn replace(&self, certificate: &[u8], key: &[u8]) -> Result<()> {
        let read = read(certificate, key, self.acceptor.config().crypto_provider())?;
        *lock(&self.current.0) = read;
        Ok(())
    }

    /// Agrees on TLS with whoever has connected.
    pub(super) async fn secure(&self, io: WatchedIo) -> io::Result<TlsStream<WatchedIo>> {
        self.acceptor.accept(io).await
    }
}

fn read(certificate: &[u8], key: &[u8], provider: &CryptoProvider) -> Result<Arc<CertifiedKey>> {
    let wrong = |what: &str, why: &dyn fmt::Display| Error::setup(format!("{what}: {why}"));
    let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate)
        .collect::<std::result::Result<_, _>>()
        .map_err(|error| wrong("the certificate is no PEM that can be read", &error))?;
    if chain.is_empty() {
        return Err(wrong("the certificate is no PEM that can be read", &"there is no certificate in it"));
    }
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| wrong("the key is no PEM with a private key that can be read", &error))?;
    let read = CertifiedKey::from_der(chain, key, provider)
        .map_err(|error| wrong("the certificate and the key cannot be used together", &error))?;
    Ok(Arc::new(read))
}
