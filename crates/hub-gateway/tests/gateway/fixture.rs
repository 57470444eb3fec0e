//! Test fixture: a hub with its gateway, and an upstream server that counts its executions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use linchpin::client::RevisionCache;
use linchpin::egress::Egress;
use linchpin::server::ServerHandle;
use linchpin::server::web::Listener;
use linchpin::{Client, ClientBuilder, NoArgs, Revision, Server, args};
use linchpin_hub_core::events::EventSubscription;
use linchpin_hub_core::hub::{ApprovalView, Hub, HubOptions, LOCAL, LOCAL_USER};
use linchpin_hub_core::id::AgentId;
use linchpin_hub_core::platform::SystemPlatform;
use linchpin_hub_core::store::{ApprovalStatus, PageRequest};
use linchpin_hub_core::vault::KeyFile;
use linchpin_hub_core::{Actor, Subject};
use linchpin_hub_http::{HttpOptions, HubService};
use linchpin_hub_store::Sqlite;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Time limit of a wait. Only a failing test reaches it.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Actor of the local user.
pub(crate) const USER: Actor = Actor::new(LOCAL, Subject::User(LOCAL_USER));

#[args]
struct Message {
    message: String,
}

/// Hub with its gateway and the upstream server `up`.
pub(crate) struct Site {
    pub(crate) hub: Arc<Hub>,
    /// URL of the hub.
    pub(crate) url: String,
    /// API token of the user.
    pub(crate) token: String,
    /// Handle of the upstream server.
    pub(crate) upstream: ServerHandle,
    /// Number of executions of `echo`.
    pub(crate) executions: Arc<AtomicUsize>,
    _directory: TempDir,
    tasks: JoinSet<()>,
}

/// Agent with a token for the gateway.
pub(crate) struct TestAgent {
    pub(crate) id: AgentId,
    pub(crate) name: String,
    pub(crate) token: String,
}

pub(crate) async fn within_timeout<T>(future: impl Future<Output = T>) -> T {
    timeout(TEST_TIMEOUT, future).await.expect("no result within the timeout")
}

impl Site {
    pub(crate) async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Arc::new(Sqlite::open(&directory.path().join("hub.db")).unwrap());
        let (keys, _) = KeyFile::open(&directory.path().join("keys"), &SystemPlatform).unwrap();
        let (platform, options) = (Arc::new(SystemPlatform), HubOptions::default());
        let hub = Arc::new(Hub::new(platform.clone(), store, keys, Egress::default(), options));
        hub.identity().ensure_local_user().await.unwrap();
        let web = HubService::new(hub.clone(), platform, HttpOptions::default());
        let listener = Listener::bind("127.0.0.1:0").await.unwrap();
        let (url, service, gateway) = (listener.origin(), web.service(), web.gateway().clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { listener.run_until(std::future::pending(), service).await.unwrap() });
        tasks.spawn(async move { gateway.run(std::future::pending()).await });
        tasks.spawn(hub.clone().run(std::future::pending()));
        let token = hub.identity().process_token().expose().to_owned();
        let executions = Arc::<AtomicUsize>::default();
        let counted = executions.clone();
        let mut server = Server::new("up", "1")
            .tool("echo", "Repeats a message", move |Message { message }| {
                counted.fetch_add(1, Ordering::SeqCst);
                async move { message }
            })
            .tool("time", "Is not granted to every agent", |_: NoArgs| async { "12:00" });
        let upstream = server.handle();
        let mut site = Site { hub, url, token, upstream, executions, _directory: directory, tasks };
        site.add_server("up", server).await;
        site
    }

    /// Starts an upstream server and adds it to the hub.
    pub(crate) async fn add_server(&mut self, slug: &str, server: Server) {
        let endpoint = server.http().bind("127.0.0.1:0").await.unwrap();
        let form = json!({ "name": slug, "url": endpoint.url(), "retry_attempts": 0 });
        self.tasks.spawn(async move { endpoint.run_until(std::future::pending()).await.unwrap() });
        self.hub.registry().add_server(USER, form).await.unwrap();
        self.hub.registry().sync_server(USER, slug, None).await.unwrap();
    }

    /// Adds an agent with these fields, and a token of it.
    pub(crate) async fn agent(&self, name: &str, fields: Value) -> TestAgent {
        let mut form = json!({ "name": name, "servers": { "up": {} } });
        form.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let agent = self.hub.identity().add_agent(USER, form).await.unwrap();
        let id = agent.summary.id;
        let issued = self.hub.identity().issue_token(USER, Subject::Agent(id), "test", None).await;
        TestAgent { id, name: name.to_owned(), token: issued.unwrap().0.expose().to_owned() }
    }

    /// Creates a client of the gateway with this token.
    pub(crate) fn client(&self, token: &str, revision: Revision) -> ClientBuilder {
        self.client_at("/mcp", token, revision)
    }

    /// Creates a client at a path of the gateway.
    pub(crate) fn client_at(&self, path: &str, token: &str, revision: Revision) -> ClientBuilder {
        Client::http(format!("{}{path}", self.url))
            .header("Authorization", format!("Bearer {token}"))
            .boxed()
            .revisions([revision])
            .revision_cache(RevisionCache::new())
    }

    pub(crate) fn executions(&self) -> usize {
        self.executions.load(Ordering::SeqCst)
    }

    /// Subscribes to the events of the hub.
    pub(crate) fn events(&self) -> EventSubscription {
        self.hub.events().subscribe(LOCAL, None)
    }

    pub(crate) async fn open_approvals(&self) -> Vec<ApprovalView> {
        let paging = PageRequest { after: None, limit: 100 };
        let open = self.hub.calls().approvals(USER, Some(ApprovalStatus::Open), &paging).await;
        open.unwrap().items
    }

    /// Waits for an open approval. `events` must be subscribed before the call is sent.
    pub(crate) async fn next_approval(&self, events: &mut EventSubscription) -> ApprovalView {
        within_timeout(async {
            loop {
                if let Some(open) = self.open_approvals().await.pop() {
                    return open;
                }
                let _ = events.next().await;
            }
        })
        .await
    }
}

/// Response of the gateway to one request.
pub(crate) struct RawResponse {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl RawResponse {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

impl Site {
    /// Posts one message to the gateway, on a connection of its own.
    pub(crate) async fn post(
        &self,
        path: &str,
        token: &str,
        session: Option<&str>,
        message: &Value,
    ) -> RawResponse {
        let mut socket = self.send(path, token, session, message).await;
        let mut text = String::new();
        within_timeout(socket.read_to_string(&mut text)).await.unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        RawResponse { status, head: head.to_owned(), body: body.to_owned() }
    }

    /// Sends one message to the gateway, and returns the connection without reading the response.
    pub(crate) async fn send(
        &self,
        path: &str,
        token: &str,
        session: Option<&str>,
        message: &Value,
    ) -> TcpStream {
        let (host, body) = (self.url.strip_prefix("http://").unwrap(), message.to_string());
        let session = session.map(|id| format!("Mcp-Session-Id: {id}\r\n")).unwrap_or_default();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n{session}\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut socket = TcpStream::connect(host).await.unwrap();
        socket.write_all(request.as_bytes()).await.unwrap();
        socket
    }

    /// Opens a session of a client with these capabilities, and returns its id.
    pub(crate) async fn open_session(&self, token: &str, capabilities: &Value) -> String {
        let initialize = json!({
            "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
                "protocolVersion": Revision::LATEST_SESSION.as_str(), "capabilities": capabilities,
                "clientInfo": { "name": "t", "version": "1" },
            },
        });
        let opened = self.post("/mcp", token, None, &initialize).await;
        assert_eq!(opened.status, 200, "{}", opened.body);
        let session = opened.header("mcp-session-id").unwrap().to_owned();
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(self.post("/mcp", token, Some(&session), &initialized).await.status, 202);
        session
    }
}
