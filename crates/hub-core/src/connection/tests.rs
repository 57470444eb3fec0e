//! Tests with real servers in this process.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use linchpin::server::HttpEndpoint;
use linchpin::{NoArgs, Server as Mcp};
use tokio::task::JoinSet;

use super::*;
use crate::events::{EventSubscription, NewEvent};
use crate::id::{AgentId, UserId};
use crate::platform::tests::FixedPlatform;
use crate::server::{Authentication, ProgramSpec, RemoteEndpoint, ServerSettings, Transport};
use crate::tool::names::Slug;

const ADA: TenantId = TenantId::from_u128(1);
const BOB: TenantId = TenantId::from_u128(2);
/// Long enough for any machine: it elapses only if something is broken.
const TEST_TIMEOUT: Duration = Duration::from_mins(1);

impl std::fmt::Debug for PooledConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.client.fmt(f)
    }
}

struct PoolFixture {
    connections: Arc<ConnectionPool>,
    clock: Arc<FixedPlatform>,
    events: EventLog,
    server: Server,
    /// Number of connections.
    opened: Arc<AtomicUsize>,
    _running: JoinSet<()>,
}

fn actor(tenant: TenantId, agent: u128) -> Actor {
    Actor::new(tenant, Subject::Agent(AgentId::from_u128(agent)))
}

impl PoolFixture {
    async fn new() -> Self {
        let opened = Arc::new(AtomicUsize::new(0));
        let counted = opened.clone();
        let mcp = Mcp::new("upstream", "1").tool("echo", "", |_: NoArgs| async { "hello" });
        // Each connection opens a session of its own.
        let http: HttpEndpoint = mcp
            .protocol_version(linchpin::Revision::LATEST_SESSION.as_str())
            .http()
            .principal(move |parts| {
                let is_new =
                    ["mcp-session-id", "mcp-method"].iter().all(|name| !parts.headers.contains_key(*name));
                if parts.method == "POST" && is_new {
                    counted.fetch_add(1, Ordering::SeqCst);
                }
                Ok(None)
            });
        let listening = http.bind("127.0.0.1:0").await.unwrap();
        let url = listening.url();
        let mut running = JoinSet::new();
        running.spawn(async move { listening.run_until(std::future::pending()).await.unwrap() });
        let (clock, events) = (Arc::new(FixedPlatform::default()), EventLog::default());
        let connections = ConnectionPool::new(
            clock.clone(),
            Egress::default(),
            events.clone(),
            Arc::new(|_, _, _| ()),
            Processes::default(),
        );
        let server = Server {
            id: ServerId::from_u128(1),
            slug: Slug::new("upstream").unwrap(),
            settings: ServerSettings { retry_attempts: 0, ..ServerSettings::with_name("Upstream") },
            transport: Transport::Http(RemoteEndpoint { url, headers: BTreeMap::new() }),
            is_configured: false,
            is_undeclared: false,
            version: 1,
            created: clock.now(),
            updated: clock.now(),
        };
        PoolFixture { connections: Arc::new(connections), clock, events, server, opened, _running: running }
    }

    async fn get(&self, actor: Actor) -> Result<PooledConnection> {
        self.connections.acquire(actor, &self.server, None, false).await
    }

    /// Replaces the server by a process that never responds.
    fn silence(&mut self) {
        self.server.transport = Transport::Stdio(ProgramSpec::new("tail", &["-f", "/dev/null"]));
    }

    /// Starts to connect, calls the callback during the attempt, and cancels it.
    async fn cancel_attempt(&self, watching: &mut EventSubscription, during_attempt: impl FnOnce()) {
        tokio::select! {
            _ = self.get(actor(ADA, 1)) => panic!("the server never responds"),
            () = expect_statuses(watching, &["connecting"]) => during_attempt(),
        }
    }

    fn opened_connections(&self) -> usize {
        self.opened.load(Ordering::SeqCst)
    }

    fn advance(&self, seconds: i64) {
        self.clock.seconds.fetch_add(seconds, Ordering::SeqCst);
    }
}

/// Asserts the statuses of the next events.
async fn expect_statuses(watching: &mut EventSubscription, statuses: &[&str]) {
    for status in statuses {
        let event = tokio::time::timeout(TEST_TIMEOUT, watching.next()).await.unwrap().unwrap();
        assert_eq!(event.body["status"], *status);
    }
}

#[tokio::test]
async fn one_is_opened_for_all_calls_of_one_subject_and_for_nobody_else() {
    let stage = Arc::new(PoolFixture::new().await);
    let mut all = JoinSet::new();
    for number in 0..60 {
        let stage = stage.clone();
        all.spawn(async move {
            let tenant = if number % 2 == 0 { ADA } else { BOB };
            let client = stage.get(actor(tenant, number % 3)).await.unwrap();
            client.call("echo", ()).await.unwrap();
        });
    }
    all.join_all().await;
    assert_eq!(stage.opened_connections(), 6, "two tenants, three agents");
    let user = Actor::new(ADA, Subject::User(UserId::from_u128(0)));
    stage.get(user).await.unwrap();
    assert_eq!(stage.opened_connections(), 7, "a user is not the agent with the same number");
}

#[tokio::test]
async fn whatever_changes_makes_it_another_one() {
    let mut stage = PoolFixture::new().await;
    let mut watching = stage.events.subscribe(ADA, None);
    let first = stage.get(actor(ADA, 1)).await.unwrap();
    stage.server.version = 2;
    let second = stage.get(actor(ADA, 1)).await.unwrap();
    assert_eq!(stage.opened_connections(), 2);
    expect_statuses(&mut watching, &["connecting", "connected", "disconnected", "connecting", "connected"])
        .await;
    first.call("echo", ()).await.unwrap();
    second.call("echo", ()).await.unwrap();
    for version in [1, 1, 2, 2] {
        let credential = ConnectionCredential {
            id: SecretId::from_u128(1),
            version,
            proof: AuthMaterial::Secret("x".into()),
        };
        let got = stage.connections.acquire(actor(ADA, 1), &stage.server, Some(&credential), false);
        got.await.unwrap();
    }
    assert_eq!(stage.opened_connections(), 4);
}

#[tokio::test]
async fn what_nobody_uses_is_ended() {
    let stage = PoolFixture::new().await;
    stage.get(actor(ADA, 1)).await.unwrap();
    assert_eq!(stage.connections.status(ADA, stage.server.id), ConnectionStatus::Connected);
    assert_eq!(stage.connections.status(BOB, stage.server.id), ConnectionStatus::Disconnected);
    stage.advance(599);
    stage.connections.close_idle(Duration::from_mins(10));
    stage.get(actor(ADA, 1)).await.unwrap();
    stage.advance(599);
    stage.connections.close_idle(Duration::from_mins(10));
    stage.get(actor(ADA, 1)).await.unwrap();
    assert_eq!(stage.opened_connections(), 1, "the connection was used in between");
    stage.advance(600);
    stage.connections.close_idle(Duration::from_mins(10));
    assert_eq!(stage.connections.status(ADA, stage.server.id), ConnectionStatus::Disconnected);
    let client = stage.get(actor(ADA, 1)).await.unwrap();
    stage.connections.close_server(ADA, stage.server.id);
    client.call("echo", ()).await.unwrap();
    stage.get(actor(ADA, 1)).await.unwrap();
    stage.connections.close_subject(ADA, Subject::Agent(AgentId::from_u128(1)));
    stage.get(actor(ADA, 1)).await.unwrap();
    assert_eq!(stage.opened_connections(), 4);
}

#[tokio::test]
async fn a_server_that_is_down_is_left_alone_for_a_while() {
    let mut stage = PoolFixture::new().await;
    let Transport::Http(remote) = &stage.server.transport else { panic!() };
    let good = remote.url.clone();
    let at = |url: String| Transport::Http(RemoteEndpoint { url, headers: BTreeMap::new() });
    stage.server.transport = at("http://127.0.0.1:1/mcp".into()); // nothing listens there
    let mut watching = stage.events.subscribe(ADA, None);
    let error = stage.get(actor(ADA, 1)).await.unwrap_err();
    assert!(error.message().starts_with("cannot connect to `upstream`: "), "{error}");
    expect_statuses(&mut watching, &["connecting", "error"]).await;
    // The server is back, but the backoff has not elapsed; then it is twice as long.
    let error = stage.get(actor(ADA, 1)).await.unwrap_err();
    assert!(error.message().ends_with("; next attempt in 1 s"), "{error}");
    stage.advance(1);
    stage.get(actor(ADA, 1)).await.unwrap_err();
    stage.advance(1);
    let error = stage.get(actor(ADA, 1)).await.unwrap_err();
    assert!(error.message().ends_with("; next attempt in 1 s"), "{error}");
    stage.server.transport = at(good);
    assert_eq!(stage.get(actor(ADA, 1)).await.unwrap_err().code(), "server_unavailable");
    let connection = stage.connections.acquire(actor(ADA, 1), &stage.server, None, true).await;
    connection.unwrap().call("echo", ()).await.unwrap();
    stage.get(actor(ADA, 1)).await.unwrap();
    assert_eq!(stage.opened_connections(), 1);
}

#[tokio::test]
async fn without_its_secret_nothing_is_sent() {
    let mut stage = PoolFixture::new().await;
    stage.server.settings.authentication = Authentication::Bearer;
    let error = stage.get(actor(ADA, 1)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "no credential is stored for the server `upstream`: set one or sign in first"
    );
    assert_eq!(stage.opened_connections(), 0);
}

#[tokio::test]
async fn whoever_leaves_while_it_is_tried_leaves_nothing_open() {
    let mut stage = PoolFixture::new().await;
    let good = stage.server.transport.clone();
    stage.silence();
    let mut watching = stage.events.subscribe(ADA, None);
    stage.cancel_attempt(&mut watching, || ()).await;
    expect_statuses(&mut watching, &["disconnected"]).await;
    assert_eq!(stage.connections.status(ADA, stage.server.id), ConnectionStatus::Disconnected);
    stage.server.transport = good;
    stage.get(actor(ADA, 1)).await.unwrap().call("echo", ()).await.unwrap();
    expect_statuses(&mut watching, &["connecting", "connected"]).await;
}

#[tokio::test]
async fn what_is_ended_while_it_is_tried_stays_ended() {
    let mut stage = PoolFixture::new().await;
    stage.silence();
    let mut watching = stage.events.subscribe(ADA, None);
    stage.cancel_attempt(&mut watching, || stage.connections.close_server(ADA, stage.server.id)).await;
    stage.events.publish(ADA, NewEvent::new("connection", json!({"status": "nothing more"})));
    expect_statuses(&mut watching, &["disconnected", "nothing more"]).await;
    assert_eq!(stage.connections.status(ADA, stage.server.id), ConnectionStatus::Disconnected);
}

#[tokio::test]
async fn a_stdio_server_that_is_stopped_while_it_is_opened_is_not_waited_for() {
    let mut stage = PoolFixture::new().await;
    stage.silence();
    let mut watching = stage.events.subscribe(ADA, None);
    let stop = async {
        expect_statuses(&mut watching, &["connecting"]).await;
        stage.connections.invalidate(ADA, stage.server.id, Some(2), true);
    };
    // The request timeout is longer.
    let opened = tokio::time::timeout(Duration::from_secs(20), stage.get(actor(ADA, 1)));
    let (opened, ()) = tokio::join!(opened, stop);
    assert_eq!(opened.unwrap().unwrap_err().code(), "server_changed");
}

#[tokio::test]
async fn who_knows_a_server_as_it_was_comes_too_late() {
    let mut stage = PoolFixture::new().await;
    stage.server.version = 2;
    stage.get(actor(ADA, 1)).await.unwrap();
    stage.server.version = 1;
    for agent in [1, 2] {
        let error = stage.get(actor(ADA, agent)).await.unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Conflict, "server_changed"));
    }
    stage.get(actor(BOB, 1)).await.unwrap();
    stage.server.version = 2;
    stage.get(actor(ADA, 1)).await.unwrap();
    assert_eq!(stage.opened_connections(), 2, "the one of the newer version is still there");
    stage.connections.invalidate(ADA, stage.server.id, Some(3), false);
    stage.get(actor(ADA, 1)).await.unwrap_err();
    stage.server.version = 3;
    stage.get(actor(ADA, 1)).await.unwrap();
    stage.connections.invalidate(ADA, stage.server.id, None, true);
    assert_eq!(stage.get(actor(ADA, 1)).await.unwrap_err().code(), "server_changed");
    assert_eq!(stage.opened_connections(), 3);
}

#[tokio::test]
async fn one_that_ends_as_soon_as_it_is_open_is_left_alone_for_a_while() {
    let stage = PoolFixture::new().await;
    let mut waits = Vec::new();
    for opened in 1..=3 {
        stage.get(actor(ADA, 1)).await.unwrap().close().await;
        assert_eq!(stage.opened_connections(), opened);
        let error = stage.get(actor(ADA, 1)).await.unwrap_err();
        assert!(
            error
                .message()
                .starts_with("the server `upstream` closed the connection right after it was opened"),
            "{error}"
        );
        waits.push(error.message().rsplit_once(" in ").unwrap().1.to_owned());
        stage.advance(1 << (opened - 1));
    }
    assert_eq!(waits, ["1 s", "2 s", "4 s"]);
    let client = stage.get(actor(ADA, 1)).await.unwrap();
    stage.advance(10);
    client.close().await;
    stage.get(actor(ADA, 1)).await.unwrap();
    assert_eq!(stage.opened_connections(), 5, "the connection was stable");
}
