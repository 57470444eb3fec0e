//! Every source of a URL for the hub, with every spelling of a private address: the hub connects to none. The
//! servers that name these URLs are allowed and in the same network as the targets: only the egress policy
//! separates them.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linchpin::egress::{BoxFuture, Egress, Policy, Resolver};
use linchpin::testing::authority::{Authority, AuthorityHost, KnownClient, UrlField};
use linchpin_hub_core::hub::oauth::SignInStatus;
use linchpin_hub_core::hub::{Hub, HubOptions, LOCAL, LOCAL_USER};
use linchpin_hub_core::platform::SystemPlatform;
use linchpin_hub_core::vault::KeyFile;
use linchpin_hub_core::{Actor, Subject};
use linchpin_hub_store::Sqlite;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

#[path = "../../sdk/tests/support/canary.rs"]
mod canary;
#[path = "../../hub-store/tests/support/clock.rs"]
mod clock;
#[path = "../../sdk/tests/support/http.rs"]
mod http;
#[path = "../../sdk/tests/support/private_address_forms.rs"]
mod private_address_forms;

use canary::Canary;
use clock::Clock;
use http::{HttpScript, Reply};

/// Address of the allowed servers.
const ALLOWED: &str = "127.77.7.7";
/// Address to which every name resolves.
const NEAR: &str = "127.0.0.2";
const USER: Actor = Actor::new(LOCAL, Subject::User(LOCAL_USER));
const TEST_TIMEOUT: Duration = Duration::from_mins(5);

/// Source of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Site {
    /// URL of a server.
    Server,
    /// `Location` header of a server response.
    ServerRedirect,
    /// HTTP+SSE event with the endpoint for messages.
    SseEndpoint,
    /// URL discovered during a sign-in.
    SignIn(UrlField),
}

const SITES: [Site; 9] = [
    Site::Server,
    Site::ServerRedirect,
    Site::SseEndpoint,
    Site::SignIn(UrlField::ResourceMetadata),
    Site::SignIn(UrlField::Issuer),
    Site::SignIn(UrlField::MetadataRedirect),
    Site::SignIn(UrlField::RegistrationEndpoint),
    Site::SignIn(UrlField::TokenEndpoint),
    Site::SignIn(UrlField::RevocationEndpoint),
];

/// Resolver that maps all names to the canary.
struct Names;

impl Resolver for Names {
    fn resolve(&self, _: &str) -> BoxFuture<io::Result<Vec<IpAddr>>> {
        Box::pin(std::future::ready(Ok(vec![NEAR.parse().unwrap()])))
    }
}

/// Forwards connections from an allowed address to a test server.
struct SwitchableListener {
    origin: String,
    to: Arc<Mutex<Option<SocketAddr>>>,
    _open: JoinSet<()>,
}

impl SwitchableListener {
    async fn open() -> Self {
        let listener = TcpListener::bind((ALLOWED, 0)).await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let (to, mut open) = (Arc::<Mutex<Option<SocketAddr>>>::default(), JoinSet::new());
        let place = to.clone();
        open.spawn(async move {
            let mut tunnels = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                while tunnels.try_join_next().is_some() {}
                let to = place.lock().unwrap().unwrap();
                tunnels.spawn(async move {
                    let mut inner = TcpStream::connect(to).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut stream, &mut inner).await; // either side may close it
                });
            }
        });
        SwitchableListener { origin, to, _open: open }
    }

    fn forward_to(&self, to: SocketAddr) {
        *self.to.lock().unwrap() = Some(to);
    }
}

/// A hub, and servers that name a configurable URL.
struct Stage {
    hub: Arc<Hub>,
    clock: Arc<Clock>,
    site: Site,
    authority: Authority,
    /// URL that the servers name.
    named: Arc<Mutex<String>>,
    url: String,
    _script: HttpScript,
    _doors: [SwitchableListener; 3],
    _folder: tempfile::TempDir,
}

impl Stage {
    async fn new(site: Site) -> Self {
        let doors = [
            SwitchableListener::open().await,
            SwitchableListener::open().await,
            SwitchableListener::open().await,
        ];
        let behaviour = Authority::conforming().origins(&doors[0].origin, &doors[1].origin);
        let authority = Authority::start(behaviour).await.unwrap();
        let named = Arc::<Mutex<String>>::default();
        let name = named.clone();
        let script = HttpScript::start(move |_| {
            let name = name.lock().unwrap();
            if site == Site::SseEndpoint {
                return Reply::events().chunk(format!("event: endpoint\ndata: {name}\n\n").as_bytes());
            }
            Reply::new(307, &[("location", &**name)], b"")
        });
        let script = script.await;
        doors[0].forward_to(authority.address(AuthorityHost::Resource));
        doors[1].forward_to(authority.address(AuthorityHost::Authority));
        doors[2].forward_to(script.address);
        let (folder, clock) = (tempfile::tempdir().unwrap(), Arc::new(Clock::default()));
        let store = Arc::new(Sqlite::open(&folder.path().join("hub.db")).unwrap());
        let (keys, _) = KeyFile::open(&folder.path().join("keys"), &SystemPlatform).unwrap();
        let policy = Policy::public_only().allow(ALLOWED.parse().unwrap());
        let egress = Egress::builder().policy(policy).resolver(Names).build().unwrap();
        let options = HubOptions {
            callback: Some("http://127.0.0.1:7420/oauth/callback".into()),
            ..HubOptions::default()
        };
        let hub = Arc::new(Hub::new(clock.clone(), store, keys, egress, options));
        hub.identity().ensure_local_user().await.unwrap();
        let client_id =
            (site != Site::SignIn(UrlField::RegistrationEndpoint)).then_some(KnownClient::Public.id());
        let form = json!({ "name": "Guarded", "url": authority.mcp_url(), "retry_attempts": 0,
            "authentication": { "type": "oauth", "client_id": client_id } });
        hub.registry().add_server(USER, form).await.unwrap();
        let url = format!("{}/mcp", doors[2].origin);
        Stage { hub, clock, site, authority, named, url, _script: script, _doors: doors, _folder: folder }
    }

    /// Makes the hub use this URL. Returns whether the hub refuses it.
    async fn refuses(&self, url: &str) -> bool {
        url.clone_into(&mut self.named.lock().unwrap());
        let draft = |url: &str, transport: &str| json!({ "name": "A", "url": url, "transport": transport, "retry_attempts": 0 });
        let tried = |form: Value| async { self.hub.upstream().test_draft(USER, form).await.is_err() };
        match self.site {
            Site::Server => return tried(draft(url, "http")).await,
            Site::ServerRedirect => return tried(draft(&self.url, "http")).await,
            Site::SseEndpoint => return tried(draft(&self.url, "sse")).await,
            Site::SignIn(place) => self.authority.set_behaviour(Authority::conforming().with_url(place, url)),
        }
        self.clock.advance(3_600);
        let mut sign_in = self.hub.upstream().start_sign_in(USER, "guarded", None).await.unwrap();
        if sign_in.progress == SignInStatus::Waiting {
            let (url, proof) = self.hub.upstream().sign_in_redirect(USER, &sign_in.id).await.unwrap();
            let back = self.authority.approve(&url).await.unwrap();
            let query = back.url.split_once('?').unwrap().1;
            sign_in = self.hub.complete_sign_in(query, &proof).await.unwrap();
        }
        let is_refused = match (self.site, &sign_in.progress) {
            // Discovery continues with the well-known URL, so the sign-in succeeds without this one.
            (Site::SignIn(UrlField::ResourceMetadata), _) => {
                let shown = url.split('?').next().unwrap_or_default();
                let is_it = |hop: &&linchpin_hub_core::hub::oauth::AuthTraceEntry| {
                    hop.purpose == "protected resource metadata" && hop.url.ends_with(PATH)
                };
                let hop = sign_in.trace.iter().rev().find(is_it);
                hop.is_none_or(|hop| hop.error.is_some() && hop.status.is_none()) && !shown.is_empty()
            }
            (Site::SignIn(UrlField::RevocationEndpoint), SignInStatus::Done) => {
                self.hub.upstream().sign_out_of_server(USER, "guarded", None).await.is_err()
            }
            (_, progress) => matches!(progress, SignInStatus::Failed { .. }),
        };
        if sign_in.progress == SignInStatus::Done {
            let _ = self.hub.upstream().sign_out_of_server(USER, "guarded", None).await; // it may already be signed out
        }
        is_refused
    }
}

/// Path of the named URL.
const PATH: &str = "/learned";

/// Tries all spellings for one source. Returns the number of refused ones.
async fn try_all(site: Site, port: u16) -> usize {
    let (stage, mut refused) = (Stage::new(site).await, 0);
    for host in private_address_forms::hosts() {
        let url = format!("https://{host}:{port}{PATH}");
        let is_refused = stage.refuses(&url).await;
        assert!(is_refused, "{site:?}: {url:?}");
        refused += usize::from(is_refused);
    }
    let rows = stage.hub.audit().entries(USER, 0, 500).await.unwrap();
    let hosts: Vec<_> = rows.iter().filter(|row| row.action == "egress.denied").collect();
    assert!(hosts.iter().any(|row| row.fields["host"] == "10.0.0.1"), "{site:?}: no audit entry");
    refused
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_spelling_is_connected_to_through_the_hub() {
    let canary = Canary::open(&[NEAR, "127.0.0.1", "::1", "127.255.255.254"]);
    let mut trying = JoinSet::new();
    for site in SITES {
        let port = canary.port();
        trying.spawn(async move {
            tokio::time::timeout(TEST_TIMEOUT, Box::pin(try_all(site, port))).await.unwrap()
        });
    }
    let refused: usize = trying.join_all().await.into_iter().sum();
    let connects = canary.connections();
    eprintln!("refused={refused} connects={connects}");
    assert_eq!((refused, connects), (320 * 9, 0));
}

#[tokio::test]
async fn what_is_allowed_is_gone_to_from_each_place() {
    for site in SITES {
        let stage = Stage::new(site).await;
        let elsewhere = SwitchableListener::open().await;
        let script = HttpScript::start(|_| Reply::status(500)).await;
        elsewhere.forward_to(script.address);
        stage.refuses(&format!("{}{PATH}", elsewhere.origin)).await;
        // Redirects and endpoints must stay on the configured origin, even if the address is allowed.
        let stays = matches!(
            site,
            Site::ServerRedirect | Site::SseEndpoint | Site::SignIn(UrlField::MetadataRedirect)
        );
        assert_eq!(script.connections() > 0, !stays, "{site:?}");
    }
}
