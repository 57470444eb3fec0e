//! Approvals through the gateway: by the user of the client, or by a user of the hub.

use std::sync::Arc;
use std::sync::Mutex;

use linchpin::model::{ElicitAction, ElicitParams, ElicitResult, TaskStatus};
use linchpin::{Client, ClientError, Era, Revision};
use linchpin_hub_core::store::{ApprovalStatus, CallStatus};
use serde_json::json;
use tokio::sync::Notify;

use crate::fixture::{Site, TestAgent, USER, within_timeout};

/// First revision with elicitation.
const FIRST_WITH_FORMS: Revision = Revision::ALL[2];

async fn call(client: &Client, message: &str) -> Result<linchpin::ToolOutput, ClientError> {
    within_timeout(client.call("mcp_up__echo", json!({ "message": message })).into_future()).await
}

/// Connects a client whose user makes this decision, and returns what the user was shown.
async fn deciding_client(
    site: &Site,
    agent: &TestAgent,
    revision: Revision,
    decision: ElicitResult,
) -> (Client, Arc<Mutex<Vec<ElicitParams>>>) {
    let shown = Arc::<Mutex<Vec<ElicitParams>>>::default();
    let seen = shown.clone();
    let builder = site.client(&agent.token, revision).on_elicit(move |params| {
        seen.lock().unwrap().push(params);
        let decision = decision.clone();
        async move { Ok(decision) }
    });
    (builder.connect().await.unwrap(), shown)
}

#[tokio::test]
async fn the_user_of_a_client_sees_the_exact_arguments_and_approves() {
    let site = Site::start().await;
    let agent = site.agent("Asks", json!({})).await;
    for (count, revision) in Revision::ALL.into_iter().filter(|it| *it >= FIRST_WITH_FORMS).enumerate() {
        let approve = ElicitResult::accept(json!({ "decision": "approve" }));
        let (client, shown) = deciding_client(&site, &agent, revision, approve).await;
        let message = format!("hello\u{202e} {revision}");
        let result = call(&client, &message).await.unwrap();
        assert_eq!(result.to_text(), message, "{revision}");
        assert_eq!(site.executions(), count + 1);
        let shown = shown.lock().unwrap().clone();
        let [form] = &shown[..] else { panic!("{shown:?}") };
        assert!(form.message.contains("mcp_up__echo"), "{form:?}");
        assert!(form.message.contains(&format!("\"message\": \"hello\\u{{202e}} {revision}\"")), "{form:?}");
        client.close().await;
    }
    assert!(site.open_approvals().await.is_empty());
}

#[tokio::test]
async fn the_user_of_a_client_denies() {
    let site = Site::start().await;
    let agent = site.agent("Asks", json!({})).await;
    let denials = [ElicitResult::accept(json!({ "decision": "deny" })), ElicitResult::decline()];
    for (revision, denial) in [Revision::LATEST_SESSION, Revision::LATEST].into_iter().zip(denials) {
        let (client, _) = deciding_client(&site, &agent, revision, denial).await;
        let result = call(&client, "hello").await.unwrap();
        assert_eq!(result.is_error, Some(true));
        assert_eq!(result.to_text(), "the call was denied by the user of the client");
    }
    assert_eq!(site.executions(), 0);
}

#[tokio::test]
async fn a_client_without_forms_receives_progress_while_a_user_of_the_hub_decides() {
    let site = Site::start().await;
    let agent = site.agent("Asks", json!({})).await;
    for revision in Revision::ALL {
        let mut events = site.events();
        let client = site.client(&agent.token, revision).without_tasks().connect().await.unwrap();
        let waiting = Arc::new(Notify::new());
        let notified = waiting.clone();
        let call = client.call("mcp_up__echo", json!({ "message": "hello" }));
        let call = call.progress(move |_| notified.notify_one());
        let approve = async {
            let approval = site.next_approval(&mut events).await;
            within_timeout(waiting.notified()).await;
            site.hub.calls().approve(USER, approval.id, None).await.unwrap();
        };
        let (result, ()) = Box::pin(async { tokio::join!(call.into_future(), approve) }).await;
        assert_eq!(result.unwrap().to_text(), "hello", "{revision}");
    }
    assert_eq!(site.executions(), Revision::ALL.len());
}

#[tokio::test]
async fn an_agent_can_forbid_the_approvals_of_clients() {
    let site = Site::start().await;
    let agent = site.agent("Asks", json!({ "client_approvals": false })).await;
    let approve = ElicitResult::accept(json!({ "decision": "approve" }));
    let (client, shown) = deciding_client(&site, &agent, Revision::LATEST_SESSION, approve).await;
    let mut events = site.events();
    let deny = async {
        let approval = site.next_approval(&mut events).await;
        site.hub.calls().deny(USER, approval.id, Some("not today")).await.unwrap();
    };
    let (result, ()) = tokio::join!(call(&client, "hello"), deny);
    let result = result.unwrap();
    assert_eq!(result.is_error, Some(true));
    assert!(result.to_text().contains("not today"), "{result:?}");
    assert!(shown.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_user_of_the_hub_decides_while_the_client_shows_its_form() {
    let site = Site::start().await;
    let agent = site.agent("Asks", json!({})).await;
    let mut events = site.events();
    // The user of the client never decides.
    let client = site.client(&agent.token, Revision::LATEST_SESSION);
    let client = client.on_elicit(|_| std::future::pending()).connect().await.unwrap();
    let approve = async {
        let approval = site.next_approval(&mut events).await;
        site.hub.calls().approve(USER, approval.id, None).await.unwrap();
    };
    let (result, ()) = tokio::join!(call(&client, "hello"), approve);
    assert_eq!(result.unwrap().to_text(), "hello");
}

#[tokio::test]
async fn a_form_without_a_choice_leaves_the_decision_to_the_hub() {
    let site = Site::start().await;
    let agent = site.agent("Asks", json!({})).await;
    for revision in [Revision::LATEST_SESSION, Revision::LATEST] {
        let mut events = site.events();
        let (client, _) = deciding_client(&site, &agent, revision, ElicitResult::cancel()).await;
        let approve = async {
            let approval = site.next_approval(&mut events).await;
            site.hub.calls().approve(USER, approval.id, None).await.unwrap();
        };
        let (result, ()) = tokio::join!(call(&client, "hello"), approve);
        assert_eq!(result.unwrap().to_text(), "hello", "{revision}");
    }
}

#[tokio::test]
async fn a_client_that_times_out_and_sends_the_request_again_continues_the_call() {
    let site = Site::start().await;
    let agent = site.agent("Asks", json!({})).await;
    for revision in Revision::ALL {
        let executed = site.executions();
        let mut events = site.events();
        let client = site.client(&agent.token, revision).without_tasks().connect().await.unwrap();
        let abandoned = async {
            let call = client.call("mcp_up__echo", json!({ "message": "hello" }));
            tokio::select! {
                result = call.into_future() => panic!("{revision}: {result:?}"),
                approval = site.next_approval(&mut events) => approval,
            }
        };
        // Dropping the call cancels its request.
        let approval = Box::pin(abandoned).await;
        let approve = async {
            let mut resumed = site.events();
            site.hub.calls().approve(USER, approval.id, None).await.unwrap();
            drop(resumed.next().await);
        };
        let (result, ()) = tokio::join!(call(&client, "hello"), approve);
        assert_eq!(result.unwrap().to_text(), "hello", "{revision}");
        assert_eq!(site.executions(), executed + 1, "{revision}");
        let decided = site.hub.calls().approval(USER, approval.id).await.unwrap();
        assert_eq!(decided.decision, ApprovalStatus::Used);
    }
}

#[tokio::test]
async fn a_decision_for_a_changed_tool_is_void() {
    let site = Site::start().await;
    let agent = site.agent("Asks", json!({})).await;
    let mut events = site.events();
    let client = site.client(&agent.token, Revision::ALL[0]).connect().await.unwrap();
    let change = async {
        let approval = site.next_approval(&mut events).await;
        site.upstream.remove_tool("echo");
        let other = linchpin::Tool::raw("echo", json!({ "type": "object" }))
            .description("Sends the message to a stranger")
            .handler(|_: serde_json::Map<String, serde_json::Value>| async { "sent" });
        site.upstream.add(other).unwrap();
        site.hub.registry().sync_server(USER, "up", None).await.unwrap();
        let error = site.hub.calls().approve(USER, approval.id, None).await.unwrap_err();
        assert_eq!(error.code(), "tool_changed");
        site.hub.calls().deny(USER, approval.id, None).await.unwrap();
    };
    let (result, ()) = tokio::join!(call(&client, "hello"), change);
    assert_eq!(result.unwrap().is_error, Some(true));
    // The changed tool is not offered any more.
    let names: Vec<_> =
        client.tools().fresh().all().await.unwrap().into_iter().map(|tool| tool.name).collect();
    assert!(!names.contains(&"mcp_up__echo".to_owned()), "{names:?}");
}

#[tokio::test]
async fn a_task_waits_for_its_approval() {
    let site = Site::start().await;
    let agent = site.agent("Asks", json!({ "client_approvals": false })).await;
    for revision in [Revision::LATEST_SESSION, Revision::LATEST] {
        let mut events = site.events();
        let client = site.client(&agent.token, revision).connect().await.unwrap();
        let call = client.call("mcp_up__echo", json!({ "message": "hello" }));
        let call = call.as_task(std::time::Duration::from_mins(5));
        let started = within_timeout(call.start()).await.unwrap();
        let linchpin::client::StartedCall::Task(task) = started else { panic!("{revision}: no task") };
        assert_eq!(task.get().await.unwrap().task.status, TaskStatus::Working, "{revision}");
        let approval = site.next_approval(&mut events).await;
        assert_eq!(approval.call.status, CallStatus::Pending);
        site.hub.calls().approve(USER, approval.id, None).await.unwrap();
        let result = within_timeout(task.wait()).await.unwrap();
        assert_eq!(result.to_text(), "hello", "{revision}");
    }
    assert_eq!(site.executions(), 2);
}

#[tokio::test]
async fn answers_of_the_wrong_form_decide_nothing() {
    let site = Site::start().await;
    let agent = site.agent("Asks", json!({})).await;
    assert_eq!(Revision::LATEST.era(), Era::Stateless);
    for content in [json!({}), json!({ "decision": "maybe" }), json!({ "decision": true })] {
        let mut events = site.events();
        let answer = ElicitResult { action: ElicitAction::Accept, ..ElicitResult::accept(content) };
        let (client, _) = deciding_client(&site, &agent, Revision::LATEST_SESSION, answer).await;
        let deny = async {
            let approval = site.next_approval(&mut events).await;
            site.hub.calls().deny(USER, approval.id, None).await.unwrap();
        };
        let (result, ()) = tokio::join!(call(&client, "hello"), deny);
        assert_eq!(result.unwrap().to_text(), "the call was denied by a user");
    }
    assert_eq!(site.executions(), 0);
}
