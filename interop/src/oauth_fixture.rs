//! OAuth fixture: an authorization server (`oidc-provider.mjs`), a user at a browser (`browser.mjs`), and a Linchpin
//! server that accepts the tokens. All share one clock, which the test advances.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use linchpin::auth::{FileStore, Loopback, OAuth};
use linchpin::{Auth, Client, Context, Dpop, NoArgs, Server, Tool};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::TEST_TIMEOUT;
use crate::peer::{RunningServer, peer, run};

/// Lifetime of a token in seconds.
const TOKEN_LIFETIME: u64 = 300;

/// Authorization server, browser and protected server.
pub struct OAuthFixture {
    provider: RunningServer,
    server: String,
    folder: PathBuf,
    clock: Clock,
    visits: Visits,
    _serving: JoinSet<()>,
}

/// Seconds by which the clock is ahead.
#[derive(Clone, Default)]
struct Clock(Arc<AtomicU64>);

/// Pages shown in each sign-in, oldest first, until `take_pages` takes them.
type Visits = Arc<Mutex<Vec<Option<JoinHandle<Value>>>>>;

impl OAuthFixture {
    /// Starts all parts and empties `folder`. With `dpop`, the server accepts tokens that are bound to a key.
    pub async fn open(folder: &Path, dpop: Option<Dpop>) -> Self {
        let _ = fs::remove_dir_all(folder); // fails if it does not exist
        fs::create_dir_all(folder).unwrap();
        let mut command = peer("oidc-provider.mjs");
        command.push(TOKEN_LIFETIME.to_string());
        let provider = RunningServer::start(&command);
        let clock = Clock::default();
        let (server, serving) = serve(provider.url(), dpop, clock.clone()).await;
        let folder = folder.to_owned();
        OAuthFixture { provider, server, folder, clock, visits: Visits::default(), _serving: serving }
    }

    /// Returns the URL of the server.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Configures a client without a user, with a token store of this name.
    pub fn client_without_user(&self, store: &str) -> OAuth {
        let store = FileStore::open(self.folder.join(store), self.folder.join(store).join("key")).unwrap();
        let clock = self.clock.clone();
        OAuth::new("Linchpin test").store(store).clock(move || clock.now())
    }

    /// Configures a client with a user who consents to everything.
    pub fn client_with_user(&self, store: &str) -> OAuth {
        self.program_with(store, None)
    }

    /// Configures a client with a user who denies consent.
    pub fn client_with_denying_user(&self, store: &str) -> OAuth {
        self.program_with(store, Some("--decline"))
    }

    fn program_with(&self, store: &str, option: Option<&'static str>) -> OAuth {
        let (visits, folder) = (self.visits.clone(), self.folder.clone());
        let person = Loopback::new(move |url| {
            let mut command = peer("browser.mjs");
            let cookies = folder.join("cookies.json").display().to_string();
            let mut visits = visits.lock().unwrap();
            let pictures = folder.join(format!("visit-{}", visits.len() + 1)).display().to_string();
            command.extend(option.map(str::to_owned));
            command.extend(["--cookies", &cookies, "--pictures", &pictures, url].map(str::to_owned));
            visits.push(Some(std::thread::spawn(move || run(&command))));
        });
        self.client_without_user(store).redirect_handler(person).sign_in_timeout(TEST_TIMEOUT)
    }

    /// Connects a client.
    pub async fn connect(&self, program: OAuth) -> Result<Client, linchpin::ClientError> {
        let client = Client::http(&self.server).auth(program);
        client.open_timeout(TEST_TIMEOUT).timeout(TEST_TIMEOUT).probe_timeout(TEST_TIMEOUT).connect().await
    }

    /// Returns the lines of the pages shown since the last call.
    pub fn take_pages(&self) -> Vec<Vec<String>> {
        let mut visits = self.visits.lock().unwrap();
        let pages = visits.iter_mut().filter_map(Option::take).map(|visit| visit.join().unwrap());
        pages.flat_map(|pages| serde_json::from_value::<Vec<Vec<String>>>(pages).unwrap()).collect()
    }

    /// Advances the clock beyond the lifetime of a token.
    pub fn expire_tokens(&mut self) {
        self.clock.0.fetch_add(TOKEN_LIFETIME, Ordering::Relaxed);
        self.ask(&format!("later {TOKEN_LIFETIME}"));
    }

    /// Revokes all grants at the authorization server.
    pub fn revoke_everything(&mut self) {
        self.ask("revoke");
    }

    /// Revokes the grants of an account.
    pub fn revoke(&mut self, account: &str) {
        self.ask(&format!("revoke {account}"));
    }

    fn ask(&mut self, command: &str) {
        self.provider.write_line(command);
        assert_eq!(self.provider.read_lines(1), ["done"], "{command}");
    }

    /// Returns the actions of the authorization server since the last call.
    pub fn take_actions(&mut self) -> Vec<String> {
        self.provider.write_line("later 0");
        let mut done = Vec::new();
        loop {
            match self.provider.read_lines(1).pop() {
                Some(line) if line == "done" => return done,
                Some(line) => done.push(line),
                None => panic!("the authorization server does not respond; so far: {done:?}"),
            }
        }
    }
}

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "the authorization server uses the system clock too")]
    fn now(&self) -> SystemTime {
        SystemTime::now() + Duration::from_secs(self.0.load(Ordering::Relaxed))
    }
}

/// Serves a tool that any valid token may use, and one that needs a further scope.
async fn serve(issuer: &str, dpop: Option<Dpop>, clock: Clock) -> (String, JoinSet<()>) {
    // The resource URL must be known before the endpoint exists, so reserve the port first.
    let front = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let resource = format!("http://{}/mcp", front.local_addr().unwrap());
    let mut auth = Auth::jwt(issuer, &resource).require(["mcp:basic"]).clock(move || clock.now());
    if let Some(dpop) = dpop {
        auth = auth.dpop(dpop);
    }
    let who = |_: NoArgs, cx: Context| async move {
        cx.identity().map(|identity| identity.subject().to_owned()).unwrap_or_default()
    };
    let listening = Server::new("notes", "1.0.0")
        .tool("who", "Says who calls", who)
        .add(Tool::new("write").scopes(["mcp:write"]).handler(|_: NoArgs| async { "written" }))
        .http()
        .auth(auth)
        .bind("127.0.0.1:0")
        .await
        .unwrap();
    let mut serving = JoinSet::new();
    serving.spawn(forward_connections(front, listening.address()));
    serving.spawn(async move { listening.run_until(std::future::pending()).await.unwrap() });
    (resource, serving)
}

/// Forwards connections to a server at another address.
async fn forward_connections(front: TcpListener, server: SocketAddr) {
    let mut connections = JoinSet::new();
    while let Ok((mut near, _)) = front.accept().await {
        connections.spawn(async move {
            let mut far = TcpStream::connect(server).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await; // fails if either side closes
        });
    }
}
