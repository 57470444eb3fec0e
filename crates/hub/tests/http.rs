//! Servers at a URL: `demo --http`, `inspect`, `call` and `doctor`.
#![expect(clippy::unwrap_used, reason = "the scripted server unwraps")]

#[path = "support/hub.rs"]
mod hub;
mod support;

#[path = "../../sdk/tests/support/http.rs"]
mod script;

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use hub::Demo;
use linchpin::{Revision, Server};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use script::{HttpScript, MessageStream, Reply, plain_reply};
use serde_json::{Value, json};
use support::{LINCHPIN, run, run_in};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

const FIRST: Revision = Revision::V2024_11_05;
const LAST: Revision = Revision::LATEST_SESSION;
const CERTIFICATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sdk/tests/egress/certificates");

/// Returns the URL of another path of the demo server.
fn url_of(demo: &Demo, path: &str) -> String {
    demo.url.replace("/mcp", path)
}

/// Starts a server that responds to every request with the same bytes.
fn serve_response(answer: &'static str) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let url = format!("http://{}/mcp", listener.local_addr().expect("the listener is bound"));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(stream.try_clone().expect("the connection is open")).lines();
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let _ = (&stream).write_all(answer.as_bytes()); // the client may have disconnected
        }
    });
    url
}

#[test]
fn a_url_is_inspected_and_called_like_a_command() {
    let demo = Demo::start();
    let shown = run(&["inspect", &demo.url]).expect_output(0, &[]).stdout;
    let started = run(&["inspect", LINCHPIN, "demo"]).expect_output(0, &[]).stdout;
    assert_eq!(shown, started);
    let called = run(&["call", "add", "--args", r#"{"a": 2, "b": 40}"#, &demo.url]).expect_output(0, &[]);
    assert_eq!(called.stdout.trim(), r#"{"sum":42.0}"#);
    let counted = run(&["call", "countdown", "--args", r#"{"from": 2}"#, &demo.url])
        .expect_output(0, &["progress 2/2"]);
    assert_eq!(counted.stdout.trim(), "Counted down from 2.");
}

#[test]
fn what_was_typed_wrongly_is_named() {
    run(&["inspect", "--header", "a: b", LINCHPIN, "demo"]).expect_output(2, &["--header requires a URL"]);
    run(&["inspect", "http://127.0.0.1:1/mcp", "extra"])
        .expect_output(2, &["unexpected argument `extra` after a URL"]);
    run(&["inspect", "--header", "nothing", "http://127.0.0.1:1/mcp"]).expect_output(2, &["NAME: VALUE"]);
    let refused = run(&["inspect", "--header", "Mcp-Session-Id: x", "http://127.0.0.1:1/mcp"]);
    refused.expect_output(1, &["the header `mcp-session-id` is set by the transport"]);
    run(&["demo", "--http", "nowhere"]).expect_output(1, &["nowhere", "cannot listen on"]);
}

#[test]
fn what_is_no_hub_does_nothing() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\nconnection: close\r\n\r\n<html>",
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
    ] {
        let url = serve_response(answer);
        let asked = |hub: &str| {
            run_in(&[("LINCHPIN_TOKEN", "x")], &["--json", "--hub", hub, "server", "remove", "a"])
        };
        let error = asked(url.trim_end_matches("/mcp")).expect_output(1, &[]).json()["error"].clone();
        assert_eq!(error["kind"], "protocol", "{error}");
        assert!(
            error["message"]
                .as_str()
                .is_some_and(|text| text.ends_with("is not a Linchpin hub: check --hub")),
            "{error}"
        );
        let error = asked(&url).expect_output(2, &[]).json()["error"].clone();
        assert!(error["message"].as_str().is_some_and(|text| text.contains("--hub: path, query")), "{error}");
    }
    let done = serve_response("HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n");
    let removed = ["--hub", done.trim_end_matches("/mcp"), "server", "remove", "a"];
    run_in(&[("LINCHPIN_TOKEN", "x")], &removed).expect_output(0, &[]);
}

/// Returns name, result and text of each step.
fn steps(run: &support::Run) -> Vec<(String, bool, String)> {
    let found = run.json();
    let text = |value: &Value| value.as_str().expect("a step has a name and a text").to_owned();
    let step = |step: &Value| (text(&step["step"]), step["ok"] == true, text(&step["text"]));
    found["steps"].as_array().expect("there are steps").iter().map(step).collect()
}

/// Returns the text of one step.
#[track_caller]
fn says(run: &support::Run, step: &str) -> String {
    let found = steps(run).into_iter().find(|(name, ..)| name == step);
    found.unwrap_or_else(|| panic!("{step} is missing in {}", run.stdout)).2
}

#[test]
fn the_doctor_shows_every_step() {
    let demo = Demo::start();
    let healthy = run(&["--json", "doctor", &demo.url]).expect_output(0, &[]);
    assert_eq!(healthy.json()["ok"], true);
    let names: Vec<_> = steps(&healthy).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["TCP", "era", "revision", "session", "server", "capabilities", "tools"]);
    let text = run(&["doctor", &demo.url]).expect_output(0, &[]).stdout;
    assert!(
        text.contains("ok revision      2026-07-28") && text.ends_with("The server is usable.\n"),
        "{text}"
    );
    let started = run(&["--json", "doctor", LINCHPIN, "demo"]).expect_output(0, &[]);
    assert!(matches!(&steps(&started)[0], (name, true, _) if name == "program"));
}

/// Runs the doctor on a server of this process.
async fn run_doctor(url: &str, trusting: &str) -> support::Run {
    let (url, root) = (url.to_owned(), format!("{CERTIFICATES}/{trusting}"));
    let work = move || run_in(&[("SSL_CERT_FILE", &root)], &["--json", "doctor", &url]);
    tokio::task::spawn_blocking(work).await.expect("it ends")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_tells_servers_of_the_session_era_apart() {
    let mut serving = JoinSet::new();
    for (is_stateless, session) in
        [(false, "the server assigned a session id"), (true, "the server assigned no session id")]
    {
        let server = Server::new("old", "1").protocol_version(LAST.as_str());
        let http = server.tool("greet", "", || async { "hello" }).http();
        let http = if is_stateless { http.stateless() } else { http };
        let listening = http.bind("127.0.0.1:0").await.expect("a port is free");
        let url = listening.url();
        serving.spawn(listening.run_until(std::future::pending()));
        assert_old(&run_doctor(&url, "authority.pem").await, LAST, session);
    }
}

/// Asserts that a server of the session era is usable.
#[track_caller]
fn assert_old(run: &support::Run, revision: Revision, session: &str) {
    assert_eq!(run.code, Some(0), "{}", run.stdout);
    assert!(says(run, "era").starts_with("sessions"), "{}", run.stdout);
    assert_eq!((&*says(run, "revision"), &*says(run, "session")), (revision.as_str(), session));
    assert!(says(run, "tools").starts_with("1: "), "{}", run.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_knows_servers_of_before_streamable_http() {
    let stream = MessageStream::default();
    let script = HttpScript::start(move |seen| match (&*seen.verb, &*seen.path) {
        ("GET", "/sse") => {
            Reply::events().chunk(b"event: endpoint\ndata: /messages\n\n").then_stream(&stream)
        }
        ("POST", "/messages") => {
            let answer = plain_reply(FIRST, seen).body_json().filter(|_| seen.body.get("id").is_some());
            answer.inspect(|answer| stream.send(answer));
            Reply::status(202)
        }
        _ => Reply::status(404),
    })
    .await;
    let healthy = run_doctor(&format!("{}/sse", script.origin()), "authority.pem").await;
    assert_old(&healthy, FIRST, "none needed: with HTTP+SSE the event stream is the session");
}

#[test]
fn the_doctor_shows_what_a_name_leads_to() {
    let demo = Demo::start();
    let healthy =
        run(&["--json", "doctor", &demo.url.replace("127.0.0.1", "localhost")]).expect_output(0, &[]);
    let names: Vec<_> = steps(&healthy).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names[..2], ["DNS", "TCP"]);
    assert!(
        says(&healthy, "DNS").split(", ").any(|address| address.starts_with("127.0.0.1:")),
        "{}",
        healthy.stdout
    );
}

fn acceptor() -> TlsAcceptor {
    let read = |name| std::fs::read(format!("{CERTIFICATES}/{name}")).expect("the file exists");
    let chain = vec![CertificateDer::from_pem_slice(&read("server.pem")).expect("a valid certificate")];
    let key = PrivateKeyDer::from_pem_slice(&read("server.key")).expect("a valid key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config =
        config.expect("TLS versions are available").with_no_client_auth().with_single_cert(chain, key);
    TlsAcceptor::from(Arc::new(config.expect("the key matches the certificate")))
}

/// Forwards TLS connections to a server without TLS.
async fn serve_tls(listener: TcpListener, plain: SocketAddr) {
    let mut tunnels = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        tunnels.spawn(async move {
            let Ok(mut secure) = acceptor().accept(stream).await else { return };
            let mut plain = TcpStream::connect(plain).await.expect("the server accepts the connection");
            let _ = tokio::io::copy_bidirectional(&mut secure, &mut plain).await; // the client may have disconnected
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_shows_whether_a_certificate_is_trusted() {
    let demo = Demo::start();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let url = format!("https://{}/mcp", listener.local_addr().expect("the listener is bound"));
    let plain = url_of(&demo, "").trim_start_matches("http://").parse().expect("a valid socket address");
    let mut serving = JoinSet::new();
    serving.spawn(serve_tls(listener, plain));
    let healthy = run_doctor(&url, "authority.pem").await.expect_output(0, &[]);
    let names: Vec<_> = steps(&healthy).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names[..3], ["TCP", "TLS", "era"]);
    assert_eq!(says(&healthy, "TLS"), "valid certificate for 127.0.0.1");
    let failed = run_doctor(&url, "other.pem").await.expect_output(1, &[]);
    assert!(matches!(&steps(&failed)[..], [_, (name, false, _)] if name == "TLS"), "{}", failed.stdout);
    assert!(says(&failed, "TLS").contains("UnknownIssuer"), "{}", failed.stdout);
}

#[test]
fn the_doctor_says_what_to_do() {
    let demo = Demo::start();
    let unauthorized = serve_response(
        "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Bearer\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
    );
    let page = serve_response(
        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\nconnection: close\r\n\r\n<html>",
    );
    let broken = serve_response(
        "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
    );
    let nowhere = url_of(&demo, "/nowhere");
    let cases = [
        (&*nowhere, "check the path of the URL"),
        (&*unauthorized, "--header 'Authorization: Bearer …'"),
        (&*page, "check the URL or the command"),
        (&*broken, "the server reported an internal error"),
        ("http://127.0.0.1:1/mcp", "check host and port"),
        ("http://1.1.1.1/mcp", "https"),
        ("no-such-program", "check the name"),
    ];
    for (server, advice) in cases {
        let failed = run(&["doctor", server]);
        assert_eq!(failed.code, Some(1), "{server}: {}", failed.stdout);
        assert!(failed.stdout.contains(advice), "{server}: {advice:?} is missing in:\n{}", failed.stdout);
        let ended = "The server is not usable.\n";
        assert!(failed.stdout.ends_with(ended), "{}", failed.stdout);
    }
    // The duration of a failed name resolution depends on the machine.
    let unknown = run(&["doctor", "https://nosuch.invalid/mcp"]).expect_output(1, &[]).stdout;
    assert!(
        unknown.contains("check the spelling") || unknown.contains("name resolution took too long"),
        "{unknown}"
    );
    let failed = run(&["--json", "doctor", &nowhere]).json();
    assert_eq!((failed["ok"].clone(), failed["steps"][1]["ok"].clone()), (json!(false), json!(false)));
}
