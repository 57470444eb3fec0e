//! TLS: the name is verified although the address is dialled, and errors name the cause.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use linchpin::egress::{ConnectPhase, Egress, EgressBuilder, EgressErrorKind, Target};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::support::{Reply, Script, Server, get, ok};

const AUTHORITY: &[u8] = include_bytes!("certificates/authority.pem");
const SERVER: &[u8] = include_bytes!("certificates/server.pem");
const OTHER: &[u8] = include_bytes!("certificates/other.pem");
const EXPIRED: &[u8] = include_bytes!("certificates/expired.pem");
const KEY: &[u8] = include_bytes!("certificates/server.key");

/// A server with TLS that records the requested server name.
fn server(certificate: &[u8], names: Arc<Mutex<Vec<Option<String>>>>) -> Server {
    server_behind(certificate, names, |_| ())
}

/// Like [`server`], with a dialogue before TLS.
fn server_behind(
    certificate: &[u8],
    names: Arc<Mutex<Vec<Option<String>>>>,
    before: impl Fn(&mut TcpStream) + Send + Sync + 'static,
) -> Server {
    let chain = vec![CertificateDer::from_pem_slice(certificate).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(KEY).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap());
    let wrap = move |mut stream: TcpStream| {
        before(&mut stream);
        let mut connection = ServerConnection::new(config.clone()).unwrap();
        while connection.is_handshaking() && connection.complete_io(&mut stream).is_ok() {}
        names.lock().unwrap().push(connection.server_name().map(str::to_owned));
        StreamOwned::new(connection, stream)
    };
    Server::start_with("127.0.0.1:0".parse().unwrap(), wrap, |_| Reply::Keep(ok("secure")))
}

fn client() -> EgressBuilder {
    Egress::builder().resolver(Script::always("127.0.0.1"))
}

fn target(server: &Server, host: &str) -> Target {
    Target::configured(&format!("https://{host}:{}/", server.address.port())).unwrap()
}

#[tokio::test]
async fn a_tunnel_through_a_proxy_is_kept_and_tls_ends_behind_it() {
    let (names, heads) = (Arc::default(), Arc::new(Mutex::new(Vec::new())));
    let log = heads.clone();
    // It is also the server behind the proxy.
    let proxy = server_behind(SERVER, Arc::clone(&names), move |stream| {
        let (head, _) = crate::support::read_request(stream).unwrap();
        log.lock().unwrap().push(head);
        stream.write_all(b"HTTP/1.1 200 Connected\r\nvia: test\r\n\r\n").unwrap();
    });
    let phases = Arc::new(Mutex::new(Vec::new()));
    let log = phases.clone();
    let builder = Egress::builder().root_certificate(AUTHORITY).on_connect_step(move |hop| {
        log.lock().unwrap().push(hop.phase);
    });
    let egress = builder.proxy(&format!("http://user:p%40ss@{}", proxy.address)).build().unwrap();
    for _ in 0..2 {
        let target = Target::configured("https://server.example/x").unwrap();
        let body = egress.send(get(), &target).await.unwrap().into_body();
        assert_eq!(body.read_to_end(100).await.unwrap(), "secure");
    }
    let connect = "CONNECT server.example:443 HTTP/1.1\r\nHost: server.example:443\r\n\
                   Proxy-Authorization: Basic dXNlcjpwQHNz\r\n\r\n";
    assert_eq!(*heads.lock().unwrap(), [connect]);
    assert_eq!(*names.lock().unwrap(), [Some("server.example".to_owned())]);
    let seen = proxy.seen();
    assert_eq!((seen.len(), seen[0].line()), (2, "GET /x HTTP/1.1"));
    assert_eq!(seen[0].header("proxy-authorization"), None, "it is for the proxy alone");
    assert_eq!(*phases.lock().unwrap(), [ConnectPhase::Connect, ConnectPhase::Proxy, ConnectPhase::Tls]);
}

#[tokio::test]
async fn an_authority_of_ones_own() {
    let names = Arc::default();
    let server = server(SERVER, Arc::clone(&names));
    let phases = Arc::new(Mutex::new(Vec::new()));
    let log = phases.clone();
    let der = CertificateDer::from_pem_slice(AUTHORITY).unwrap();
    for certificate in [AUTHORITY, &der] {
        let log = log.clone();
        let egress = client()
            .root_certificate(certificate)
            .on_connect_step(move |hop| log.lock().unwrap().push((hop.phase, hop.error.is_none())))
            .build()
            .unwrap();
        for _ in 0..2 {
            let body = egress.send(get(), &target(&server, "Server.Example.")).await.unwrap().into_body();
            assert_eq!(body.read_to_end(100).await.unwrap(), "secure");
        }
        egress.send(get(), &target(&server, "127.0.0.1")).await.unwrap();
    }
    assert_eq!(server.connections(), 4, "two clients, a name and an address, each once");
    assert_eq!(
        *names.lock().unwrap(),
        [Some("server.example".to_owned()), None, Some("server.example".to_owned()), None]
    );
    let expected = [
        ConnectPhase::Resolve,
        ConnectPhase::Connect,
        ConnectPhase::Tls,
        ConnectPhase::Connect,
        ConnectPhase::Tls,
    ]
    .map(|phase| (phase, true));
    assert_eq!(phases.lock().unwrap()[..5], expected);
}

#[tokio::test]
async fn failures_say_what_to_check() {
    let good = server(SERVER, Arc::default());
    let expired = server(EXPIRED, Arc::default());
    let known = client().root_certificate(AUTHORITY).build().unwrap();
    let table = [
        (
            client().root_certificate(OTHER).build().unwrap(),
            target(&good, "server.example"),
            "add its root certificate",
        ),
        (known.clone(), target(&good, "other.example"), "the certificate is for another name"),
        (
            known.clone(),
            target(&expired, "server.example"),
            "check the certificate's dates and this machine's clock",
        ),
    ];
    for (egress, target, expected) in table {
        let error = egress.send(get(), &target).await.expect_err(expected);
        assert_eq!(error.kind(), EgressErrorKind::Tls);
        let text = error.to_string();
        assert!(text.starts_with("no TLS connection to `") && text.contains(expected), "{text}");
        assert!(!error.may_have_been_sent());
    }
    assert!(good.seen().is_empty() && expired.seen().is_empty(), "nothing was sent");
}

#[tokio::test]
async fn a_certificate_that_is_none() {
    for wrong in [&b""[..], b"hello", b"\x30\x03\x02\x01\x01", KEY] {
        let error = Egress::builder().root_certificate(wrong).build().unwrap_err();
        assert_eq!(error.kind(), EgressErrorKind::Setup);
        assert!(error.to_string().starts_with("the root certificate must be a PEM or DER"), "{error}");
    }
}
