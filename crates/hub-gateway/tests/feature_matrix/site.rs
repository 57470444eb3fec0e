//! Hub with its gateway, in front of upstream servers of every revision over HTTP and stdio.

use std::sync::Arc;

use linchpin::egress::Egress;
use linchpin::server::web::Listener;
use linchpin::{Revision, Service};
use linchpin_hub_core::Actor;
use linchpin_hub_core::Subject;
use linchpin_hub_core::hub::{Hub, HubOptions, LOCAL, LOCAL_USER};
use linchpin_hub_core::platform::SystemPlatform;
use linchpin_hub_core::server::ConfiguredServer;
use linchpin_hub_core::vault::KeyFile;
use linchpin_hub_gateway::SurfaceKey;
use linchpin_hub_http::{HttpOptions, HubService};
use linchpin_hub_store::Sqlite;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::UPSTREAM;
use crate::upstream::upstream;

/// Transport between the hub and an upstream server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UpstreamTransport {
    /// HTTP+SSE in the first revision, Streamable HTTP in all others.
    Http,
    Stdio,
}

/// Upstream server of the hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Upstream {
    pub(crate) revision: Revision,
    pub(crate) transport: UpstreamTransport,
}

impl Upstream {
    pub(crate) fn all() -> Vec<Upstream> {
        let transports = [UpstreamTransport::Http, UpstreamTransport::Stdio];
        let of = |revision| transports.map(|transport| Upstream { revision, transport });
        Revision::ALL.into_iter().flat_map(of).collect()
    }

    pub(crate) fn slug(self) -> String {
        let transport = match self.transport {
            UpstreamTransport::Http => "http",
            UpstreamTransport::Stdio => "stdio",
        };
        format!("{transport}-{}", self.revision)
    }
}

/// Hub with its gateway and all upstream servers.
pub(crate) struct Site {
    /// MCP server of the gateway for the user.
    pub(crate) gateway: Service,
    /// URL of the gateway.
    pub(crate) url: String,
    /// API token of the user.
    pub(crate) token: String,
    _directory: TempDir,
    _tasks: JoinSet<()>,
}

impl Site {
    pub(crate) async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Arc::new(Sqlite::open(&directory.path().join("hub.db")).unwrap());
        let (keys, _) = KeyFile::open(&directory.path().join("keys"), &SystemPlatform).unwrap();
        let (platform, options) = (Arc::new(SystemPlatform), HubOptions::default());
        let hub = Arc::new(Hub::new(platform.clone(), store, keys, Egress::default(), options));
        hub.identity().ensure_local_user().await.unwrap();
        let mut tasks = JoinSet::new();
        let servers = configured_servers(&mut tasks).await;
        hub.registry().apply_config(LOCAL, servers).await.unwrap();
        let actor = Actor::new(LOCAL, Subject::User(LOCAL_USER));
        for upstream in Upstream::all() {
            let synced = hub.registry().sync_server(actor, &upstream.slug(), None).await;
            synced.unwrap_or_else(|error| panic!("{}: {error}", upstream.slug()));
        }
        let web = HubService::new(hub.clone(), platform, HttpOptions::default());
        let listener = Listener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("{}/mcp", listener.origin());
        let (service, gateway) = (web.service(), web.gateway().clone());
        tasks.spawn(async move { listener.run_until(std::future::pending(), service).await.unwrap() });
        let key = SurfaceKey { actor, owner: actor.subject(), server: None, path: "/mcp".to_owned() };
        let surface = gateway.surface(key).await.unwrap();
        tasks.spawn(async move { gateway.run(std::future::pending()).await });
        tasks.spawn(hub.clone().run(std::future::pending()));
        let token = hub.identity().process_token().expose().to_owned();
        Site { gateway: surface.service(), url, token, _directory: directory, _tasks: tasks }
    }
}

/// Starts the servers over HTTP, and describes all servers as in a configuration file.
async fn configured_servers(tasks: &mut JoinSet<()>) -> Vec<ConfiguredServer> {
    let program = std::env::current_exe().unwrap();
    let mut servers = Vec::new();
    for server in Upstream::all() {
        let mut settings: Value = match server.transport {
            UpstreamTransport::Stdio => json!({ "command": program, "args": [UPSTREAM] }),
            UpstreamTransport::Http => {
                let endpoint = upstream().unwrap().http().legacy_sse();
                let endpoint = endpoint.bind("127.0.0.1:0").await.unwrap();
                let url = endpoint.url();
                tasks.spawn(async move { endpoint.run_until(std::future::pending()).await.unwrap() });
                let transport = if server.revision == Revision::ALL[0] { "sse" } else { "http" };
                json!({ "url": url, "transport": transport })
            }
        };
        settings["revision"] = server.revision.as_str().into();
        servers.push(ConfiguredServer::read(&server.slug(), settings).unwrap());
    }
    servers
}
