//! Named input requests: clients without a session see the names and may respond in advance; in a session they are
//! ordinary server requests. Also calls that request input and then become tasks.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::time::Duration;

use linchpin::model::{CreateMessageResult, ElicitResult, Root, TaskSupport, extension};
use linchpin::testing::matrix;
use linchpin::{Context, Error, NoArgs, Result, Server, Service, StateKey, StateKeys, Tool, args};
use serde_json::{Value, json};
use support::rounds::{Rounds, filled, input_required, named};
use support::{failure, fault, handled, stateless_with, text};

#[args]
struct Name {
    name: String,
}

async fn greet(_: NoArgs, cx: Context) -> Result<String> {
    Ok(format!("Hello, {}!", cx.named("user_name").elicit::<Name>("Who are you?").await?.name))
}

async fn three(_: NoArgs, cx: Context) -> Result<String> {
    let (name, greeting, roots) = tokio::join!(
        cx.named("user_name").try_elicit("Who are you?", Name { name: "nobody".into() }),
        cx.named("greeting").sample("Greet somebody"),
        cx.named("client_roots").roots(),
    );
    Ok(format!("{} {} in {}", greeting?.to_text(), name?.name, roots?[0].uri))
}

async fn two(_: NoArgs, cx: Context) -> Result<String> {
    let first = cx.elicit::<Name>("First?").await?.name;
    let second = cx.named("second").elicit::<Name>("Second?").await?.name;
    Ok(format!("{first} {second} {}", cx.elicit::<Name>("Third?").await?.name))
}

async fn twice(_: NoArgs, cx: Context) -> Result<String> {
    cx.named("user_name").elicit::<Name>("Who are you?").await?;
    greet(NoArgs {}, cx).await
}

async fn taken(_: NoArgs, cx: Context) -> Result<String> {
    Ok(cx.named("q7").elicit::<Name>("Who are you?").await?.name)
}

/// Sends an input request, drops it, and sends another with the same name.
async fn impatient(_: NoArgs, cx: Context) -> Result<String> {
    let asking = cx.named("user_name").elicit::<Name>("Who were you?");
    tokio::select! {
        biased;
        _ = asking => return Err(Error::tool("no response was given for it")),
        () = std::future::ready(()) => {}
    }
    greet(NoArgs {}, cx).await
}

fn server() -> Server {
    Server::new("names", "1")
        .keys(StateKeys::new(StateKey::new(&[7; 32])))
        .add(Tool::new("greet").read_only().handler(greet))
        .add(Tool::new("three").read_only().handler(three))
        .add(Tool::new("two").read_only().handler(two))
        .add(Tool::new("twice").handler(twice))
        .add(Tool::new("taken").handler(taken))
        .add(Tool::new("impatient").handler(impatient))
}

fn instance() -> Service {
    server().build().unwrap()
}

#[test]
fn names_change_nothing_for_a_client_that_follows() {
    matrix(&instance(), |case| async move {
        let client = case
            .client()
            .on_elicit(|_| async { Ok(ElicitResult::accept(json!({"name": "Ada"}))) })
            .on_sample(|_| async { Ok(CreateMessageResult::text("model", "Hi")) })
            .roots([Root { uri: "file:///here".into(), name: None, meta: None }])
            .connect()
            .await?;
        if client.revision() >= linchpin::Revision::ALL[2] {
            assert_eq!(client.call("greet", ()).await?.to_text(), "Hello, Ada!");
            assert_eq!(client.call("three", ()).await?.to_text(), "Hi Ada in file:///here");
            assert_eq!(client.call("two", ()).await?.to_text(), "Ada Ada Ada");
        }
        Ok::<(), linchpin::ClientError>(())
    });
}

#[tokio::test(start_paused = true)]
async fn the_name_is_the_key() {
    let service = instance();
    let call = Rounds::tool("greet", json!({}));
    let asked = call.begin(&service).await;
    assert_eq!(asked.input_requests["user_name"]["method"], "elicitation/create");
    assert_eq!(call.finish(&service, &asked.state, named("user_name", "Ada")).await, "Hello, Ada!");
    let call = Rounds::tool("impatient", json!({}));
    let asked = call.begin(&service).await;
    assert_eq!(call.finish(&service, &asked.state, named("user_name", "Ada")).await, "Hello, Ada!");
}

#[tokio::test(start_paused = true)]
async fn named_and_numbered_questions_go_on_on_another_instance() {
    let call = Rounds::tool("two", json!({}));
    let first = call.begin(&instance()).await;
    let second = input_required(&call.retry(&instance(), &first.state, named("q1", "A")).await);
    assert_eq!(second.input_requests.as_object().unwrap().keys().collect::<Vec<_>>(), ["second"]);
    let third = input_required(&call.retry(&instance(), &second.state, named("second", "B")).await);
    assert_eq!(third.input_requests.as_object().unwrap().keys().collect::<Vec<_>>(), ["q3"]);
    assert_eq!(call.finish(&instance(), &third.state, named("q3", "C")).await, "A B C");
}

async fn with_answers(tool: &str, answers: Value) -> Value {
    let params = json!({"name": tool, "arguments": {}, "inputResponses": answers});
    let params = stateless_with(params, &json!({"elicitation": {}, "sampling": {}, "roots": {}}));
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    handled(&instance(), &message).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_answer_may_come_with_the_call() {
    let mut answers = named("user_name", "Ada");
    answers["unknown"] = json!({"action": "accept", "content": {"any": "thing"}});
    assert_eq!(text(&with_answers("greet", answers.clone()).await["result"]), "Hello, Ada!");
    let rest = input_required(&with_answers("three", answers).await);
    assert_eq!(
        rest.input_requests.as_object().unwrap().keys().collect::<Vec<_>>(),
        ["client_roots", "greeting"]
    );
    assert!(
        input_required(&with_answers("greet", named("other", "Ada")).await)
            .input_requests
            .get("user_name")
            .is_some()
    );
    assert!(
        input_required(&with_answers("greet", Value::Null).await).input_requests.get("user_name").is_some()
    );
    // Unnamed input requests cannot get a response in advance.
    assert!(
        input_required(&with_answers("two", named("q1", "Ada")).await).input_requests.get("q1").is_some()
    );
    for (answers, path) in
        [(json!({"user_name": 12345}), "/inputResponses/user_name"), (json!([1]), "/inputResponses")]
    {
        let answer = with_answers("greet", answers).await;
        assert_eq!(fault(&answer).0, -32602, "{answer}");
        assert_eq!(answer["error"]["data"]["path"], path, "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_is_used_once_and_is_not_a_number() {
    let service = instance();
    let call = Rounds::tool("twice", json!({}));
    let asked = call.begin(&service).await;
    let answer = call.retry(&service, &asked.state, named("user_name", "Ada")).await;
    assert!(failure(&answer["result"]).contains("internal error"), "{answer}");
    let answer = with_answers("taken", json!({})).await;
    assert!(failure(&answer["result"]).contains("internal error"), "{answer}");
}

/// Sends another input request with the same name in each run.
#[tokio::test(start_paused = true)]
async fn a_call_that_asks_something_else_by_the_same_name_cannot_go_on() {
    let instance = |question: &'static str| {
        let fickle = move |_: NoArgs, cx: Context| async move {
            Ok::<_, Error>(cx.named("name").elicit::<Name>(question).await?.name)
        };
        Server::new("fickle", "1")
            .keys(StateKeys::new(StateKey::new(&[7; 32])))
            .add(Tool::new("fickle").read_only().handler(fickle))
            .build()
            .unwrap()
    };
    let call = Rounds::tool("fickle", json!({}));
    let first = call.begin(&instance("Who?")).await;
    let answer = call.retry(&instance("What is your secret?"), &first.state, named("name", "Ada")).await;
    assert!(failure(&answer["result"]).contains("its replay requested different input"), "{answer}");
}

async fn slow(_: NoArgs, cx: Context) -> Result<String> {
    let name = cx.named("user_name").elicit::<Name>("Who are you?").await?.name;
    support::paused::pass(Duration::from_secs(5)).await;
    let other = cx.named("other").elicit::<Name>("Who else?").await?.name;
    Ok(format!("{name} and {other}"))
}

async fn ask(service: &Service, method: &str, params: Value) -> Value {
    let params = stateless_with(params, &json!({"elicitation": {}, "extensions": {(extension::TASKS): {}}}));
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let mut answer = handled(service, &message).await.unwrap();
    assert!(answer.get("result").is_some(), "{answer}");
    answer["result"].take()
}

#[tokio::test(start_paused = true)]
async fn a_call_that_asks_first_becomes_a_task_when_it_works() {
    for support in [TaskSupport::Optional, TaskSupport::Required] {
        let tool = Tool::new("slow").task(support).requests_input_first().handler(slow);
        let service = Server::new("tasks", "1").add(tool).build().unwrap();
        let first = ask(&service, "tools/call", json!({"name": "slow"})).await;
        assert_eq!((&first["resultType"], first.get("taskId")), (&json!("input_required"), None), "{first}");
        let retry = json!({
            "name": "slow", "requestState": first["requestState"], "inputResponses": named("user_name", "Ada"),
        });
        let task = ask(&service, "tools/call", retry.clone()).await;
        assert_eq!((&task["resultType"], &task["status"]), (&json!("task"), &json!("working")), "{task}");
        assert_eq!((task.get("requestState"), task.get("inputRequests")), (None, None));
        let id = task["taskId"].clone();
        assert_eq!(ask(&service, "tools/call", retry).await["taskId"], id, "a lost response is sent again");
        support::paused::pass(Duration::from_secs(6)).await;
        let asks = ask(&service, "tasks/get", json!({"taskId": id})).await;
        assert_eq!(asks["status"], "input_required", "{asks}");
        let answers = json!({"other": filled(json!({"name": "Bob"}))});
        ask(&service, "tasks/update", json!({"taskId": id, "inputResponses": answers})).await;
        support::paused::pass(Duration::from_millis(10)).await;
        let done = ask(&service, "tasks/get", json!({"taskId": id})).await;
        assert_eq!((&done["status"], text(&done["result"])), (&json!("completed"), "Ada and Bob".into()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_asked_first_can_be_cancelled() {
    let tool = Tool::new("slow").task(TaskSupport::Required).requests_input_first().handler(slow);
    let service = Server::new("tasks", "1").add(tool).build().unwrap();
    let call = json!({"name": "slow", "inputResponses": named("user_name", "Ada")});
    let task = ask(&service, "tools/call", call).await;
    assert_eq!(task["resultType"], "task", "{task}");
    ask(&service, "tasks/cancel", json!({"taskId": task["taskId"]})).await;
    support::paused::pass(Duration::from_secs(6)).await;
    assert_eq!(ask(&service, "tasks/get", json!({"taskId": task["taskId"]})).await["status"], "cancelled");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_asks_first_and_is_done_is_no_task() {
    let tool = Tool::new("greet").task(TaskSupport::Required).requests_input_first().handler(greet);
    let service = Server::new("tasks", "1").add(tool).build().unwrap();
    let call = json!({"name": "greet", "inputResponses": named("user_name", "Ada")});
    let done = ask(&service, "tools/call", call).await;
    assert_eq!((&done["resultType"], text(&done)), (&json!("complete"), "Hello, Ada!".into()));
}
