//! Test fixture: a hub and an upstream server.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linchpin::egress::Egress;
use linchpin::server::{HttpEndpoint, ServerHandle};
use linchpin::{Json, NoArgs, args};
use linchpin_hub_core::audit::head_file::HeadFile;
use linchpin_hub_core::hub::{CallRequest, CallView, Hub, HubOptions, LOCAL_USER, ToolRef};
use linchpin_hub_core::id::{AgentId, ApprovalId, CallId, TenantId};
use linchpin_hub_core::platform::{Platform, SystemPlatform};
use linchpin_hub_core::store::{ApprovalStatus, CallStatus, PageRequest, Store};
use linchpin_hub_core::vault::KeyFile;
use linchpin_hub_core::{Actor, Result, Subject};
use linchpin_hub_store::Sqlite;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::clock::Clock;
use crate::faulty_store::FaultyStore;
use crate::upstream::upstream;

pub(crate) const ADA: TenantId = TenantId::from_u128(1);
pub(crate) const BOB: TenantId = TenantId::from_u128(2);
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

#[args]
struct Size {
    /// Number of bytes
    bytes: usize,
}

/// Remote server that records its requests.
pub(crate) struct Upstream {
    pub(crate) url: String,
    pub(crate) handle: ServerHandle,
    /// Number of tool executions.
    pub(crate) ran: Arc<AtomicUsize>,
    /// Messages of all executions of `echo`.
    pub(crate) echoed: Arc<Mutex<Vec<String>>>,
    /// `Authorization` header of each request.
    pub(crate) tokens: Arc<Mutex<Vec<String>>>,
    /// Releases `wait`.
    pub(crate) release: Arc<Notify>,
    /// Notified when `wait` starts.
    pub(crate) started: Arc<Notify>,
    /// Notified when `wait` is cancelled.
    pub(crate) cancelled: Arc<Notify>,
    running: JoinSet<()>,
}

impl Upstream {
    pub(crate) async fn new() -> Self {
        let (ran, tokens) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let echoed = Arc::default();
        let (go_on, has_begun) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (seen, last, given_up) = (tokens.clone(), tokens.clone(), Arc::new(Notify::new()));
        let mut mcp = upstream(&ran, &echoed, &has_begun, &go_on, &given_up)
            .tool("big", "Gives much", |Size { bytes }| async move { "x".repeat(bytes) })
            .tool("fail", "Fails", |_: NoArgs| async {
                Err::<String, _>(linchpin::Error::tool("it cannot be done"))
            })
            .tool("token", "Repeats what it was sent", move |_: NoArgs| {
                let last = last.lock().unwrap().last().cloned();
                async move { Json(json!({ "token": last })) }
            })
            .tool("dots.and.more", "Has a name that models do not take", |_: NoArgs| async { "dotted" });
        let handle = mcp.handle();
        let http: HttpEndpoint = mcp.http().principal(move |parts| {
            let token = parts.headers.get("authorization").and_then(|value| value.to_str().ok());
            seen.lock().unwrap().push(token.unwrap_or_default().to_owned());
            Ok(None)
        });
        let listening = http.bind("127.0.0.1:0").await.unwrap();
        let url = listening.url();
        let mut running = JoinSet::new();
        running.spawn(async move { listening.run_until(std::future::pending()).await.unwrap() });
        Upstream {
            url,
            handle,
            ran,
            echoed,
            tokens,
            release: go_on,
            started: has_begun,
            cancelled: given_up,
            running,
        }
    }

    /// Stops the server: nothing listens at its address any more.
    pub(crate) async fn stop(&mut self) {
        self.running.shutdown().await;
    }

    pub(crate) fn ran(&self) -> usize {
        self.ran.load(Ordering::SeqCst)
    }
}

/// A hub with one server, its store and its clock.
pub(crate) struct Stage {
    pub(crate) hub: Arc<Hub>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) upstream: Upstream,
    pub(crate) folder: TempDir,
}

pub(crate) fn local_user(tenant: TenantId) -> Actor {
    Actor::new(tenant, Subject::User(LOCAL_USER))
}

/// Opens a hub on the files of a folder.
pub(crate) fn open(place: &TempDir, clock: Arc<Clock>) -> (Arc<Hub>, Arc<dyn Store>) {
    open_with(place, clock, Egress::default())
}

/// Opens a hub with another egress.
pub(crate) fn open_with(place: &TempDir, clock: Arc<Clock>, egress: Egress) -> (Arc<Hub>, Arc<dyn Store>) {
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(&place.path().join("hub.db")).unwrap());
    (hub_on(place, clock, store.clone(), egress), store)
}

/// Creates another hub on the same store.
pub(crate) fn another_hub(place: &TempDir, clock: Arc<dyn Platform>, store: Arc<dyn Store>) -> Arc<Hub> {
    hub_on(place, clock, store, Egress::default())
}

/// Creates a hub that stores the signed heads of its audit beside its keys.
pub(crate) fn with_heads(place: &TempDir, clock: Arc<dyn Platform>, store: Arc<dyn Store>) -> Arc<Hub> {
    let heads = HeadFile { path: place.path().join("heads"), location: "here".into(), is_in_data_dir: false };
    hub_with(place, clock, store, Egress::default(), Some(heads))
}

fn hub_on(place: &TempDir, clock: Arc<dyn Platform>, store: Arc<dyn Store>, egress: Egress) -> Arc<Hub> {
    hub_with(place, clock, store, egress, None)
}

fn hub_with(
    place: &TempDir,
    clock: Arc<dyn Platform>,
    store: Arc<dyn Store>,
    egress: Egress,
    heads: Option<HeadFile>,
) -> Arc<Hub> {
    let (keys, _) = KeyFile::open(&place.path().join("keys"), &SystemPlatform).unwrap();
    let options = HubOptions {
        heads,
        checkpoints: Some(place.path().join("checkpoints")),
        segments: Some(place.path().join("audit")),
        callback: Some("http://127.0.0.1:7420/oauth/callback".to_owned()),
        ..HubOptions::default()
    };
    Arc::new(Hub::new(clock, store, keys, egress, options))
}

/// Waits until a call of a hub has finished.
pub(crate) async fn over(hub: &Hub, id: CallId) -> CallView {
    let mut watching = hub.events().subscribe(ADA, None);
    let over = async {
        loop {
            let call = hub.calls().call(local_user(ADA), id).await.unwrap();
            if call.status.is_final() {
                return call;
            }
            let _ = watching.next().await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, over).await.unwrap()
}

/// Returns the audit actions of a call in order, with its final status.
pub(crate) async fn said(hub: &Hub, id: CallId) -> Vec<String> {
    let (mut said, mut after) = (Vec::new(), 0);
    loop {
        let rows = hub.audit().entries(local_user(ADA), after, 500).await.unwrap();
        let Some(last) = rows.last() else { return said };
        after = last.number;
        let own = rows.iter().filter(|row| row.fields["call"] == id.to_string());
        said.extend(own.map(|row| match row.fields["status"].as_str() {
            Some(status) => format!("{} {status}", row.action),
            None => row.action.clone(),
        }));
    }
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::with(Egress::default()).await
    }

    pub(crate) async fn with(egress: Egress) -> Self {
        let (place, clock) = (tempfile::tempdir().unwrap(), Arc::new(Clock::default()));
        let (hub, store) = open_with(&place, clock.clone(), egress);
        let stage = Stage { hub, store, clock, upstream: Upstream::new().await, folder: place };
        stage.add(json!({})).await;
        stage
    }

    /// Creates a fixture whose hub uses a store with injected faults.
    pub(crate) async fn gated() -> (Self, Arc<FaultyStore>) {
        let mut stage = Self::new().await;
        let store = FaultyStore::new(stage.store.clone());
        stage.hub = another_hub(&stage.folder, stage.clock.clone(), store.clone());
        (stage, store)
    }

    /// Adds the server with additional settings, and syncs its tools.
    pub(crate) async fn add(&self, more: Value) -> String {
        let mut form = json!({ "name": "Up", "url": self.upstream.url, "retry_attempts": 0 });
        form.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let server = self.hub.registry().add_server(local_user(ADA), form).await.unwrap();
        let _ = self.hub.registry().sync_server(local_user(ADA), &server.slug, None).await; // fails if the server requires credentials
        server.slug
    }

    /// Adds an agent that may use all tools of the server.
    pub(crate) async fn agent(&self, name: &str, approval: &str, trusted: &[&str]) -> Actor {
        let servers = json!({ "up": { "trusted": trusted } });
        let form = json!({ "name": name, "approval": approval, "servers": servers });
        let agent = self.hub.identity().add_agent(local_user(ADA), form).await.unwrap();
        Actor::new(ADA, Subject::Agent(agent.summary.id))
    }

    pub(crate) async fn call(&self, actor: Actor, tool: &str, arguments: Value) -> Result<CallView> {
        let tool = ToolRef::Qualified(format!("mcp_up__{tool}"));
        let call = self.hub.calls().call_tool(actor, CallRequest::new(tool, arguments), true);
        tokio::time::timeout(TEST_TIMEOUT, call).await.unwrap()
    }

    /// Makes a call that waits for approval.
    pub(crate) async fn ask(&self, actor: Actor, tool: &str, arguments: Value) -> (CallView, ApprovalId) {
        let tool = ToolRef::Qualified(format!("mcp_up__{tool}"));
        let call = self.hub.calls().call_tool(actor, CallRequest::new(tool, arguments), false).await.unwrap();
        assert_eq!(call.status, CallStatus::Pending);
        let approval = call.approval.unwrap();
        (call, approval)
    }

    /// Waits until a call has finished.
    pub(crate) async fn wait_for_call(&self, id: CallId) -> CallView {
        over(&self.hub, id).await
    }

    pub(crate) async fn open_approvals(&self) -> usize {
        let paging = PageRequest { after: None, limit: 100 };
        self.hub
            .calls()
            .approvals(local_user(ADA), Some(ApprovalStatus::Open), &paging)
            .await
            .unwrap()
            .items
            .len()
    }

    /// Returns the audit actions of a call in order, with its final status.
    pub(crate) async fn audit_of_call(&self, id: CallId) -> Vec<String> {
        said(&self.hub, id).await
    }

    /// Returns all audit actions in order.
    pub(crate) async fn actions(&self) -> Vec<String> {
        let rows = self.hub.audit().entries(local_user(ADA), 0, 500).await.unwrap();
        rows.into_iter().map(|row| row.action).collect()
    }
}

pub(crate) fn agent_of(actor: Actor) -> AgentId {
    actor.agent().unwrap()
}
