//! Random operations of several tenants: no tenant ever sees data of another.

use linchpin_hub_core::hub::{CallRequest, ServerFilter, ToolFilter, ToolRef};
use linchpin_hub_core::id::{AgentId, ApprovalId, CallId, TenantId, TokenId, UserId};
use linchpin_hub_core::store::{CallFilter, PageRequest};
use linchpin_hub_core::{Actor, Subject};
use serde::Serialize;
use serde_json::json;

use crate::fixture::Stage;

const STEPS: usize = 100_000;
const TENANTS: u128 = 5;

/// Pseudorandom numbers with a fixed seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).unwrap()
    }
}

/// All ids that a tenant has received, with the tenant.
#[derive(Default)]
struct KnownIds {
    servers: Vec<(u128, String)>,
    agents: Vec<(u128, AgentId)>,
    calls: Vec<(u128, CallId)>,
    approvals: Vec<(u128, ApprovalId)>,
    tokens: Vec<(u128, TokenId)>,
}

/// Picks an id, of the tenant itself or of any tenant.
fn pick<T: Clone>(all: &[(u128, T)], tenant: u128, dice: &mut Dice) -> Option<T> {
    let wants_own = dice.roll(2) == 0;
    let some: Vec<_> = all.iter().filter(|(owner, _)| !wants_own || *owner == tenant).collect();
    if some.is_empty() { None } else { Some(some[dice.roll(some.len())].1.clone()) }
}

/// Returns the watermark that all data of a tenant contain.
fn watermark(tenant: u128) -> String {
    format!("watermark-{tenant}-end")
}

struct Model {
    stage: Stage,
    dice: Dice,
    known: KnownIds,
    answers: usize,
    foreign: usize,
}

impl Model {
    /// Checks a result that a tenant received.
    fn check<T: Serialize>(&mut self, tenant: u128, answer: &linchpin_hub_core::Result<T>) -> bool {
        let text = match answer {
            Ok(answer) => serde_json::to_string(answer).unwrap(),
            Err(error) => error.to_string(),
        };
        self.answers += 1;
        let others = (1..=TENANTS).filter(|other| *other != tenant);
        self.foreign += others.filter(|other| text.contains(&watermark(*other))).count();
        answer.is_ok()
    }

    async fn step(&mut self) {
        let tenant = 1 + self.dice.roll(usize::try_from(TENANTS).unwrap()) as u128;
        let actor = Actor::new(TenantId::from_u128(tenant), Subject::User(UserId::from_u128(1)));
        let actor = match pick(&self.known.agents, tenant, &mut self.dice) {
            Some(agent) if self.dice.roll(3) == 0 => Actor::new(actor.tenant(), Subject::Agent(agent)),
            _ => actor,
        };
        let hub = self.stage.hub.clone();
        let (registry, users, calls) = (hub.registry(), hub.identity(), hub.calls());
        let server = pick(&self.known.servers, tenant, &mut self.dice).unwrap_or_default();
        let agent = pick(&self.known.agents, tenant, &mut self.dice).unwrap_or(AgentId::from_u128(1));
        let call = pick(&self.known.calls, tenant, &mut self.dice).unwrap_or(CallId::from_u128(1));
        let approval =
            pick(&self.known.approvals, tenant, &mut self.dice).unwrap_or(ApprovalId::from_u128(1));
        match self.dice.roll(100) {
            0 if self.known.servers.len() < 12 => {
                let form =
                    json!({"name": watermark(tenant), "url": self.stage.upstream.url, "retry_attempts": 0});
                let added = registry.add_server(actor, form).await;
                self.check(tenant, &added);
                self.known.servers.extend(added.map(|server| (tenant, server.id.to_string())));
            }
            1 if self.known.agents.len() < 15 => {
                let form = json!({"name": format!("{}{}", watermark(tenant), self.answers),
                    "approval": (["auto", "always-ask", "always-ask"][self.dice.roll(3)]), "servers": { server: {} }});
                let added = users.add_agent(actor, form).await;
                self.check(tenant, &added);
                self.known.agents.extend(added.map(|agent| (tenant, agent.summary.id)));
            }
            2 => {
                let synced = registry.sync_server(actor, &server, None).await;
                self.check(tenant, &synced);
            }
            3 | 4 => {
                let tool = ToolRef::Upstream { server, tool: "echo".into() };
                let wanted = CallRequest::new(tool, json!({ "message": watermark(tenant) }));
                let called = calls.call_tool(actor, wanted, false).await;
                self.check(tenant, &called);
                if let Ok(called) = called {
                    self.known.calls.push((tenant, called.id));
                    self.known.approvals.extend(called.approval.map(|approval| (tenant, approval)));
                }
            }
            5 => {
                let text = json!({ "description": watermark(tenant) });
                let changed = registry.update_server(actor, &server, text).await;
                self.check(tenant, &changed);
            }
            6 => {
                let said = calls.approve(actor, approval, None).await;
                self.check(tenant, &said);
            }
            7 => {
                let said = calls.deny(actor, approval, Some(&watermark(tenant))).await;
                self.check(tenant, &said);
            }
            8 => {
                let changed =
                    users.update_agent(actor, agent, json!({ "instructions": watermark(tenant) })).await;
                self.check(tenant, &changed);
            }
            9 => {
                let issued = users.issue_token(actor, Subject::Agent(agent), &watermark(tenant), None).await;
                let issued = issued.map(|(_, view)| view);
                self.check(tenant, &issued);
                self.known.tokens.extend(issued.map(|token| (tenant, token.id)));
            }
            10 if self.dice.roll(20) == 0 => {
                let gone = registry.remove_server(actor, &server).await;
                if self.check(tenant, &gone) {
                    self.known.servers.retain(|(_, other)| *other != server);
                }
            }
            11 if self.dice.roll(20) == 0 => {
                let gone = users.remove_agent(actor, agent).await;
                if self.check(tenant, &gone) {
                    self.known.agents.retain(|(_, other)| *other != agent);
                }
            }
            12 => {
                let given_up = calls.cancel_call(actor, call).await;
                self.check(tenant, &given_up);
            }
            13 => {
                let trusted = registry.trust_tool(actor, "mcp_watermark__echo", "0").await;
                self.check(tenant, &trusted);
            }
            14 => {
                let tokens = users.tokens(actor, Subject::Agent(agent)).await;
                self.check(tenant, &tokens);
            }
            15 if self.dice.roll(10) == 0 => {
                if let Some(token) = pick(&self.known.tokens, tenant, &mut self.dice) {
                    let revoked = users.revoke_token(actor, Subject::Agent(agent), token).await;
                    self.check(tenant, &revoked);
                }
            }
            what => self.read(tenant, actor, what).await,
        }
    }

    /// Performs a read-only operation.
    async fn read(&mut self, tenant: u128, actor: Actor, what: usize) {
        let hub = self.stage.hub.clone();
        let paging = PageRequest { after: None, limit: 4 };
        let server = pick(&self.known.servers, tenant, &mut self.dice).unwrap_or_default();
        let agent = pick(&self.known.agents, tenant, &mut self.dice).unwrap_or(AgentId::from_u128(1));
        let call = pick(&self.known.calls, tenant, &mut self.dice).unwrap_or(CallId::from_u128(1));
        let approval =
            pick(&self.known.approvals, tenant, &mut self.dice).unwrap_or(ApprovalId::from_u128(1));
        match what {
            16..=20 => {
                let all = hub.registry().servers(actor, &ServerFilter::default()).await;
                self.check(tenant, &all);
            }
            21..=23 => {
                let filter =
                    ToolFilter { agent: (self.dice.roll(2) == 0).then_some(agent), ..ToolFilter::default() };
                let all = hub.registry().tools(actor, &filter).await;
                self.check(tenant, &all);
            }
            24..=40 => {
                let all =
                    hub.calls().list(actor, CallFilter::default(), &paging).await.map(|page| page.items);
                self.check(tenant, &all);
            }
            41..=50 => {
                let all = hub.calls().approvals(actor, None, &paging).await.map(|page| page.items);
                self.check(tenant, &all);
            }
            51..=70 => {
                let one = hub.calls().call(actor, call).await;
                self.check(tenant, &one);
            }
            71..=80 => {
                let one = hub.identity().agent(actor, agent).await;
                self.check(tenant, &one);
            }
            81..=88 => {
                let one = hub.registry().server(actor, &server).await;
                self.check(tenant, &one);
            }
            89..=94 => {
                let rows = hub.audit().entries(actor, 0, 10).await;
                self.check(tenant, &rows);
            }
            _ => {
                let one = hub.calls().approval(actor, approval).await;
                self.check(tenant, &one);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_sees_anything_of_anybody_elses() {
    let stage = Stage::new().await;
    let mut model = Model {
        stage,
        dice: Dice(0x9e37_79b9_7f4a_7c15),
        known: KnownIds::default(),
        answers: 0,
        foreign: 0,
    };
    let mut watching: Vec<_> = (1..=TENANTS)
        .map(|tenant| (tenant, model.stage.hub.events().subscribe(TenantId::from_u128(tenant), None)))
        .collect();
    for step in 0..STEPS {
        model.step().await;
        if step % 1_000 == 0 {
            // Events reach only their own tenant.
            for (tenant, events) in &mut watching {
                while let Some(Ok(event)) = poll_now(events.next()) {
                    assert_eq!(event.tenant, TenantId::from_u128(*tenant));
                    model.answers += 1;
                }
            }
        }
    }
    let KnownIds { servers, agents, calls, approvals, .. } = &model.known;
    println!(
        "steps={STEPS} answers={} servers={} agents={} calls={} approvals={} foreign={}",
        model.answers,
        servers.len(),
        agents.len(),
        calls.len(),
        approvals.len(),
        model.foreign
    );
    assert!(servers.len() > 5 && agents.len() > 5 && calls.len() > 100 && approvals.len() > 10);
    assert_eq!(model.foreign, 0);
}

/// Polls a future once, and returns its output if it is ready.
fn poll_now<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(done) => Some(done),
        std::task::Poll::Pending => None,
    }
}
