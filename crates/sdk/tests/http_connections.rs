//! Connections on a real network: slow, silent, cut, too many, malformed; and server shutdown.
#![cfg(feature = "http-server")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::time::{Duration, Instant};

use linchpin::{Context, HttpEndpoint, NoArgs};
use serde_json::{Value, json};
use support::call_scenarios::CallControls;
use support::sockets::{Socket, TEST_TIMEOUT, TestServer};
use support::web::modern;
use support::{initialize, stateless};

const SHORT_TIMEOUT: Duration = Duration::from_millis(300);
const LONG_TIMEOUT: Duration = Duration::from_mins(5);
const DEFAULT_HEADERS: &str =
    "Host: localhost\r\nAccept: application/json, text/event-stream\r\nContent-Type: application/json\r\n";

fn http(scene: &CallControls) -> HttpEndpoint {
    scene.server().http().connection_timeouts(LONG_TIMEOUT, LONG_TIMEOUT, LONG_TIMEOUT)
}

/// Returns a request with additional headers.
fn post(body: &str, more: &str) -> String {
    format!("POST /mcp HTTP/1.1\r\n{DEFAULT_HEADERS}{more}Content-Length: {}\r\n\r\n{body}", body.len())
}

/// Returns a stateless request.
fn ask(id: i64, method: &str, params: Value) -> String {
    let (message, headers) = modern(id, method, params);
    let headers: Vec<_> = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    post(&message.to_string(), &headers.concat())
}

fn echo(id: i64) -> String {
    ask(id, "tools/call", json!({"name": "echo", "arguments": {"message": format!("m{id}")}}))
}

fn wait(count: u32) -> String {
    let meta = stateless(json!({"_meta": {"progressToken": 1}}))["_meta"].clone();
    ask(1, "tools/call", json!({"name": "wait", "arguments": {"count": count}, "_meta": meta}))
}

/// Checks that the server responds.
fn is_alive(site: &TestServer) {
    let mut socket = site.connect();
    socket.write(echo(7));
    let answer = socket.response().unwrap();
    assert_eq!(answer.status, 200);
    assert!(answer.body.contains("\"m7\""), "{}", answer.body);
}

/// Retries until an attempt succeeds. Under load, a test is sometimes slower than the server allows.
fn eventually<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(begun.elapsed() < TEST_TIMEOUT, "it was closed each time");
    }
}

/// Blocks on a future of the server's runtime.
fn block<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn a_silent_connection_is_closed() {
    let scene = CallControls::new();
    let site = TestServer::start(scene.server().http().connection_timeouts(
        SHORT_TIMEOUT,
        LONG_TIMEOUT,
        LONG_TIMEOUT,
    ));
    let mut all: Vec<_> = (0..50).map(|_| site.connect()).collect();
    let answer = eventually(|| {
        let mut other = site.connect();
        other.try_write(echo(1)).then(|| other.response()).flatten()
    });
    assert_eq!(answer.status, 200);
    assert!(all.iter_mut().all(|socket| socket.end().is_empty()));
    // A connection that has started a request has more time.
    let answer = eventually(|| {
        let mut slow = site.connect();
        slow.try_write("POST /mcp");
        site.connect().end();
        slow.try_write(&echo(1)["POST /mcp".len()..]).then(|| slow.response()).flatten()
    });
    assert_eq!(answer.status, 200);
}

#[test]
fn a_head_that_does_not_end_is_not_waited_for() {
    let scene = CallControls::new();
    let site = TestServer::start(scene.server().http().connection_timeouts(
        LONG_TIMEOUT,
        SHORT_TIMEOUT,
        LONG_TIMEOUT,
    ));
    let mut stuck = site.connect();
    stuck.write("POST /mcp HTTP/1.1\r\nHost: loc");
    assert_eq!(stuck.end(), "");
    // However steadily its bytes arrive.
    let mut dribbling = site.connect();
    dribbling.stream.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    let begun = Instant::now();
    let mut bytes = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nX: ".bytes().chain(std::iter::repeat(b'x'));
    let mut byte = [0];
    loop {
        assert!(begun.elapsed() < TEST_TIMEOUT);
        let sent = dribbling.try_write([bytes.next().unwrap()]);
        match std::io::Read::read(&mut dribbling.stream, &mut byte) {
            Ok(0) => break,
            Ok(_) => panic!("no request was sent"),
            Err(error) if sent && matches!(error.kind(), std::io::ErrorKind::WouldBlock) => {}
            Err(_) => break,
        }
    }
    // The same for a second request.
    let mut second = site.connect();
    second.write(echo(1));
    assert_eq!(second.response().unwrap().status, 200);
    second.write("POST /m");
    assert_eq!(second.end(), "");
    is_alive(&site);
}

#[test]
fn an_idle_connection_is_closed_after_its_time() {
    let scene = CallControls::new();
    let site = TestServer::start(scene.server().http().connection_timeouts(
        LONG_TIMEOUT,
        LONG_TIMEOUT,
        SHORT_TIMEOUT,
    ));
    let mut socket = eventually(|| {
        let mut socket = site.connect();
        let mut serves = |id| socket.try_write(echo(id)) && socket.response().is_some();
        (0..3).all(&mut serves).then_some(socket)
    });
    assert_eq!(socket.end(), "");
    // A running call is not idle.
    let mut busy = site.connect();
    busy.write(wait(1));
    block(scene.until_alive(1));
    let mut idle = site.connect();
    idle.write(echo(1));
    idle.response().unwrap();
    idle.end();
    scene.step(1);
    assert_eq!(busy.response().unwrap().status, 200);
}

#[test]
fn a_dribbled_body_is_given_up() {
    let scene = CallControls::new();
    let site = TestServer::start(http(&scene).body_timeout(SHORT_TIMEOUT));
    let mut socket = site.connect();
    let request = echo(1);
    socket.write(&request[..request.len() - 1]);
    let answer = socket.response().unwrap();
    assert_eq!(answer.status, 408, "{}", answer.body);
    assert_eq!(socket.end(), "", "the start of the next request is unknown");
    let mut chunked = site.connect();
    chunked.write(format!(
        "POST /mcp HTTP/1.1\r\n{DEFAULT_HEADERS}Transfer-Encoding: chunked\r\n\r\n5\r\n{{\"js"
    ));
    assert_eq!(chunked.response().unwrap().status, 408);
    is_alive(&site);
}

/// Server with a tool whose result exceeds any socket buffer.
fn shouting(scene: &CallControls) -> linchpin::Server {
    let shout = scene.clone();
    scene.server().tool("shout", "", move |_: NoArgs, cx: Context| {
        let scene = shout.clone();
        async move {
            let _alive = support::live_counter::LiveCounter::new(&scene.running);
            scene.changed.notify_waiters();
            for step in 1.. {
                cx.progress((f64::from(step), 1e9, "x".repeat(16 << 10)));
                tokio::task::yield_now().await;
            }
        }
    })
}

fn shout() -> String {
    let meta = stateless(json!({"_meta": {"progressToken": 1}}))["_meta"].clone();
    ask(1, "tools/call", json!({"name": "shout", "arguments": {}, "_meta": meta}))
}

#[test]
fn a_client_that_does_not_read_is_cut() {
    let scene = CallControls::new();
    let site = TestServer::start(shouting(&scene).http().write_timeout(SHORT_TIMEOUT).connection_timeouts(
        LONG_TIMEOUT,
        LONG_TIMEOUT,
        LONG_TIMEOUT,
    ));
    let mut deaf: Vec<_> = (0..3).map(|_| site.connect()).collect();
    for socket in &mut deaf {
        socket.write(shout());
    }
    for socket in &mut deaf {
        assert_eq!(socket.head().unwrap().0, 200);
    }
    site.until_tasks(0);
    assert_eq!(scene.running(), 0, "its calls were cancelled");
    is_alive(&site);
}

#[test]
fn connections_are_bounded() {
    let scene = CallControls::new();
    let site = TestServer::start(http(&scene).max_connections(2));
    let mut first = site.connect();
    first.write(echo(1));
    first.response().unwrap();
    let mut second = site.connect();
    second.write(echo(1));
    second.response().unwrap();
    let mut third = site.connect();
    third.write(echo(1));
    assert_eq!(third.response().unwrap().status, 200, "an idle connection makes room");
    site.until_tasks(2);
    assert_eq!(first.end(), "", "the one that was idle for longest");

    let site = TestServer::start(http(&scene).max_connections_per_address(2));
    let mut known: Vec<_> = (0..2).map(|_| site.connect()).collect();
    for socket in &mut known {
        socket.write(echo(1));
        socket.response().unwrap();
    }
    let mut third = site.connect();
    assert_eq!(third.response().unwrap().status, 503);
    known[0].write(echo(2));
    assert_eq!(known[0].response().unwrap().status, 200);
    known.pop();
    site.until_tasks(1);
    is_alive(&site);
}

#[test]
fn requests_in_one_go_are_answered_one_by_one() {
    let site = TestServer::start(http(&CallControls::new()));
    let mut socket = site.connect();
    socket.write((0..20).map(echo).collect::<String>());
    for id in 0..20 {
        let answer = socket.response().unwrap();
        assert!(answer.body.contains(&format!("\"m{id}\"")), "{}", answer.body);
    }
    // A rejected request does not affect the next one.
    let bad = post("{", "");
    socket.write(format!("{bad}{}{bad}{}", echo(1), echo(2)));
    let statuses: Vec<_> = (0..4).map(|_| socket.response().unwrap().status).collect();
    assert_eq!(statuses, [400, 200, 400, 200]);
}

#[test]
fn targets_and_versions_of_http() {
    let site = TestServer::start(http(&CallControls::new()));
    let request = echo(1);
    for (from, to, status) in [
        ("POST /mcp HTTP/1.1", "POST http://localhost/mcp HTTP/1.1", 200),
        ("POST /mcp HTTP/1.1", "POST http://evil.example/mcp HTTP/1.1", 403),
        ("POST /mcp HTTP/1.1", "POST /mcp?a=b HTTP/1.1", 200),
        ("POST /mcp HTTP/1.1", "POST /mcp HTTP/1.0", 200),
        ("POST /mcp HTTP/1.1", "POST /elsewhere HTTP/1.1", 404),
        ("POST /mcp HTTP/1.1", "POST * HTTP/1.1", 404),
        ("POST /mcp HTTP/1.1", "PUT /mcp HTTP/1.1", 405),
        ("Host: localhost\r\n", "", 403),
        ("Host: localhost\r\n", "Host: localhost\r\nHost: localhost\r\n", 403),
        ("Host: localhost\r\n", "Host: 127.0.0.1\r\n", 200),
        ("Host: localhost\r\n", "HOST:localhost\r\n", 200),
    ] {
        let mut socket = site.connect();
        socket.write(request.replace(from, to));
        let answer = socket.response().unwrap();
        assert_eq!(answer.status, status, "{to}: {}", answer.body);
        if to.ends_with("1.0") {
            assert_eq!(socket.end(), "", "such clients expect the end");
        }
    }
}

#[test]
fn a_stream_to_a_client_of_http_1_0_ends_with_the_connection() {
    let scene = CallControls::new();
    let site = TestServer::start(http(&scene));
    let mut socket = site.connect();
    socket.write(wait(3).replace("HTTP/1.1", "HTTP/1.0"));
    scene.step(3);
    let answer = socket.response().unwrap();
    assert!(!answer.head.contains("chunked"), "{}", answer.head);
    assert_eq!(answer.body.matches("notifications/progress").count(), 2);
    assert!(answer.body.contains("3 steps") && answer.body.ends_with("\n\n"));
}

#[test]
fn those_who_ask_first_are_told_to_go_on() {
    let site = TestServer::start(scene_with_cap().http());
    let mut socket = site.connect();
    let request = echo(1);
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    socket.write(format!("{head}\r\nExpect: 100-continue\r\n\r\n"));
    assert_eq!(socket.head().unwrap().0, 100);
    socket.write(body);
    assert_eq!(socket.response().unwrap().status, 200);
    // A body that would be rejected anyway is not requested.
    for (more, status) in
        [("Content-Length: 99999999\r\n", 413), ("Content-Encoding: gzip\r\nContent-Length: 5\r\n", 415)]
    {
        let mut socket = site.connect();
        socket.write(format!("POST /mcp HTTP/1.1\r\n{DEFAULT_HEADERS}{more}Expect: 100-continue\r\n\r\n"));
        assert_eq!(socket.response().unwrap().status, status);
    }
}

fn scene_with_cap() -> linchpin::Server {
    CallControls::new().server().max_message(64 << 10)
}

#[test]
fn a_body_that_is_too_long_is_refused_so_that_its_sender_learns_it() {
    let site = TestServer::start(scene_with_cap().http());
    let long = format!("{{\"x\":\"{}\"}}", "x".repeat(100 << 10));
    for _ in 0..20 {
        let mut socket = site.connect();
        socket.write(post(&long, ""));
        assert_eq!(socket.response().unwrap().status, 413);
        let mut chunked = site.connect();
        chunked.write(format!("POST /mcp HTTP/1.1\r\n{DEFAULT_HEADERS}Transfer-Encoding: chunked\r\n\r\n"));
        chunked.write(format!("{:x}\r\n{long}\r\n0\r\n\r\n", long.len()));
        assert_eq!(chunked.response().unwrap().status, 413);
    }
    // Also if much is in flight when the response is decided.
    let site_of_default = TestServer::start(CallControls::new().server().http());
    let longer = "x".repeat(7 << 20);
    for _ in 0..5 {
        let mut socket = site_of_default.connect();
        socket.write(post(&longer, ""));
        assert_eq!(socket.response().unwrap().status, 413);
    }
    // A client that does not stop sending is cut off.
    let mut endless = site.connect();
    endless.write(format!("POST /mcp HTTP/1.1\r\n{DEFAULT_HEADERS}Transfer-Encoding: chunked\r\n\r\n"));
    let chunk = format!("{:x}\r\n{}\r\n", 64 << 10, "x".repeat(64 << 10));
    let mut sent = 0;
    while endless.try_write(&chunk) {
        sent += 1;
        assert!(sent < 10_000, "it is read without end");
    }
    is_alive(&site);
}

#[test]
fn heads_are_bounded() {
    let site = TestServer::start(http(&CallControls::new()));
    for (more, status) in [
        (format!("X: {}\r\n", "x".repeat(10 << 10)), 200),
        (format!("X: {}\r\n", "x".repeat(20 << 10)), 431),
        (format!("X: {}\r\n", "x".repeat(1 << 20)), 431),
        ("X: y\r\n".repeat(80), 200),
        ("X: y\r\n".repeat(200), 431),
        (format!("{}: y\r\n", "x".repeat(70_000)), 431),
    ] {
        let mut socket = site.connect();
        socket.try_write(echo(1).replace("Accept:", &format!("{more}Accept:")));
        assert_eq!(socket.head().map(|head| head.0), Some(status), "{more:.10} of {}", more.len());
    }
    let mut socket = site.connect();
    socket.try_write(echo(1).replace("/mcp", &format!("/{}", "x".repeat(100_000))));
    let status = socket.head().map(|head| head.0);
    assert!(matches!(status, Some(414 | 431)), "{status:?}");
    is_alive(&site);
}

#[test]
fn what_is_no_http_is_turned_away() {
    let site = TestServer::start(http(&CallControls::new()));
    let request = echo(1);
    let body = request.split_once("\r\n\r\n").unwrap().1;
    let length = format!("Content-Length: {}\r\n", body.len());
    let broken = [
        "\0\0\0\0\r\n\r\n".to_owned(),
        "hello\r\n\r\n".into(),
        "{\"jsonrpc\":\"2.0\"}\r\n\r\n".into(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(),
        "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\u{fc}\u{3}\u{3}".into(),
        "GET\r\n\r\n".into(),
        request.replace("HTTP/1.1", "HTTP/9.9"),
        request.replace("POST /mcp", "POST /m cp"),
        request.replace("Host: ", "Host : "),
        request.replace("Host: localhost", "Host: localhost\r\n folded"),
        request.replace("Host: localhost", "Ho\0st: localhost"),
        request.replace("Host: localhost", "Host: local\0host"),
        request.replace(&length, &format!("{length}Content-Length: 5\r\n")),
        request.replace(&length, "Content-Length: -1\r\n"),
        request.replace(&length, "Content-Length: +5\r\n"),
        request.replace(&length, "Content-Length: 5, 6\r\n"),
        request.replace(&length, "Content-Length: 99999999999999999999\r\n"),
        request.replace(&length, "Transfer-Encoding: gzip\r\n"),
        request.replace(&length, "Transfer-Encoding: chunked, gzip\r\n"),
        request.replace(&length, "Transfer-Encoding: identity\r\n"),
        request.replace(&length, "Transfer-Encoding: chunked\r\n"),
        request.replace(&length, "Transfer-Encoding: chunked\r\n").replace(body, "-5\r\nhello\r\n0\r\n\r\n"),
        request.replace(&length, "Transfer-Encoding: chunked\r\n").replace(body, "ffffffffffffffffff\r\n"),
        request.replace(&length, "Transfer-Encoding: chunked\r\n").replace("HTTP/1.1", "HTTP/1.0"),
    ];
    let mut refused = 0;
    for bytes in &broken {
        let mut socket = site.connect();
        socket.write(bytes);
        socket.end_writing();
        let said = socket.end();
        assert!(
            said.is_empty() || said.starts_with("HTTP/1.1 4") || said.starts_with("HTTP/1.0 4"),
            "{bytes:?}: {said}"
        );
        assert!(!said.contains("m1"), "{bytes:?}");
        refused += 1;
    }
    eprintln!("malformed: rejected={refused} accepted=0");
    assert_eq!(refused, 24);
    is_alive(&site);
}

#[test]
fn two_lengths_are_one_request() {
    let site = TestServer::start(http(&CallControls::new()));
    let hidden = echo(2);
    let body = format!("0\r\n\r\n{hidden}");
    let mut socket = site.connect();
    socket.write(format!(
        "POST /mcp HTTP/1.1\r\n{DEFAULT_HEADERS}Content-Length: {}\r\nTransfer-Encoding: chunked\r\n\r\n{body}",
        body.len()
    ));
    let said = socket.end();
    assert_eq!(said.matches("HTTP/1.1 ").count(), 1, "{said}");
    assert!(said.starts_with("HTTP/1.1 400") && !said.contains("m2"), "{said}");
    is_alive(&site);
}

#[test]
fn a_client_that_closes_at_any_byte_leaves_nothing_behind() {
    let scene = CallControls::new();
    let site = TestServer::start(http(&scene));
    let open = post(&json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize("2025-11-25", &json!({}))}).to_string(), "");
    let mut first = site.connect();
    first.write(&open);
    let id = first.response().unwrap();
    let id = id.head.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap().to_owned();
    let session = format!("mcp-session-id: {id}\r\n");
    let slow = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "wait", "arguments": {"count": 0}}});
    let get = format!("GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{session}\r\n");
    let delete = "DELETE /mcp HTTP/1.1\r\nHost: localhost\r\nmcp-session-id: x\r\n\r\n".to_owned();
    drop(first);
    // The session reaper stays.
    site.until_tasks(1);
    let mut cuts = 0;
    for request in [echo(1), wait(2), post(&slow.to_string(), &session), get, delete] {
        for at in 0..=request.len() {
            let mut socket = site.connect();
            socket.write(&request[..at]);
            drop(socket);
            cuts += 1;
        }
        is_alive(&site); // so all earlier connections have been accepted
        site.until_tasks(1);
        assert_eq!(scene.running(), 0);
    }
    eprintln!("{cuts} connections were cut");
    let mut back = site.connect();
    let get = format!("GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{session}\r\n");
    back.write(get);
    assert_eq!(back.head().unwrap().0, 200, "the stream of the session is free again");
    is_alive(&site);
}

#[test]
fn a_disconnect_is_noticed_while_a_call_works() {
    let scene = CallControls::new();
    let site = TestServer::start(http(&scene));
    for streams in [false, true] {
        let mut socket = site.connect();
        socket.write(wait(3));
        block(scene.until_alive(1));
        if streams {
            scene.step(1);
            assert!(socket.head().unwrap().1.contains("text/event-stream"));
            assert!(socket.chunk().unwrap().contains("notifications/progress"));
        }
        drop(socket);
        block(scene.until_alive(0));
        site.until_tasks(0);
    }
    assert_eq!(scene.finished(), 0);
}

#[test]
fn a_server_ends_in_good_order() {
    let scene = CallControls::new();
    let mut site = TestServer::start(http(&scene).legacy_sse());
    let (mut silent, mut idle, mut busy, mut listening, mut old) =
        (site.connect(), site.connect(), site.connect(), site.connect(), site.connect());
    idle.write(echo(1));
    idle.response().unwrap();
    busy.write(wait(1));
    listening.write(ask(9, "subscriptions/listen", json!({"notifications": {"toolsListChanged": true}})));
    listening.head().unwrap();
    assert!(listening.chunk().unwrap().contains("acknowledged"));
    old.write("GET /sse HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n");
    old.head().unwrap();
    assert!(old.chunk().unwrap().contains("endpoint"));
    block(scene.until_alive(1));
    site.stop();
    assert_eq!((silent.end(), idle.end()), (String::new(), String::new()));
    assert_eq!(old.chunk(), None);
    assert!(listening.chunk().unwrap().contains("\"id\":9"), "it gets a response");
    assert_eq!(listening.chunk(), None);
    assert!(std::net::TcpStream::connect(site.address).is_err(), "no new connection is accepted");
    scene.step(1);
    let answer = busy.response().unwrap();
    assert!(answer.body.contains("1 steps"), "{}", answer.body);
    assert_eq!(busy.end(), "");
    assert!(site.stop_and_wait() < TEST_TIMEOUT);
}

#[test]
fn a_server_does_not_wait_for_ever() {
    let scene = CallControls::new();
    let site = TestServer::start(scene.server().shutdown_timeout(SHORT_TIMEOUT).http());
    let mut busy = site.connect();
    busy.write(wait(1));
    block(scene.until_alive(1));
    assert!(site.stop_and_wait() < TEST_TIMEOUT);
    assert_eq!(busy.end(), "");
    assert_eq!(scene.running(), 0);
}

/// Process that `a_process_is_told_to_end` starts: the test binary itself, with an address to serve.
#[cfg(target_os = "linux")]
struct Process(std::process::Child);

#[cfg(target_os = "linux")]
impl Process {
    const ADDRESS: &str = "LINCHPIN_SERVES_AT";

    fn start(address: std::net::SocketAddr) -> Self {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "a_process_is_told_to_end"]).env(Self::ADDRESS, address.to_string());
        Process(command.stdout(std::process::Stdio::null()).spawn().unwrap())
    }

    /// Connects once the process listens.
    fn connect(&mut self, address: std::net::SocketAddr) -> Socket {
        let begun = Instant::now();
        loop {
            match Socket::connect(address) {
                Ok(socket) => return socket,
                Err(error) => assert!(begun.elapsed() < TEST_TIMEOUT, "{error}"),
            }
            assert_eq!(self.0.try_wait().unwrap(), None);
            std::thread::yield_now();
        }
    }

    /// Serves a tool that finishes when the process is asked to end.
    async fn serve(address: &str) -> linchpin::Result {
        let server =
            linchpin::Server::new("told", "1").tool("wait", "", |_: NoArgs, cx: Context| async move {
                let mut told = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
                cx.progress(1.0);
                told.recv().await;
                linchpin::Result::Ok("told")
            });
        server.serve(address).await
    }
}

#[cfg(target_os = "linux")]
impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have exited
        let _ = self.0.wait();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_process_is_told_to_end() {
    if let Some(address) = std::env::var_os(Process::ADDRESS) {
        return block(Process::serve(address.to_str().unwrap())).unwrap();
    }
    // All of 127.0.0.0/8 is this machine, and no other process uses this part of it.
    let [_, a, b, c] = std::process::id().to_be_bytes();
    let address = ([127, a, b, c], 23_571).into();
    let mut process = Process::start(address);
    let (mut busy, mut listening) = (process.connect(address), process.connect(address));
    let meta = stateless(json!({"_meta": {"progressToken": 1}}))["_meta"].clone();
    busy.write(ask(1, "tools/call", json!({"name": "wait", "_meta": meta})));
    busy.head().unwrap();
    assert!(busy.chunk().unwrap().contains("notifications/progress"));
    listening.write(ask(9, "subscriptions/listen", json!({"notifications": {"toolsListChanged": true}})));
    listening.head().unwrap();
    assert!(listening.chunk().unwrap().contains("acknowledged"));
    let pid = rustix::process::Pid::from_child(&process.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(busy.chunk().unwrap().contains("\"told\""), "it gets a response");
    assert_eq!((busy.chunk(), busy.end()), (None, String::new()));
    assert!(listening.chunk().unwrap().contains("\"id\":9"), "it gets a response");
    assert_eq!((listening.chunk(), listening.end()), (None, String::new()));
    assert_eq!(process.0.wait().unwrap().code(), Some(0));
}

#[test]
fn a_session_over_sockets() {
    let scene = CallControls::new();
    let site = TestServer::start(http(&scene));
    let mut socket = site.connect();
    let params = initialize("2025-11-25", &json!({}));
    socket.write(post(
        &json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).to_string(),
        "",
    ));
    let opened = socket.response().unwrap();
    let id = opened.head.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap();
    let session = format!("mcp-session-id: {id}\r\nmcp-protocol-version: 2025-11-25\r\n");
    let send = |socket: &mut Socket, message: Value| {
        socket.write(post(&message.to_string(), &session));
        socket.response().unwrap()
    };
    let noted = send(&mut socket, json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    assert_eq!((noted.status, &*noted.body), (202, ""));
    let params = json!({"name": "wait", "arguments": {"count": 2}, "_meta": {"progressToken": 1}});
    let message = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params});
    let mut call = site.connect();
    call.write(post(&message.to_string(), &session));
    block(scene.until_alive(1));
    scene.step(1);
    call.head().unwrap();
    let mut seen = String::new();
    while !seen.contains("notifications/progress") {
        seen += &call.chunk().unwrap();
    }
    drop(call);
    scene.step(1);
    block(scene.until_alive(0));
    let last = seen.lines().filter_map(|line| line.strip_prefix("id: ")).next_back().unwrap();
    socket.write(format!(
        "GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nLast-Event-ID: {last}\r\n{session}\r\n"
    ));
    let rest = socket.response().unwrap();
    assert!(rest.body.contains("2 steps") && !rest.body.contains("progress"), "{}", rest.body);
    socket.write(format!("DELETE /mcp HTTP/1.1\r\nHost: localhost\r\n{session}\r\n"));
    assert_eq!(socket.response().unwrap().status, 204);
    assert_eq!(send(&mut socket, json!({"jsonrpc": "2.0", "id": 3, "method": "ping"})).status, 404);
}
