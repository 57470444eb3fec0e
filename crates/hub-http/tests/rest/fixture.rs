//! Test fixture: a listening hub, an upstream server, and a client on raw sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use linchpin::egress::Egress;
use linchpin::server::ServerHandle;
use linchpin::server::web::Listener;
use linchpin_hub_core::hub::{Hub, HubOptions};
use linchpin_hub_core::platform::SystemPlatform;
use linchpin_hub_core::vault::KeyFile;
use linchpin_hub_http::{HttpOptions, HubService};
use linchpin_hub_store::Sqlite;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::upstream::upstream;

/// Timeout of a response. Only a failing test waits that long.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Listening hub with one upstream server.
pub(crate) struct Site {
    pub(crate) hub: Arc<Hub>,
    pub(crate) web: HubService,
    pub(crate) address: SocketAddr,
    /// URL of the upstream server.
    pub(crate) upstream: String,
    /// Upstream server, which tests can modify.
    pub(crate) handle: ServerHandle,
    /// Number of executed tool calls.
    pub(crate) ran: Arc<AtomicUsize>,
    /// Signals of the tool `wait`: started, and permission to continue.
    pub(crate) begun: Arc<Notify>,
    pub(crate) go_on: Arc<Notify>,
    /// API token of the user.
    pub(crate) token: String,
    pub(crate) place: TempDir,
    running: JoinSet<()>,
}

/// Complete response.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl HttpResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut of = lines.filter(|(known, _)| known.eq_ignore_ascii_case(name));
        of.next().map(|(_, value)| value)
    }

    /// Asserts a successful JSON response and returns its value.
    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert!((200..300).contains(&self.status), "{self:?}");
        if self.body.is_empty() { Value::Null } else { self.json() }
    }

    /// Asserts a problem with this status and code.
    #[track_caller]
    pub(crate) fn assert_problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!((&problem["code"], &problem["status"]), (&json!(code), &json!(status)), "{self:?}");
        assert_eq!(problem["type"], format!("urn:linchpin:problem:{code}"));
        assert!(problem["title"].is_string() && problem["detail"].is_string(), "{self:?}");
        problem
    }

    /// Asserts a problem about this field.
    #[track_caller]
    pub(crate) fn assert_invalid_field(&self, field: &str) {
        assert_eq!(self.status, 422, "{self:?}");
        assert_eq!(self.json()["field"], field, "{self:?}");
    }
}

impl Site {
    pub(crate) async fn new() -> Self {
        Self::with(HttpOptions::default()).await
    }

    pub(crate) async fn with(options: HttpOptions) -> Self {
        let place = tempfile::tempdir().unwrap();
        let store = Arc::new(Sqlite::open(&place.path().join("hub.db")).unwrap());
        let (keys, _) = KeyFile::open(&place.path().join("keys"), &SystemPlatform).unwrap();
        let listener = Listener::bind("127.0.0.1:0").await.unwrap();
        let callback = Some(format!("{}/oauth/callback", listener.origin()));
        let hub_options = HubOptions { callback, ..HubOptions::default() };
        let hub = Hub::new(Arc::new(SystemPlatform), store, keys, Egress::default(), hub_options);
        let (hub, mut running) = (Arc::new(hub), JoinSet::new());
        hub.identity().ensure_local_user().await.unwrap();
        let web = HubService::new(hub.clone(), Arc::new(SystemPlatform), options);
        let (address, service) = (listener.address(), web.service());
        running.spawn(async move { listener.run_until(std::future::pending(), service).await.unwrap() });
        let (ran, begun, go_on) = (Arc::default(), Arc::default(), Arc::default());
        let mut mcp = upstream(&ran, &Arc::default(), &begun, &go_on, &Arc::default());
        let handle = mcp.handle();
        let listening = mcp.http().bind("127.0.0.1:0").await.unwrap();
        let upstream = listening.url();
        running.spawn(async move { listening.run_until(std::future::pending()).await.unwrap() });
        let token = hub.identity().process_token().expose().to_owned();
        Site { hub, web, address, upstream, handle, ran, begun, go_on, token, place, running }
    }

    /// Starts a hub with the upstream server added as `up`.
    pub(crate) async fn with_server() -> Self {
        let site = Self::new().await;
        let form = json!({"name": "Up", "url": site.upstream, "retry_attempts": 0});
        assert_eq!(site.post("/servers", form).await.ok()["slug"], "up");
        site.post("/servers/up/sync", json!({})).await.ok();
        site
    }

    /// Adds an agent that may use the whole server. Returns its id and a token.
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

    /// Sends bytes on a separate connection and reads until it is closed.
    pub(crate) async fn raw(&self, request: &[u8]) -> HttpResponse {
        exchange(self.address, request).await
    }

    /// Sends the head of a request and waits for the interim response.
    pub(crate) async fn send_head(&self, head: &str, interim: &str) -> PendingRequest {
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        socket.write_all(head.as_bytes()).await.unwrap();
        let mut bytes = vec![0; interim.len()];
        let read = tokio::time::timeout(RESPONSE_TIMEOUT, socket.read_exact(&mut bytes)).await;
        read.expect("no response within the timeout").unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap(), interim);
        PendingRequest(socket)
    }

    /// Sends a request with these headers.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&str>,
    ) -> HttpResponse {
        let mut lines = vec![format!("{method} {path} HTTP/1.1"), "Connection: close".to_owned()];
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            lines.push(format!("Host: {}", self.address));
        }
        lines.extend(headers.iter().map(|(name, value)| format!("{name}: {value}")));
        lines.extend(body.map(|body| format!("Content-Length: {}", body.len())));
        let head = lines.join("\r\n") + "\r\n\r\n";
        self.raw((head + body.unwrap_or_default()).as_bytes()).await
    }

    /// Sends an API request with a token.
    pub(crate) async fn send_as(
        &self,
        token: &str,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> HttpResponse {
        let (authorization, body) = (format!("Bearer {token}"), body.map(|body| body.to_string()));
        let mut headers = vec![("Authorization", &*authorization)];
        headers.extend(body.as_ref().map(|_| ("Content-Type", "application/json")));
        self.send(method, &format!("/api/v1{path}"), &headers, body.as_deref()).await
    }

    pub(crate) async fn get(&self, path: &str) -> HttpResponse {
        self.send_as(&self.token, "GET", path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> HttpResponse {
        self.send_as(&self.token, "POST", path, Some(body)).await
    }

    pub(crate) async fn patch(&self, path: &str, body: Value) -> HttpResponse {
        self.send_as(&self.token, "PATCH", path, Some(body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> HttpResponse {
        self.send_as(&self.token, "PUT", path, Some(body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> HttpResponse {
        self.send_as(&self.token, "DELETE", path, None).await
    }

    /// Logs in as a browser. Returns the cookie and the CSRF token.
    pub(crate) async fn sign_in(&self) -> (String, String) {
        let once = self.hub.identity().create_login_link().await.unwrap().unwrap();
        let answer = self.send("GET", &format!("/sign-in?token={}", once.expose()), &[], None).await;
        assert_eq!((answer.status, answer.header("location")), (303, Some("/")), "{answer:?}");
        let cookie = answer.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        let session = self.send("GET", "/api/v1/session", &[("Cookie", &cookie)], None).await.ok();
        (cookie, session["csrf_token"].as_str().unwrap().to_owned())
    }

    /// Returns the name of the session cookie.
    pub(crate) fn cookie_name(&self) -> String {
        format!("linchpin-{}", self.address.port())
    }

    /// Returns the origin of the hub.
    pub(crate) fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Shuts down gracefully.
    pub(crate) async fn shut_down(mut self) {
        self.web.close();
        self.running.shutdown().await;
    }
}

/// Request whose head was sent.
pub(crate) struct PendingRequest(TcpStream);

impl PendingRequest {
    /// Sends the body and reads the response.
    pub(crate) async fn finish(self, body: &str) -> HttpResponse {
        finish(self.0, body.as_bytes()).await
    }
}

/// Sends bytes and reads until the connection is closed.
pub(crate) async fn exchange(address: SocketAddr, request: &[u8]) -> HttpResponse {
    finish(TcpStream::connect(address).await.unwrap(), request).await
}

async fn finish(mut socket: TcpStream, request: &[u8]) -> HttpResponse {
    let exchange = async {
        let _ = socket.write_all(request).await; // the hub may close the connection before it has read everything
        let mut bytes = Vec::new();
        let _ = socket.read_to_end(&mut bytes).await; // or reset it, if it did not read everything
        bytes
    };
    let bytes =
        tokio::time::timeout(RESPONSE_TIMEOUT, exchange).await.expect("no response within the timeout");
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("not a response: {text}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if is_chunked { decode_chunked(body) } else { body.to_owned() };
    HttpResponse { status, head: head.to_owned(), body }
}

fn decode_chunked(mut body: &str) -> String {
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
