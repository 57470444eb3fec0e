//! TLS for connections to PostgreSQL. The issuer of the certificate is always verified.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::{TlsConnector, client};

/// Value of `sslrootcert` for the root certificates of this machine.
const SYSTEM_ROOTS: &str = "system";

/// TLS connector for connections to PostgreSQL.
#[derive(Clone)]
pub(super) struct Tls(TlsConnector);

impl Tls {
    /// Creates a connector that trusts the root certificates in the PEM file `roots`, or those of this machine.
    /// `checks_name` enables the check of the host name. The error is a message for the user.
    pub(super) fn new(roots: Option<&str>, checks_name: bool) -> Result<Self, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut trusted = RootCertStore::empty();
        match roots.filter(|roots| *roots != SYSTEM_ROOTS) {
            Some(path) => {
                let invalid = |reason: &dyn std::fmt::Display| {
                    format!(
                        "the sslrootcert `{path}` of the database URL is not a PEM file with certificates: {reason}"
                    )
                };
                let all = CertificateDer::pem_file_iter(Path::new(path)).map_err(|error| invalid(&error))?;
                for certificate in all {
                    let certificate = certificate.map_err(|error| invalid(&error))?;
                    trusted.add(certificate).map_err(|error| invalid(&error))?;
                }
                if trusted.is_empty() {
                    return Err(invalid(&"the file contains no certificate"));
                }
            }
            // Certificates that cannot be parsed are not trusted.
            None => drop(trusted.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
        }
        let checks = WebPkiServerVerifier::builder_with_provider(Arc::new(trusted), provider.clone()).build();
        let checks = checks.map_err(|error| {
            format!(
                "this machine has no trusted root certificates ({error}): install them, or set sslrootcert"
            )
        })?;
        let checks: Arc<dyn ServerCertVerifier> =
            if checks_name { checks } else { Arc::new(IgnoreHostname(checks)) };
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config =
            config.map_err(|error| error.to_string())?.dangerous().with_custom_certificate_verifier(checks);
        Ok(Tls(TlsConnector::from(Arc::new(config.with_no_client_auth()))))
    }
}

/// Certificate verifier that ignores the host name (`sslmode=verify-ca`).
#[derive(Debug)]
struct IgnoreHostname(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for IgnoreHostname {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        use CertificateError::{NotValidForName, NotValidForNameContext};
        // The host name is checked last, so everything else is valid here.
        match self.0.verify_server_cert(certificate, others, name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
                Ok(ServerCertVerified::assertion())
            }
            checked => checked,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// TLS handshake with the host of a PostgreSQL server.
pub(super) struct TlsHandshake(TlsConnector, ServerName<'static>);

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Tls {
    type Stream = TlsStreamAdapter<S>;
    type TlsConnect = TlsHandshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<TlsHandshake> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        Ok(TlsHandshake(self.0.clone(), name))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for TlsHandshake {
    type Stream = TlsStreamAdapter<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TlsStreamAdapter<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move { self.0.connect(self.1, stream).await.map(TlsStreamAdapter) })
    }
}

/// TLS stream to PostgreSQL, in the form that the driver expects.
pub(super) struct TlsStreamAdapter<S>(client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for TlsStreamAdapter<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStreamAdapter<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsStreamAdapter<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
