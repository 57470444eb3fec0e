//! Proxy that terminates TLS: with it, a server on this machine looks like a public one to a client.
#![allow(clippy::allow_attributes, dead_code, reason = "each test file uses a part of it")]

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use linchpin::egress::{ConnectPhase, Egress, EgressBuilder};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

const ROOT: &[u8] = include_bytes!("../egress/certificates/authority.pem");
const CERTIFICATE: &[u8] = include_bytes!("../egress/certificates/server.pem");
const KEY: &[u8] = include_bytes!("../egress/certificates/server.key");

/// Name in the certificate. Routes differ by port.
pub(crate) const NAME: &str = "server.example";

pub(crate) struct TlsProxy {
    address: SocketAddr,
    known: Arc<ProxyRoutes>,
    /// Dialled addresses.
    dialled: Arc<Mutex<Vec<SocketAddr>>>,
    _accepting: JoinSet<()>,
}

#[derive(Default)]
struct ProxyRoutes {
    routes: Mutex<HashMap<u16, SocketAddr>>,
    /// Other requested names.
    unknown_hosts: Mutex<BTreeSet<String>>,
    /// Heads of the `CONNECT` requests.
    heads: Mutex<Vec<String>>,
}

impl TlsProxy {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let known = Arc::<ProxyRoutes>::default();
        let (shared, acceptor) = (known.clone(), acceptor());
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut tunnels = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                tunnels.spawn(tunnel(stream, shared.clone(), acceptor.clone()));
            }
        });
        TlsProxy { address, known, dialled: Arc::default(), _accepting: accepting }
    }

    /// Routes `https://server.example:{port}` to an address, and returns that origin.
    pub(crate) fn route(&self, port: u16, to: SocketAddr) -> String {
        self.known.routes.lock().unwrap().insert(port, to);
        format!("https://{NAME}:{port}")
    }

    /// Returns an egress builder that uses the proxy.
    pub(crate) fn egress(&self) -> EgressBuilder {
        let dialled = self.dialled.clone();
        let told = move |hop: &linchpin::egress::ConnectStep<'_>| {
            if hop.phase == ConnectPhase::Connect {
                dialled.lock().unwrap().extend(hop.addresses);
            }
        };
        Egress::builder()
            .proxy(&format!("http://{}", self.address))
            .root_certificate(ROOT)
            .on_connect_step(told)
    }

    /// Returns its address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the heads of the `CONNECT` requests.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.known.heads.lock().unwrap().clone()
    }

    /// Returns the number of connections to other addresses.
    pub(crate) fn elsewhere(&self) -> usize {
        self.dialled.lock().unwrap().iter().filter(|address| **address != self.address).count()
    }

    /// Returns the other requested hosts.
    pub(crate) fn unknown_hosts(&self) -> BTreeSet<String> {
        self.known.unknown_hosts.lock().unwrap().clone()
    }
}

fn acceptor() -> TlsAcceptor {
    let chain = vec![CertificateDer::from_pem_slice(CERTIFICATE).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(KEY).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    TlsAcceptor::from(Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap()))
}

/// Serves one `CONNECT` request. The client notices failures.
async fn tunnel(mut stream: TcpStream, known: Arc<ProxyRoutes>, acceptor: TlsAcceptor) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8(head).unwrap();
    known.heads.lock().unwrap().push(head.clone());
    let place = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).unwrap_or_default();
    let (host, port) = place.rsplit_once(':').unwrap_or((place, ""));
    if host != NAME {
        known.unknown_hosts.lock().unwrap().insert(host.to_owned());
    }
    let port = port.parse().ok().filter(|_| host == NAME);
    let Some(to) = port.and_then(|port: u16| known.routes.lock().unwrap().get(&port).copied()) else {
        let _ = stream.write_all(b"HTTP/1.1 403 Forbidden\r\n\r\n").await;
        return;
    };
    if stream.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").await.is_err() {
        return;
    }
    let (Ok(mut secure), Ok(mut plain)) = (acceptor.accept(stream).await, TcpStream::connect(to).await)
    else {
        return;
    };
    let _ = tokio::io::copy_bidirectional(&mut secure, &mut plain).await;
}
