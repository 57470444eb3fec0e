//! TLS: rustls with ring, and the root certificates of the operating system.

use std::fmt;
use std::sync::{Arc, OnceLock};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;

use super::BoxFuture;
use super::builder::EgressBuilder;
use super::dial::BoxedStream;
use super::error::{EgressError, EgressErrorKind};
use super::target::Host;

/// Root certificates of this machine, loaded once per process because that takes milliseconds and reads files.
static SYSTEM_ROOTS: OnceLock<RootCertStore> = OnceLock::new();

#[derive(Clone, Default)]
pub(super) struct TlsConnector {
    extra_roots: Vec<CertificateDer<'static>>,
    config: Arc<OnceLock<Result<Arc<ClientConfig>, String>>>,
}

impl EgressBuilder {
    /// Adds root certificates: PEM with one or more certificates, or a single one as DER.
    pub fn root_certificate(mut self, certificate: &[u8]) -> Self {
        match parse_certificates(certificate) {
            Ok(found) => self.tls.extra_roots.extend(found),
            Err(error) => self.record_error(error),
        }
        self
    }
}

fn parse_certificates(certificate: &[u8]) -> Result<Vec<CertificateDer<'static>>, EgressError> {
    let invalid = || EgressError::setup("the root certificate must be a PEM or DER certificate");
    let found = if certificate.first() == Some(&0x30) {
        vec![CertificateDer::from(certificate.to_vec())]
    } else {
        CertificateDer::pem_slice_iter(certificate)
            .collect::<Result<_, _>>()
            .map_err(|error| invalid().with_source(error))?
    };
    if found.is_empty() {
        return Err(invalid());
    }
    let mut store = RootCertStore::empty();
    for certificate in &found {
        store.add(certificate.clone()).map_err(|error| invalid().with_source(error))?;
    }
    Ok(found)
}

impl TlsConnector {
    /// Performs the TLS handshake with the host.
    pub(super) fn handshake(
        &self,
        host: &Host,
        stream: TcpStream,
    ) -> BoxFuture<Result<BoxedStream, EgressError>> {
        let (this, host) = (self.clone(), host.clone());
        Box::pin(async move {
            let failed = |reason: &dyn fmt::Display| {
                EgressError::new(EgressErrorKind::Tls, format!("no TLS connection to `{host}`: {reason}"))
            };
            let config = this.config().await.map_err(|reason| failed(&reason))?;
            let name = match &host {
                Host::Address(address) => ServerName::from(*address),
                Host::Name(name) => ServerName::try_from(name.clone())
                    .map_err(|_| failed(&"the host is not a valid name for a certificate"))?,
            };
            match tokio_rustls::TlsConnector::from(config).connect(name, stream).await {
                Ok(stream) => Ok(Box::new(stream) as BoxedStream),
                Err(error) => Err(failed(&format_args!("{error}; {}", advice(&error))).with_source(error)),
            }
        })
    }

    async fn config(&self) -> Result<Arc<ClientConfig>, String> {
        if let Some(config) = self.config.get() {
            return config.clone();
        }
        let this = self.clone();
        let load = move || this.config.get_or_init(|| build_config(&this.extra_roots)).clone();
        tokio::task::spawn_blocking(load).await.unwrap_or_else(|error| Err(error.to_string()))
    }
}

fn build_config(added: &[CertificateDer<'static>]) -> Result<Arc<ClientConfig>, String> {
    let mut roots = SYSTEM_ROOTS
        .get_or_init(|| {
            let mut roots = RootCertStore::empty();
            // Unreadable certificates are skipped: they are not trusted.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            roots
        })
        .clone();
    roots.add_parsable_certificates(added.iter().cloned());
    if roots.is_empty() {
        return Err(
            "this machine has no trusted root certificates; install them (the package is often called \
                    ca-certificates) or add one to the client"
                .to_owned(),
        );
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config =
        config.map_err(|error| error.to_string())?.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Returns the advice for a TLS error.
fn advice(error: &std::io::Error) -> &'static str {
    use rustls::CertificateError::{
        Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet, NotValidYetContext,
        UnknownIssuer,
    };
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(UnknownIssuer)) => {
            "the certificate authority is unknown on this machine: if you trust it, add its root certificate"
        }
        Some(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
            "the certificate is for another name: check the host in the URL"
        }
        Some(rustls::Error::InvalidCertificate(
            Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. },
        )) => "check the certificate's dates and this machine's clock",
        Some(rustls::Error::InvalidMessage(_)) => "check that the port serves https",
        _ => "check that the port serves https and that nothing intercepts the connection",
    }
}
