//! One handler, every revision: the same tools use elicitation, sampling and roots, sent as server requests or as input
//! requests in a result. Every message of both sides is validated against its schema.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use linchpin::model::{
    CreateMessageParams, CreateMessageResult, ElicitParams, ElicitResult, Root, Tool as ToolDefinition,
};
use linchpin::{
    Client, ClientBuilder, Context, ErrorKind, NoArgs, Prompt, Resource, Result, Revision, Server, Service,
    Tool, ToolOutput, args,
};
use serde_json::{Value, json};
use support::{STATELESS, SchemaTap, of};

/// First revision with form elicitation, and first with URL elicitation and tools in sampling.
const FORMS: Revision = Revision::ALL[2];
const URLS: Revision = Revision::ALL[3];

#[args]
struct Name {
    name: String,
}

#[args]
struct Age {
    age: u32,
}

async fn greet(_: NoArgs, cx: Context) -> Result<String> {
    let (name, age) = tokio::join!(cx.elicit::<Name>("Who are you?"), cx.elicit::<Age>("How old are you?"));
    Ok(format!("{} is {}", name?.name, age?.age))
}

async fn maybe(_: NoArgs, cx: Context) -> Result<String> {
    Ok(cx.try_elicit("Who?", Name { name: "nobody".into() }).await?.name)
}

async fn think(_: NoArgs, cx: Context) -> Result<String> {
    Ok(cx.sample("What is 6 times 7?").await?.to_text())
}

async fn use_tools(_: NoArgs, cx: Context) -> Result<String> {
    let mut params = CreateMessageParams::from("What is 6 times 7?");
    let tool = json!({ "name": "times", "inputSchema": { "type": "object" } });
    params.tools = Some(vec![serde_json::from_value::<ToolDefinition>(tool)?]);
    Ok(cx.sample(params).await?.to_text())
}

async fn folders(_: NoArgs, cx: Context) -> Result<String> {
    Ok(cx.roots().await?.into_iter().map(|root| root.uri).collect::<Vec<_>>().join(" "))
}

async fn page(_: NoArgs, cx: Context) -> Result<&'static str> {
    cx.elicit_url("Please pay", "https://example.com/pay").await?;
    Ok("on the way")
}

/// Sends every kind of server request, one after the other.
async fn order(_: NoArgs, cx: Context) -> Result<String> {
    let name = cx.elicit::<Name>("Who are you?").await?.name;
    let folders = cx.roots().await?.len();
    let (age, thought) = tokio::join!(cx.elicit::<Age>("How old?"), cx.sample("?"));
    let again = cx.elicit::<Name>("Who are you?").await?.name;
    Ok(format!("{name} {folders} {} {} {again}", age?.age, thought?.to_text()))
}

/// A failed server request is an ordinary error value in the handler.
async fn matches(_: NoArgs, cx: Context) -> Result<String> {
    match cx.elicit::<Name>("Who are you?").await {
        Ok(name) => Ok(format!("{} answered", name.name)),
        Err(error) if matches!(error.kind(), ErrorKind::Tool(_)) => Ok(format!("nobody: {error}")),
        Err(error) => Err(error),
    }
}

/// Server requests of a task that the handler has spawned, and that only the runtime polls.
async fn from_a_task(_: NoArgs, cx: Context) -> Result<String> {
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        for _ in 0..10 {
            tokio::task::yield_now().await; // so that the call has been polled already
        }
        let name = cx.elicit::<Name>("Who are you?").await?.name;
        tokio::task::yield_now().await;
        Result::Ok(format!("{name} is {}", cx.elicit::<Age>("How old are you?").await?.age))
    });
    tasks.join_next().await.unwrap()?
}

fn server() -> Server {
    Server::new("asks", "1.0.0")
        .add(Tool::new("greet").read_only().handler(greet))
        .add(Tool::new("maybe").read_only().handler(maybe))
        .add(Tool::new("think").read_only().handler(think))
        .add(Tool::new("use_tools").read_only().handler(use_tools))
        .add(Tool::new("folders").read_only().handler(folders))
        .add(Tool::new("page").read_only().handler(page))
        .add(Tool::new("order").read_only().handler(order))
        .add(Tool::new("matches").read_only().handler(matches))
        .add(Tool::new("from_a_task").read_only().handler(from_a_task))
        .add(Resource::new("a:greeting", "greeting").handler(|cx| greet(NoArgs {}, cx)))
        .add(Prompt::new("greeting").handler(greet))
}

fn build() -> Service {
    server().build().unwrap()
}

async fn answer(ask: ElicitParams) -> Result<ElicitResult> {
    let who = ask.message.starts_with("Who");
    Ok(ElicitResult::accept(if who { json!({ "name": "Ada" }) } else { json!({ "age": 36 }) }))
}

/// A client that handles all server requests.
async fn connect(client: ClientBuilder) -> Client {
    let client = client
        .on_elicit(answer)
        .on_elicit_url(|ask| async move {
            assert_eq!(ask.url.unwrap(), "https://example.com/pay");
            Ok(ElicitResult { content: None, ..ElicitResult::accept(json!({})) })
        })
        .on_sample_with_tools(|ask| async move {
            let tools = ask.tools.map_or(String::new(), |tools| format!(" by {}", tools[0].name));
            Ok(CreateMessageResult::text("model", format!("42{tools}")))
        })
        .roots([Root { uri: "file:///tmp/a".into(), name: None, meta: None }]);
    client.connect().await.unwrap()
}

async fn call(client: &Client, tool: &str) -> ToolOutput {
    client.call(tool, ()).await.unwrap()
}

fn failure(output: &ToolOutput) -> String {
    assert_eq!(output.is_error, Some(true), "{output:?}");
    output.to_text()
}

#[tokio::test]
async fn the_same_tools_ask_in_every_revision() {
    for revision in Revision::ALL {
        // Parked calls resume; without parking each round trip replays the call from the start.
        for service in [build(), build().without_parking()] {
            let tap = SchemaTap::new(&service);
            let client = connect(tap.client(revision)).await;
            assert_eq!(call(&client, "think").await.to_text(), "42", "{revision}");
            assert_eq!(call(&client, "folders").await.to_text(), "file:///tmp/a", "{revision}");
            let asked = [
                ("greet", "Ada is 36", FORMS),
                ("maybe", "Ada", FORMS),
                ("order", "Ada 1 36 42 Ada", FORMS),
                ("matches", "Ada answered", FORMS),
                ("from_a_task", "Ada is 36", FORMS),
                ("page", "on the way", URLS),
                ("use_tools", "42 by times", URLS),
            ];
            for (tool, text, since) in asked {
                let output = call(&client, tool).await;
                match (revision >= since, tool) {
                    (true, _) => assert_eq!(output.to_text(), text, "{tool} in {revision}"),
                    (false, "maybe") => assert_eq!(output.to_text(), "nobody"),
                    (false, "matches") => assert!(output.to_text().starts_with("nobody: cannot send")),
                    (false, "use_tools") => {
                        assert!(failure(&output).contains(r#"{"sampling":{"tools":{}}}"#));
                    }
                    (false, _) => assert!(failure(&output).contains("elicitation"), "{output:?}"),
                }
            }
            tap.messages();
        }
    }
}

#[tokio::test]
async fn resources_and_prompts_ask_too() {
    for revision in Revision::ALL.into_iter().filter(|revision| *revision >= FORMS) {
        for service in [build(), build().without_parking()] {
            let tap = SchemaTap::new(&service);
            let client = connect(tap.client(revision)).await;
            let read = client.read("a:greeting").await.unwrap();
            assert_eq!(read.contents[0].text.as_deref(), Some("Ada is 36"), "{revision}");
            let filled = client.prompt("greeting", [("", ""); 0]).await.unwrap();
            assert_eq!(filled.messages[0].content.as_text(), Some("Ada is 36"), "{revision}");
            tap.messages();
        }
    }
}

#[tokio::test]
async fn joined_questions_are_one_round_or_two_requests() {
    for revision in Revision::ALL.into_iter().filter(|revision| *revision >= FORMS) {
        let tap = SchemaTap::new(&build());
        let client = connect(tap.client(revision)).await;
        tap.messages();
        assert_eq!(call(&client, "greet").await.to_text(), "Ada is 36");
        let (sent, received) = tap.messages();
        let (calls, pushed) = (of(&sent, "tools/call"), of(&received, "elicitation/create"));
        if revision == STATELESS {
            assert_eq!((calls.len(), pushed.len(), received.len()), (2, 0, 2));
            let asked = received[0]["result"]["inputRequests"].as_object().unwrap();
            assert_eq!(asked.len(), 2, "{asked:?}");
            assert_eq!(calls[1]["params"]["inputResponses"].as_object().unwrap().len(), 2);
            assert_eq!(calls[1]["params"]["requestState"], received[0]["result"]["requestState"]);
            assert_ne!(calls[0]["id"], calls[1]["id"]);
        } else {
            assert_eq!((calls.len(), pushed.len(), received.len()), (1, 2, 3));
        }
    }
}

#[tokio::test]
async fn a_task_that_a_handler_has_started_asks_once_too() {
    for revision in Revision::ALL.into_iter().filter(|revision| *revision >= FORMS) {
        let tap = SchemaTap::new(&build());
        let client = connect(tap.client(revision)).await;
        tap.messages();
        assert_eq!(call(&client, "from_a_task").await.to_text(), "Ada is 36");
        let (sent, received) = tap.messages();
        let (calls, pushed) = (of(&sent, "tools/call"), of(&received, "elicitation/create"));
        let expected = if revision == STATELESS { (3, 0) } else { (1, 2) };
        assert_eq!((calls.len(), pushed.len()), expected, "{sent:?}");
    }
}

#[tokio::test]
async fn a_user_who_gives_no_answer_is_an_error_that_the_model_reads() {
    for revision in Revision::ALL.into_iter().filter(|revision| *revision >= FORMS) {
        for (no, form, url) in [
            (
                ElicitResult::decline(),
                "the user declined the elicitation",
                "the user declined to open the page",
            ),
            (
                ElicitResult::cancel(),
                "the user cancelled the elicitation",
                "the user cancelled the elicitation",
            ),
        ] {
            let tap = SchemaTap::new(&build());
            let (on_form, on_url) = (no.clone(), no);
            let client = tap.client(revision).on_elicit(move |_| std::future::ready(Ok(on_form.clone())));
            let client = client.on_elicit_url(move |_| std::future::ready(Ok(on_url.clone())));
            let client = client.connect().await.unwrap();
            assert_eq!(failure(&call(&client, "greet").await), form, "{revision}");
            assert_eq!(call(&client, "maybe").await.to_text(), "nobody", "{revision}");
            assert_eq!(call(&client, "matches").await.to_text(), format!("nobody: {form}"));
            if revision >= URLS {
                assert_eq!(failure(&call(&client, "page").await), url, "{revision}");
            }
            tap.messages();
        }
    }
}

#[tokio::test]
async fn what_does_not_fit_the_form_is_said_with_its_place() {
    for revision in Revision::ALL.into_iter().filter(|revision| *revision >= FORMS) {
        let tap = SchemaTap::new(&build());
        let client = tap.client(revision).on_elicit(|ask| async move {
            let who = ask.message.starts_with("Who");
            Ok(ElicitResult::accept(if who { json!({"name": "Ada"}) } else { json!({"age": "old"}) }))
        });
        let client = client.connect().await.unwrap();
        let text = failure(&call(&client, "greet").await);
        assert!(text.starts_with("the elicited content is invalid at /age: "), "{text}");
        tap.messages();
    }
}

/// Returns the outcome of a call for a client without capabilities: the text of a tool error, or a protocol error.
async fn refused(client: &Client, tool: &str) -> std::result::Result<String, Value> {
    let answer = match tool {
        "a:greeting" => client.request::<Value>("resources/read", json!({"uri": tool})).await,
        "greeting" => client.request("prompts/get", json!({"name": tool})).await,
        _ => client.request("tools/call", json!({"name": tool})).await,
    };
    match answer {
        Ok(result) => {
            assert_eq!(result["isError"], true, "{result}");
            Ok(result["content"][0]["text"].as_str().unwrap().to_owned())
        }
        Err(linchpin::ClientError::Call(linchpin_jsonrpc::CallError::Rejected(error))) => {
            Err(json!({"code": error.code, "message": error.message, "data": error.data}))
        }
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_client_that_cannot_be_asked_is_told_what_it_lacks() {
    let lacks = [
        ("greet", json!({"elicitation": {"form": {}}})),
        ("think", json!({"sampling": {}})),
        ("folders", json!({"roots": {}})),
        ("page", json!({"elicitation": {"url": {}}})),
        ("use_tools", json!({"sampling": {"tools": {}}})),
        ("a:greeting", json!({"elicitation": {"form": {}}})),
        ("greeting", json!({"elicitation": {"form": {}}})),
    ];
    for revision in Revision::ALL {
        let tap = SchemaTap::new(&build());
        let client = tap.client(revision).connect().await.unwrap();
        assert_eq!(call(&client, "maybe").await.to_text(), "nobody", "{revision}");
        for (name, capability) in &lacks {
            match refused(&client, name).await {
                Ok(text) => {
                    assert!(revision != STATELESS && !name.contains("greeting"), "{name} in {revision}");
                    assert!(text.starts_with("cannot send "), "{text}");
                    let named = if revision >= FORMS { capability.to_string() } else { "{\"".to_owned() };
                    assert!(text.contains(&named), "{text}");
                }
                Err(error) if revision == STATELESS => {
                    assert_eq!(error["code"], -32021, "{name}");
                    assert_eq!(error["data"], json!({"requiredCapabilities": capability}), "{name}");
                }
                Err(error) => {
                    assert!(name.contains("greeting"), "{name} in {revision}");
                    assert_eq!(error["code"], -32603);
                    assert!(error["message"].as_str().unwrap().contains("lacks the capability"), "{error}");
                }
            }
        }
        let (_, received) = tap.messages();
        let questions = received.iter().filter(|message| message.get("method").is_some());
        assert_eq!(questions.count(), 0, "only supported requests are sent");
    }
}

#[tokio::test]
async fn a_visit_has_a_name_of_its_own_where_the_revision_wants_one() {
    let tool = |_: NoArgs, cx: Context| async move {
        for url in ["https://example.com/pay", "http://localhost:8080/pay", "https://example.com/pay"] {
            cx.elicit_url("Please pay", url).await?;
        }
        Result::Ok("done")
    };
    for revision in [URLS, STATELESS] {
        let service = Server::new("asks", "1").tool("pay", "", tool).build().unwrap();
        let tap = SchemaTap::new(&service);
        let client = tap.client(revision).on_elicit_url(|_| async { Ok(ElicitResult::accept(Value::Null)) });
        let client = client.connect().await.unwrap();
        assert_eq!(call(&client, "pay").await.to_text(), "done");
        let (_, received) = tap.messages();
        let mut names: Vec<_> = of(&received, "elicitation/create")
            .into_iter()
            .map(|question| question["params"]["elicitationId"].as_str().unwrap().to_owned())
            .collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), if revision == STATELESS { 0 } else { 3 }, "unique on this server");
    }
}

#[tokio::test]
async fn a_client_is_notified_when_the_user_has_finished_on_the_page() {
    let (kept, pages) = std::sync::mpsc::sync_channel(1);
    let tool = move |_: NoArgs, cx: Context| {
        let kept = kept.clone();
        async move {
            kept.send(cx.elicit_url("Please pay", "https://example.com/pay").await?)?;
            Result::Ok("on the way")
        }
    };
    let service = Server::new("asks", "1").tool("pay", "", tool).build().unwrap();
    for revision in [URLS, STATELESS] {
        let tap = SchemaTap::new(&service);
        let client = tap.client(revision).on_elicit_url(|_| async { Ok(ElicitResult::accept(Value::Null)) });
        let client = client.connect().await.unwrap();
        assert_eq!(call(&client, "pay").await.to_text(), "on the way");
        pages.recv().unwrap().complete(); // long after the call
        client.tools().all().await.unwrap(); // the notification arrives before this response
        let (_, received) = tap.messages();
        let said = of(&received, "notifications/elicitation/complete");
        if revision == STATELESS {
            assert_eq!(said, Vec::<&Value>::new());
        } else {
            let id = &of(&received, "elicitation/create")[0]["params"]["elicitationId"];
            assert_eq!(said.len(), 1, "{received:?}");
            assert_eq!(said[0]["params"], json!({ "elicitationId": id }));
        }
    }
}

#[tokio::test]
async fn users_are_not_sent_to_pages_that_anybody_can_read_along() {
    for url in [
        "http://example.com",
        "http://localhost.example.com/",
        "http://127.0.0.1.example.com",
        "http://localhost@example.com/",
        "http://[::1].example.com/",
        "javascript:alert(1)",
        "example.com",
    ] {
        let tool = move |_: NoArgs, cx: Context| async move {
            let refused = cx.elicit_url("Come", url).await.unwrap_err();
            Result::Ok(refused.to_string())
        };
        let service = Server::new("asks", "1").tool("come", "", tool).build().unwrap();
        let client = connect(service.client()).await;
        let text = call(&client, "come").await.to_text();
        assert!(text.ends_with("use https"), "{url}: {text}");
    }
}
