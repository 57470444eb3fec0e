//! A hub that listens, a server for it, and a client that writes bytes into sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use linchpin::egress::Egress;
use linchpin::server::Handle;
use linchpin::server::web::Listener;
use linchpin_hub_core::hub::{Hub, Options as HubOptions};
use linchpin_hub_core::vault::KeyFile;
use linchpin_hub_core::world::System;
use linchpin_hub_http::{Options, Web};
use linchpin_hub_store::Sqlite;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::upstream::upstream;

/// How long something may take. Only a failing test waits that long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A hub that listens, with one server.
pub(crate) struct Site {
    pub(crate) hub: Arc<Hub>,
    pub(crate) web: Web,
    pub(crate) address: SocketAddr,
    /// The URL of the server.
    pub(crate) upstream: String,
    /// The server, to be changed.
    pub(crate) handle: Handle,
    /// How often a tool did something.
    pub(crate) ran: Arc<AtomicUsize>,
    /// The server tells that `wait` has begun, and is told to let it go on.
    pub(crate) begun: Arc<Notify>,
    pub(crate) go_on: Arc<Notify>,
    /// A token of the person.
    pub(crate) token: String,
    pub(crate) place: TempDir,
    running: JoinSet<()>,
}

/// An answer, whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut of = lines.filter(|(known, _)| known.eq_ignore_ascii_case(name));
        of.next().map(|(_, value)| value)
    }

    /// The answer is as it should be: a value.
    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert!((200..300).contains(&self.status), "{self:?}");
        if self.body.is_empty() { Value::Null } else { self.json() }
    }

    /// The answer is a problem with this status and code.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!((&problem["code"], &problem["status"]), (&json!(code), &json!(status)), "{self:?}");
        assert_eq!(problem["type"], format!("urn:linchpin:problem:{code}"));
        assert!(problem["title"].is_string() && problem["detail"].is_string(), "{self:?}");
        problem
    }

    /// The answer is that something is wrong with this field.
    #[track_caller]
    pub(crate) fn wrong(&self, field: &str) {
        assert_eq!(self.status, 422, "{self:?}");
        assert_eq!(self.json()["field"], field, "{self:?}");
    }
}

impl Site {
    pub(crate) async fn new() -> Self {
        Self::with(Options::default()).await
    }

    pub(crate) async fn with(options: Options) -> Self {
        let place = tempfile::tempdir().unwrap();
        let store = Arc::new(Sqlite::open(&place.path().join("hub.db")).unwrap());
        let (keys, _) = KeyFile::open(&place.path().join("keys"), &System).unwrap();
        let listener = Listener::bind("127.0.0.1:0").await.unwrap();
        let callback = Some(format!("{}/oauth/callback", listener.origin()));
        let hub_options = HubOptions { callback, ..HubOptions::default() };
        let hub = Hub::new(Arc::new(System), store, keys, Egress::default(), hub_options);
        let (hub, mut running) = (Arc::new(hub), JoinSet::new());
        hub.ensure_local().await.unwrap();
        let web = Web::new(hub.clone(), Arc::new(System), options);
        let (address, service) = (listener.address(), web.service());
        running.spawn(async move { listener.run_until(std::future::pending(), service).await.unwrap() });
        let (ran, begun, go_on) = (Arc::default(), Arc::default(), Arc::default());
        let mut mcp = upstream(&ran, &begun, &go_on, &Arc::default());
        let handle = mcp.handle();
        let listening = mcp.http().bind("127.0.0.1:0").await.unwrap();
        let upstream = listening.url();
        running.spawn(async move { listening.run_until(std::future::pending()).await.unwrap() });
        let token = hub.process_token().expose().to_owned();
        Site { hub, web, address, upstream, handle, ran, begun, go_on, token, place, running }
    }

    /// With the server, by the slug `up`.
    pub(crate) async fn with_server() -> Self {
        let site = Self::new().await;
        let form = json!({"name": "Up", "url": site.upstream, "retry_attempts": 0});
        assert_eq!(site.post("/servers", form).await.ok()["slug"], "up");
        site.post("/servers/up/sync", json!({})).await.ok();
        site
    }

    /// An agent that may use everything of the server: its id, and a token.
    pub(crate) async fn agent(&self, approval: &str) -> (String, String) {
        let servers = json!({"up": {}});
        let form = json!({"name": format!("agent {approval}"), "approval": approval, "servers": servers});
        let agent = self.post("/agents", form).await.ok();
        let id = agent["id"].as_str().unwrap().to_owned();
        let issued = self.post(&format!("/agents/{id}/tokens"), json!({"name": "test"})).await.ok();
        (id, issued["token"].as_str().unwrap().to_owned())
    }

    pub(crate) fn ran(&self) -> usize {
        self.ran.load(Ordering::SeqCst)
    }

    /// Sends bytes on a connection of their own, and reads until it is closed.
    pub(crate) async fn raw(&self, request: &[u8]) -> Answer {
        exchange(self.address, request).await
    }

    /// Sends the head of a request and waits for the interim response.
    pub(crate) async fn begun(&self, head: &str, interim: &str) -> Begun {
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        socket.write_all(head.as_bytes()).await.unwrap();
        let mut bytes = vec![0; interim.len()];
        let read = tokio::time::timeout(PATIENCE, socket.read_exact(&mut bytes)).await;
        read.expect("there is no answer in time").unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap(), interim);
        Begun(socket)
    }

    /// A request with these headers.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&str>,
    ) -> Answer {
        let mut lines = vec![format!("{method} {path} HTTP/1.1"), "Connection: close".to_owned()];
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            lines.push(format!("Host: {}", self.address));
        }
        lines.extend(headers.iter().map(|(name, value)| format!("{name}: {value}")));
        lines.extend(body.map(|body| format!("Content-Length: {}", body.len())));
        let head = lines.join("\r\n") + "\r\n\r\n";
        self.raw((head + body.unwrap_or_default()).as_bytes()).await
    }

    /// A request of the API, with a token.
    pub(crate) async fn by(&self, token: &str, method: &str, path: &str, body: Option<Value>) -> Answer {
        let (authorization, body) = (format!("Bearer {token}"), body.map(|body| body.to_string()));
        let mut headers = vec![("Authorization", &*authorization)];
        headers.extend(body.as_ref().map(|_| ("Content-Type", "application/json")));
        self.send(method, &format!("/api/v1{path}"), &headers, body.as_deref()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.by(&self.token, "GET", path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.by(&self.token, "POST", path, Some(body)).await
    }

    pub(crate) async fn patch(&self, path: &str, body: Value) -> Answer {
        self.by(&self.token, "PATCH", path, Some(body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Answer {
        self.by(&self.token, "PUT", path, Some(body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.by(&self.token, "DELETE", path, None).await
    }

    /// Signs in with a browser: the cookie, and what its pages send.
    pub(crate) async fn sign_in(&self) -> (String, String) {
        let once = self.hub.one_time().await.unwrap().unwrap();
        let answer = self.send("GET", &format!("/sign-in?token={}", once.expose()), &[], None).await;
        assert_eq!((answer.status, answer.header("location")), (303, Some("/")), "{answer:?}");
        let cookie = answer.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        let session = self.send("GET", "/api/v1/session", &[("Cookie", &cookie)], None).await.ok();
        (cookie, session["csrf_token"].as_str().unwrap().to_owned())
    }

    /// The name of the session cookie.
    pub(crate) fn cookie_name(&self) -> String {
        format!("linchpin-{}", self.address.port())
    }

    /// The origin of the page.
    pub(crate) fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ends in good order.
    pub(crate) async fn end(mut self) {
        self.web.close();
        self.running.shutdown().await;
    }
}

/// A request whose head was sent.
pub(crate) struct Begun(TcpStream);

impl Begun {
    /// Sends the body and reads the response.
    pub(crate) async fn finish(self, body: &str) -> Answer {
        finish(self.0, body.as_bytes()).await
    }
}

/// Sends bytes, and reads until the connection is closed.
pub(crate) async fn exchange(address: SocketAddr, request: &[u8]) -> Answer {
    finish(TcpStream::connect(address).await.unwrap(), request).await
}

async fn finish(mut socket: TcpStream, request: &[u8]) -> Answer {
    let exchange = async {
        let _ = socket.write_all(request).await; // it may be closed before everything was read
        let mut bytes = Vec::new();
        let _ = socket.read_to_end(&mut bytes).await; // or reset, when it did not read everything
        bytes
    };
    let bytes = tokio::time::timeout(PATIENCE, exchange).await.expect("there is no answer in time");
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if is_chunked { unchunked(body) } else { body.to_owned() };
    Answer { status, head: head.to_owned(), body }
}

fn unchunked(mut body: &str) -> String {
    let mut all = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            break;
        }
        all.push_str(&rest[..size]);
        body = &rest[size + 2..];
    }
    all
}
