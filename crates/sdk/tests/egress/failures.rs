//! Error messages: what failed, where, and what to do, without secrets.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linchpin::egress::{BoxFuture, ConnectPhase, Egress, EgressErrorKind, Resolver, Target};

use crate::support::{Reply, Script, Server, get, ok};

/// Returns a port without a listener.
fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

#[tokio::test]
async fn nobody_listens() {
    let port = free_port();
    let target = Target::configured(&format!("http://127.0.0.1:{port}/mcp?key=secret")).unwrap();
    let error = Egress::new().send(get(), &target).await.unwrap_err();
    assert_eq!(error.kind(), EgressErrorKind::Connect);
    let text = format!("{error} {error:?}");
    assert!(
        text.contains("nothing listens there: check host and port, and that the server is running"),
        "{text}"
    );
    assert!(!text.contains("secret"), "{text}");
    assert!(!error.may_have_been_sent());
}

#[tokio::test]
async fn a_name_that_nobody_knows() {
    let egress = Egress::builder().resolver(Script::new([])).build().unwrap();
    let target = Target::configured("https://nowhere.example/").unwrap();
    let error = egress.send(get(), &target).await.unwrap_err();
    assert_eq!(error.kind(), EgressErrorKind::Dns);
    let expected = "the name `nowhere.example` could not be resolved: the script is over; check the \
                    spelling and the network";
    assert_eq!(error.to_string(), expected);
    let egress = Egress::builder().resolver(Script::new([&[][..]])).build().unwrap();
    let error = egress.send(get(), &target).await.unwrap_err();
    assert!(error.to_string().contains("the name has no address"), "{error}");
}

/// A resolver that never responds.
struct Silent;

impl Resolver for Silent {
    fn resolve(&self, _: &str) -> BoxFuture<std::io::Result<Vec<std::net::IpAddr>>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn a_lookup_that_takes_too_long() {
    let egress = Egress::builder().resolver(Silent).connect_timeout(Duration::from_secs(3)).build().unwrap();
    let target = Target::configured("https://slow.example/").unwrap();
    let error = egress.send(get(), &target).await.unwrap_err();
    assert_eq!(error.kind(), EgressErrorKind::Timeout);
    assert_eq!(
        error.to_string(),
        "no connection to `slow.example` within 3s: name resolution took too long; check the host and the \
         network"
    );
}

#[tokio::test]
async fn the_next_address_is_tried() {
    let server = Server::start(|_| Reply::Keep(ok("x")));
    let hops = Arc::new(Mutex::new(Vec::new()));
    let log = hops.clone();
    let answer = ["127.0.0.9".parse().unwrap(), "127.0.0.1".parse().unwrap()];
    let egress = Egress::builder()
        .resolver(Script::new([&answer[..]]))
        .on_connect_step(move |hop| {
            log.lock().unwrap().push((hop.phase, hop.addresses.len(), hop.error.is_none()));
        })
        .build()
        .unwrap();
    let target = Target::configured(&format!("http://two.example:{}/", server.address.port())).unwrap();
    egress.send(get(), &target).await.unwrap();
    let expected = [
        (ConnectPhase::Resolve, 2, true),
        (ConnectPhase::Connect, 1, false),
        (ConnectPhase::Connect, 1, true),
    ];
    assert_eq!(*hops.lock().unwrap(), expected);
}

#[tokio::test]
async fn what_is_not_http() {
    let server = Server::start(|_| Reply::Close("SSH-2.0-OpenSSH\r\n\r\n".to_owned()));
    let error = Egress::new().send(get(), &Target::configured(&server.url("/")).unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), EgressErrorKind::Http);
    assert!(
        error.to_string().starts_with("no response from `127.0.0.1`: the response is not HTTP/1.1"),
        "{error}"
    );
}

#[tokio::test]
async fn a_head_without_end() {
    let server = Server::start(|_| Reply::Close(format!("HTTP/1.1 200 OK\r\n{}", "x: y\r\n".repeat(50_000))));
    let error = Egress::new().send(get(), &Target::configured(&server.url("/")).unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), EgressErrorKind::Http, "{error}");
}

#[tokio::test]
async fn a_body_that_breaks_off() {
    let server =
        Server::start(|_| Reply::Close("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf".to_owned()));
    let egress = Egress::new();
    let mut body =
        egress.send(get(), &Target::configured(&server.url("/")).unwrap()).await.unwrap().into_body();
    let mut outcome = body.chunk().await.unwrap();
    while outcome.is_ok() {
        outcome = body.chunk().await.unwrap();
    }
    let error = outcome.unwrap_err();
    assert!(error.to_string().starts_with("the response of `127.0.0.1` is incomplete: "), "{error}");
    assert_eq!(egress.idle_connections(), 0);
}

#[cfg(not(feature = "tls"))]
#[tokio::test]
async fn https_without_tls() {
    let server = Server::start(|_| Reply::Keep(ok("x")));
    let target = Target::typed(&format!("https://{}/", server.address)).unwrap();
    let error = Egress::new().send(get(), &target).await.unwrap_err();
    assert_eq!(error.kind(), EgressErrorKind::Tls);
    assert!(error.to_string().contains("built without the feature `tls`"), "{error}");
}

#[test]
fn urls_that_cannot_be_used() {
    let table = [
        ("", "it must begin with https:// or http://"),
        ("example.com", "it must begin with"),
        ("ftp://example.com", "only https:// and http:// are supported"),
        ("https://", "its host must be an address or a name"),
        ("https://a..b", "its host must be an address or a name"),
        (
            "https://user:secret@example.com/",
            "it contains a user name or password; send them in a header instead",
        ),
        ("https://example.com:0/", "its port must be a number from 1 to 65535"),
        ("https://example.com:65536/", "its port must be"),
        ("https://example.com:/", "its port must be"),
        ("https://[::1", "the `]` after its IPv6 address is missing"),
        ("https://[::1]x", "its port must be"),
        ("https://[1.2.3.4]/", "is not an IPv6 address"),
        ("https://127.1/", "its host is a number"),
        ("https://exämple.com/", "it contains non-ASCII characters; encode hosts as xn--…"),
        ("https://example.com/a b", "it contains the character ' '; encode it as %20"),
        ("https://example.com\\@evil/", "it contains the character '\\\\'; encode it as %5C"),
    ];
    for (url, expected) in table {
        let error = Target::configured(url).expect_err(url);
        assert_eq!(error.kind(), EgressErrorKind::Url);
        let text = error.to_string();
        assert!(text.starts_with("the URL cannot be used: ") && text.contains(expected), "{url}: {text}");
        assert!(!text.contains("secret"), "{text}");
    }
    assert!(Target::configured(&format!("https://example.com/{}", "x".repeat(8192))).is_err());
}

#[test]
fn relative_references() {
    let base = Target::configured("https://Example.COM:443/a/b/c?q#f").unwrap();
    let table = [
        ("", "https://example.com/a/b/c?q"),
        ("?x", "https://example.com/a/b/c?x"),
        ("#y", "https://example.com/a/b/c?q"),
        ("d", "https://example.com/a/b/d"),
        ("./d/", "https://example.com/a/b/d/"),
        ("..", "https://example.com/a/"),
        ("../../../../g?h", "https://example.com/g?h"),
        ("/x/./y/../z", "https://example.com/x/z"),
        ("/x?a=/../b", "https://example.com/x?a=/../b"),
        ("//other.example:8443/x", "https://other.example:8443/x"),
        ("http://other.example", "http://other.example/"),
        ("HTTPS://OTHER.example.:443/x", "https://other.example/x"),
        ("d:e", ""),
        ("javascript:alert(1)", ""),
        ("https:/x", ""),
    ];
    for (reference, expected) in table {
        let url = base.discovered(reference).map(|target| target.url()).unwrap_or_default();
        assert_eq!(url, expected, "{reference}");
    }
    assert_eq!(base.at("/.well-known/x?y").unwrap().url(), "https://example.com/.well-known/x?y");
    assert!(base.at("x").is_err());
    assert_eq!(
        format!("{base} {base:?}"),
        "https://example.com/a/b/c Target(https://example.com/a/b/c, Configured)"
    );
    assert_eq!(Target::configured("http://[::FFFF:127.0.0.1]:80").unwrap().origin(), "http://127.0.0.1");
    assert_eq!(Target::configured("http://[0:0::1]:81").unwrap().origin(), "http://[::1]:81");
}
