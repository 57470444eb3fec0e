//! Approval rules: approvals that cover later calls of an agent, their limits, and what invalidates them.

use std::sync::Arc;

use linchpin_hub_core::approval_rule::RuleScope;
use linchpin_hub_core::hub::{
    ApprovalRuleFilter, ApprovalRuleView, CallOptions, CallRequest, CallView, Hub, NewApprovalRule, ToolRef,
};
use linchpin_hub_core::id::ApprovalId;
use linchpin_hub_core::object_reader::ObjectReader;
use linchpin_hub_core::platform::SystemPlatform;
use linchpin_hub_core::store::{ApprovalStatus, CallStatus, PageRequest};
use linchpin_hub_core::{Actor, ErrorKind, Result, Subject};
use linchpin_hub_store::{Durability, Postgres};
use serde_json::{Value, json};
use test_postgres::server;

use crate::fixture::{ADA, BOB, Stage, Upstream, agent_of, another_hub, local_user, open};

const PAGE: PageRequest = PageRequest { after: None, limit: 500 };

fn form(value: Value) -> ObjectReader {
    ObjectReader::new(value).unwrap()
}

fn new_rule(agent: Actor, tool: &str, scope: Value) -> NewApprovalRule {
    NewApprovalRule {
        agent: agent_of(agent),
        tool: ToolRef::Qualified(format!("mcp_up__{tool}")),
        session: None,
        scope: RuleScope::read(&mut form(scope)).unwrap(),
    }
}

/// Calls `echo` without waiting for an approval.
async fn echo(hub: &Arc<Hub>, agent: Actor, message: &str, session: Option<&str>) -> Result<CallView> {
    let tool = ToolRef::Qualified("mcp_up__echo".into());
    let (arguments, session) = (json!({ "message": message }), session.map(str::to_owned));
    let call = hub
        .calls()
        .submit_call(
            agent,
            CallRequest { session, ..CallRequest::new(tool, arguments) },
            CallOptions::default(),
            true,
        )
        .await?;
    Ok(call)
}

impl Stage {
    async fn echo(&self, agent: Actor, message: &str, session: Option<&str>) -> CallView {
        echo(&self.hub, agent, message, session).await.unwrap()
    }

    /// Requests a call that requires approval, and approves it with a rule.
    async fn approve_with(
        &self,
        agent: Actor,
        (message, session): (&str, Option<&str>),
        arguments: Option<Value>,
        rule: Value,
    ) -> Result<ApprovalId> {
        let call = self.echo(agent, message, session).await;
        assert_eq!(call.status, CallStatus::Pending);
        let id = call.approval.unwrap();
        self.hub.calls().approve_with_rule(local_user(ADA), id, arguments, Some(form(rule))).await?;
        self.wait_for_call(call.id).await;
        Ok(id)
    }

    async fn rules(&self) -> Vec<ApprovalRuleView> {
        let filter = ApprovalRuleFilter::default();
        self.hub.calls().approval_rules(local_user(ADA), &filter, &PAGE).await.unwrap().items
    }

    async fn entries(&self, action: &str) -> Vec<Value> {
        let rows = self.hub.audit().entries(local_user(ADA), 0, 500).await.unwrap();
        rows.into_iter().filter(|row| row.action == action).map(|row| json!(row.fields)).collect()
    }
}

#[tokio::test]
async fn a_rule_covers_later_calls_while_its_conditions_hold() {
    let stage = Stage::new().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let rule = json!({"conditions": [{"pointer": "/message", "prefix": "public "}]});
    let approval = stage.approve_with(agent, ("public a", None), None, rule).await.unwrap();
    let covered = stage.echo(agent, "public b", None).await;
    assert_eq!((covered.status, covered.approval), (CallStatus::Success, None));
    assert_eq!(stage.echo(agent, "secret", None).await.status, CallStatus::Pending);
    let other = stage.agent("Other", "always-ask", &[]).await;
    assert_eq!(stage.echo(other, "public c", None).await.status, CallStatus::Pending);
    let rules = stage.rules().await;
    let [rule] = &rules[..] else { panic!("{rules:?}") };
    assert_eq!((rule.agent, rule.approval), (agent_of(agent), Some(approval)));
    assert_eq!((rule.name.as_deref(), rule.agent_name.as_deref()), (Some("mcp_up__echo"), Some("Asks")));
    assert_eq!((rule.expires, rule.is_valid, rule.session.as_deref()), (None, true, None));
    // The audit names the rule at its creation and at each use.
    let created = stage.entries("approval_rule.created").await;
    assert_eq!(created.len(), 1);
    assert_eq!((&created[0]["rule"], &created[0]["approval"]), (&json!(rule.id), &json!(approval)));
    let intents = stage.entries("call.intent").await;
    let used: Vec<_> = intents.iter().filter(|entry| entry["reason"] == "approval_rule").collect();
    assert_eq!(used.len(), 1);
    assert_eq!((&used[0]["rule"], &used[0]["call"]), (&json!(rule.id), &json!(covered.id)));
    // Revoked: the next call requires approval again.
    stage.hub.calls().revoke_approval_rule(local_user(ADA), rule.id).await.unwrap();
    assert_eq!(stage.echo(agent, "public d", None).await.status, CallStatus::Pending);
    assert_eq!(stage.entries("approval_rule.revoked").await[0]["rule"], json!(rule.id));
    let again = stage.hub.calls().revoke_approval_rule(local_user(ADA), rule.id).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::NotFound);
    assert!(stage.rules().await.is_empty());
    assert_eq!(stage.upstream.ran(), 2);
}

#[tokio::test]
async fn a_rule_for_a_session_covers_only_that_session() {
    let stage = Stage::new().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let in_session = json!({"session": true});
    let error = stage.approve_with(agent, ("a", None), None, in_session.clone()).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::Invalid, Some("session")));
    assert_eq!(stage.open_approvals().await, 1, "nothing was decided");
    stage.approve_with(agent, ("a", Some("one")), None, in_session).await.unwrap();
    assert_eq!(stage.echo(agent, "b", Some("one")).await.status, CallStatus::Success);
    for session in [None, Some("two")] {
        assert_eq!(stage.echo(agent, "b", session).await.status, CallStatus::Pending);
    }
    let rules = stage.rules().await;
    assert_eq!((rules.len(), rules[0].session.as_deref()), (1, Some("one")));
    let call = CallRequest {
        session: Some("a\nb".into()),
        ..CallRequest::new(ToolRef::Qualified("mcp_up__echo".into()), json!({"message": "a"}))
    };
    let error = stage.hub.calls().submit_call(agent, call, CallOptions::default(), true).await.unwrap_err();
    assert_eq!(error.field(), Some("session"));
    // The hub does not learn when a session ends.
    stage.clock.advance(7 * 24 * 3_600);
    assert_eq!(stage.echo(agent, "c", Some("one")).await.status, CallStatus::Pending);
}

#[tokio::test]
async fn the_session_of_a_waiting_call_survives_a_restart() {
    let stage = Stage::new().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let call = stage.echo(agent, "a", Some("one")).await;
    assert_eq!(call.session.as_deref(), Some("one"));
    let (hub, _) = open(&stage.folder, stage.clock.clone());
    let rule = Some(form(json!({"session": true})));
    hub.calls().approve_with_rule(local_user(ADA), call.approval.unwrap(), None, rule).await.unwrap();
    assert_eq!(echo(&hub, agent, "b", Some("one")).await.unwrap().status, CallStatus::Success);
}

#[tokio::test]
async fn a_rule_ends_with_its_time() {
    let stage = Stage::new().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    stage.approve_with(agent, ("a", None), None, json!({"minutes": 2})).await.unwrap();
    let id = stage.rules().await[0].id;
    stage.clock.advance(119);
    assert_eq!(stage.echo(agent, "b", None).await.status, CallStatus::Success);
    stage.hub.calls().expire_approval_rules(ADA).await.unwrap();
    assert_eq!(stage.rules().await.len(), 1);
    stage.clock.advance(1);
    assert_eq!(stage.echo(agent, "c", None).await.status, CallStatus::Pending);
    assert!(stage.rules().await.is_empty());
    stage.hub.calls().expire_approval_rules(ADA).await.unwrap();
    assert_eq!(stage.entries("approval_rule.expired").await[0]["rule"], json!(id));
    assert_eq!(
        stage.hub.calls().approval_rule(local_user(ADA), id).await.unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

#[tokio::test]
async fn conditions_must_hold_for_the_arguments_that_are_sent() {
    let stage = Stage::new().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let rule = || form(json!({"conditions": [{"pointer": "/message", "equals": "edited"}]}));
    let (call, id) = stage.ask(agent, "echo", json!({"message": "requested"})).await;
    let user = local_user(ADA);
    let error = stage.hub.calls().approve_with_rule(user, id, None, Some(rule())).await.unwrap_err();
    assert_eq!(error.field(), Some("conditions[0]"));
    let limitless =
        stage.hub.calls().approve_with_rule(user, id, None, Some(form(json!({})))).await.unwrap_err();
    assert_eq!(limitless.field(), Some("minutes"));
    let unknown = form(json!({"minutes": 1, "condition": []}));
    let error = stage.hub.calls().approve_with_rule(user, id, None, Some(unknown)).await.unwrap_err();
    assert_eq!(error.field(), Some("condition"));
    assert_eq!((stage.open_approvals().await, stage.rules().await.len()), (1, 0), "nothing was decided");
    let edited = Some(json!({"message": "edited"}));
    stage.hub.calls().approve_with_rule(user, id, edited, Some(rule())).await.unwrap();
    assert_eq!(stage.wait_for_call(call.id).await.summary.as_deref(), Some("edited"));
    assert_eq!(stage.echo(agent, "edited", None).await.status, CallStatus::Success);
    assert_eq!(stage.echo(agent, "requested", None).await.status, CallStatus::Pending);
}

#[tokio::test]
async fn a_rule_permits_nothing_that_the_policy_denies() {
    let stage = Stage::new().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let user = local_user(ADA);
    let rule = new_rule(agent, "echo", json!({"minutes": 60}));
    stage.hub.calls().add_approval_rule(user, rule.clone()).await.unwrap();
    let outcome = async || match echo(&stage.hub, agent, "a", None).await {
        Ok(call) => format!("{:?}", call.status),
        Err(error) => error.code().to_owned(),
    };
    assert_eq!(outcome().await, "Success");
    stage.hub.registry().update_server(user, "up", json!({"enabled": false})).await.unwrap();
    assert_eq!(outcome().await, "Denied");
    let denied = stage.hub.calls().add_approval_rule(user, rule.clone()).await.unwrap_err();
    assert_eq!((denied.kind(), denied.code()), (ErrorKind::Conflict, "server_disabled"));
    stage.hub.registry().update_server(user, "up", json!({"enabled": true})).await.unwrap();
    let selected = |tools: &[&str]| json!({"servers": {"up": {"tools": tools}}});
    stage.hub.identity().update_agent(user, agent_of(agent), selected(&["big"])).await.unwrap();
    assert_eq!(outcome().await, "not_found");
    assert_eq!(
        stage.hub.calls().add_approval_rule(user, rule.clone()).await.unwrap_err().code(),
        "not_selected"
    );
    stage.hub.identity().update_agent(user, agent_of(agent), selected(&["echo"])).await.unwrap();
    assert_eq!(outcome().await, "Success");
    // A changed definition invalidates the rule, also after a user has trusted it.
    stage.upstream.handle.remove_tool("echo");
    let changed = linchpin::Tool::new("echo")
        .description("Sends it elsewhere")
        .handler(|_: linchpin::NoArgs| async { "elsewhere" });
    stage.upstream.handle.add(changed).unwrap();
    stage.hub.registry().sync_server(user, "up", None).await.unwrap();
    assert_eq!(outcome().await, "Denied");
    let tool = stage.hub.registry().tool(user, "mcp_up__echo").await.unwrap();
    stage.hub.registry().trust_tool(user, "mcp_up__echo", &tool.pin).await.unwrap();
    let call = stage.hub.calls().submit_call(
        agent,
        CallRequest::new(ToolRef::Qualified("mcp_up__echo".into()), json!({})),
        CallOptions::default(),
        true,
    );
    assert_eq!(call.await.unwrap().status, CallStatus::Pending);
    assert!(!stage.rules().await[0].is_valid);
    stage.upstream.handle.remove_tool("echo");
    stage.hub.registry().sync_server(user, "up", None).await.unwrap();
    assert_eq!(outcome().await, "Denied");
}

#[tokio::test]
async fn only_users_of_the_tenant_create_see_and_revoke_rules() {
    let stage = Stage::new().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let rule = new_rule(agent, "echo", json!({"minutes": 60}));
    let added = stage.hub.calls().add_approval_rule(local_user(ADA), rule.clone()).await.unwrap();
    let filter = ApprovalRuleFilter::default();
    let hub = &stage.hub;
    for error in [
        hub.calls().add_approval_rule(agent, rule.clone()).await.unwrap_err(),
        hub.calls().approval_rules(agent, &filter, &PAGE).await.unwrap_err(),
        hub.calls().approval_rule(agent, added.id).await.unwrap_err(),
        hub.calls().revoke_approval_rule(agent, added.id).await.unwrap_err(),
    ] {
        assert_eq!(error.code(), "user_required");
    }
    let (_, approval) = stage.ask(agent, "big", json!({"bytes": 1})).await;
    let by_agent =
        hub.calls().approve_with_rule(agent, approval, None, Some(form(json!({"minutes": 1})))).await;
    assert_eq!(by_agent.unwrap_err().code(), "user_required");
    let stranger = local_user(BOB);
    assert_eq!(hub.calls().add_approval_rule(stranger, rule).await.unwrap_err().field(), Some("agent"));
    assert!(hub.calls().approval_rules(stranger, &filter, &PAGE).await.unwrap().items.is_empty());
    for error in [
        hub.calls().approval_rule(stranger, added.id).await.unwrap_err(),
        hub.calls().revoke_approval_rule(stranger, added.id).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
    assert_eq!(stage.echo(agent, "a", None).await.status, CallStatus::Success);
}

#[tokio::test]
async fn an_agent_has_a_hundred_rules() {
    let stage = Stage::new().await;
    let agent = stage.agent("Asks", "always-ask", &[]).await;
    let rule = |tool: &str| new_rule(agent, tool, json!({"minutes": 1}));
    for _ in 0..100 {
        stage.hub.calls().add_approval_rule(local_user(ADA), rule("big")).await.unwrap();
    }
    let error = stage.hub.calls().add_approval_rule(local_user(ADA), rule("big")).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::LimitExceeded, "too_many_approval_rules"));
    let error = stage.approve_with(agent, ("a", None), None, json!({"minutes": 1})).await.unwrap_err();
    assert_eq!(error.code(), "too_many_approval_rules");
    let other = stage.agent("Other", "always-ask", &[]).await;
    stage
        .hub
        .calls()
        .add_approval_rule(local_user(ADA), new_rule(other, "big", json!({"minutes": 1})))
        .await
        .unwrap();
    let first = PageRequest { after: None, limit: 60 };
    let filter = ApprovalRuleFilter { agent: Some(agent_of(agent)), server: None };
    let page = stage.hub.calls().approval_rules(local_user(ADA), &filter, &first).await.unwrap();
    let second = PageRequest { after: page.next.clone(), limit: 60 };
    let rest = stage.hub.calls().approval_rules(local_user(ADA), &filter, &second).await.unwrap();
    assert_eq!((page.items.len(), rest.items.len(), rest.next), (60, 40, None));
    // Expired rules do not count.
    stage.clock.advance(60);
    stage.hub.calls().add_approval_rule(local_user(ADA), rule("big")).await.unwrap();
}

#[tokio::test]
async fn rules_are_removed_with_their_agent_and_their_server() {
    let stage = Stage::new().await;
    let (agent, other) =
        (stage.agent("Asks", "always-ask", &[]).await, stage.agent("Other", "always-ask", &[]).await);
    for agent in [agent, other] {
        let rule = new_rule(agent, "echo", json!({"minutes": 60}));
        stage.hub.calls().add_approval_rule(local_user(ADA), rule).await.unwrap();
    }
    stage.hub.identity().remove_agent(local_user(ADA), agent_of(agent)).await.unwrap();
    let left = stage.rules().await;
    assert_eq!((left.len(), left[0].agent), (1, agent_of(other)));
    stage.hub.registry().remove_server(local_user(ADA), "up").await.unwrap();
    assert!(stage.rules().await.is_empty());
}

#[tokio::test]
async fn all_hubs_of_a_cluster_use_the_same_rules() {
    let (place, url) = (tempfile::tempdir().unwrap(), server().url(&server().create_database()));
    let join = async || {
        let store = Postgres::join(&url, Durability::default(), Arc::new(SystemPlatform)).await.unwrap();
        another_hub(&place, Arc::new(SystemPlatform), Arc::new(store))
    };
    let (one, other) = (join().await, join().await);
    let (user, upstream) = (local_user(ADA), Upstream::new().await);
    let server = json!({ "name": "Up", "url": upstream.url, "retry_attempts": 0 });
    one.registry().add_server(user, server).await.unwrap();
    one.registry().sync_server(user, "up", None).await.unwrap();
    let agent = one.identity().add_agent(user, json!({"name": "Asks", "servers": {"up": {}}})).await.unwrap();
    let agent = Actor::new(ADA, Subject::Agent(agent.summary.id));
    let pending = echo(&other, agent, "a", None).await.unwrap();
    assert_eq!(pending.status, CallStatus::Pending);
    let rule = Some(form(json!({"conditions": [{"pointer": "/message", "in": ["a", "b"]}]})));
    let approved =
        other.calls().approve_with_rule(user, pending.approval.unwrap(), None, rule).await.unwrap();
    assert_eq!(approved.decision, ApprovalStatus::Used);
    let page = one.calls().approval_rules(user, &ApprovalRuleFilter::default(), &PAGE).await.unwrap();
    assert_eq!(echo(&other, agent, "b", None).await.unwrap().status, CallStatus::Success);
    // Revoked at one hub, the rule is not used at the other, whether it knows of the change or not.
    one.calls().revoke_approval_rule(user, page.items[0].id).await.unwrap();
    assert_eq!(echo(&other, agent, "b", None).await.unwrap().status, CallStatus::Pending);
}
