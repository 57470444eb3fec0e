//! Scopes of tools: enforced for authenticated callers, in every revision and for every route to a tool.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use linchpin::model::TaskSupport;
use linchpin::server::{Next, Request};
use linchpin::{Context, Identity, NoArgs, Revision, Server, Service, Tool, tool};
use serde_json::{Map, Value, json};
use support::{STATELESS, fault, stateless_with};

/// Deletes something
#[tool(scopes = ["files:write"])]
async fn erase() -> &'static str {
    "erased"
}

fn server() -> Server {
    let inner = Server::new("inner", "1")
        .add(Tool::new("delete").scopes(["files:write"]).handler(|_: NoArgs| async { "deleted" }));
    Server::new("outer", "1")
        .tool("free", "", || async { "free" })
        .add(erase)
        .add(Tool::new("both").scopes(["files:read", "files:write"]).handler(|_: NoArgs| async { "both" }))
        .add(
            Tool::new("task")
                .scopes(["files:write"])
                .task(TaskSupport::Optional)
                .handler(|_: NoArgs| async { "done" }),
        )
        .tool("who", "", |_: NoArgs, cx: Context| async move {
            let who = cx.identity().map_or("nobody", Identity::subject).to_owned();
            assert_eq!(cx.principal().unwrap_or("nobody"), who);
            who
        })
        .mount("inner", inner)
}

/// Calls a tool without a session, as each revision does.
async fn call(service: &Service, revision: Revision, params: Value) -> Value {
    let params = if revision == STATELESS { stateless_with(params, &json!({})) } else { params };
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let answer = service.handle_json(message.to_string().as_bytes()).await.unwrap();
    serde_json::from_slice(&answer).unwrap()
}

fn known(scopes: &[&str]) -> Service {
    server().build().unwrap().for_identity(Identity::new("ada").with_scopes(scopes.iter().copied()))
}

#[tokio::test]
async fn a_tool_is_called_by_those_who_may() {
    let tools = ["erase", "both", "task", "inner_delete"];
    let mut refused = 0;
    for revision in [Revision::LATEST_SESSION, STATELESS] {
        for tool in tools {
            for scopes in [&[][..], &["files:read"], &["files"], &["FILES:WRITE"], &["files:write:all"]] {
                let answer = call(&known(scopes), revision, json!({"name": tool})).await;
                let (code, text) = fault(&answer);
                assert_eq!(code, -32600, "{tool} {scopes:?}");
                assert!(text.contains("files:write"), "{text}");
                assert_eq!(
                    answer["error"]["data"]["requiredScopes"].as_array().unwrap().len(),
                    1 + usize::from(tool == "both")
                );
                refused += 1;
            }
            let answer = call(&known(&["files:write", "files:read"]), revision, json!({"name": tool})).await;
            assert!(answer["result"]["isError"] != true && answer["result"].is_object(), "{answer}");
            // Without authentication, every tool may be called.
            let answer = call(&server().build().unwrap(), revision, json!({"name": tool})).await;
            assert!(answer["result"].is_object(), "{answer}");
        }
        let answer = call(&known(&[]), revision, json!({"name": "free"})).await;
        assert!(answer["result"].is_object());
        let answer = call(&known(&[]), revision, json!({"name": "who"})).await;
        assert_eq!(answer["result"]["content"][0]["text"], "ada");
    }
    assert_eq!(refused, 40);
}

#[tokio::test]
async fn a_name_can_be_written_in_other_ways_and_is_the_same() {
    let service = known(&[]);
    let message = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"er\u0061se"}}"#;
    let answer: Value =
        serde_json::from_slice(&service.handle_json(message.as_bytes()).await.unwrap()).unwrap();
    assert_eq!(fault(&answer).0, -32600);
}

#[tokio::test]
async fn a_layer_cannot_lead_around_it() {
    let layer = |mut request: Request, next: Next| async move {
        let mut params: Map<String, Value> = request.params().as_object().unwrap().clone();
        params.insert("name".into(), "erase".into());
        request.set_params(&params);
        next.run(request).await
    };
    let service = server().layer(layer).build().unwrap();
    for revision in [Revision::LATEST_SESSION, STATELESS] {
        let nobody = service.for_identity(Identity::new("ada"));
        assert_eq!(fault(&call(&nobody, revision, json!({"name": "free"})).await).0, -32600);
        let writer = service.for_identity(Identity::new("ada").with_scopes(["files:write"]));
        let answer = call(&writer, revision, json!({"name": "free"})).await;
        assert_eq!(answer["result"]["content"][0]["text"], "erased");
    }
}

#[cfg(feature = "rounds")]
#[tokio::test]
async fn a_call_that_goes_on_needs_its_scopes_still() {
    use support::rounds::{Rounds, named};

    #[linchpin::args]
    struct Name {
        name: String,
    }

    let ask = |_: NoArgs, cx: Context| async move {
        Ok::<_, linchpin::Error>(cx.elicit::<Name>("Who?").await?.name)
    };
    let tool = Tool::new("ask").scopes(["files:write"]).handler(ask);
    let service = Server::new("asks", "1").add(tool).build().unwrap();
    let may = service.for_identity(Identity::new("ada").with_scopes(["files:write"]));
    let rounds = Rounds::tool("ask", json!({}));
    let asked = rounds.begin(&may).await;
    let key = asked.input_requests.as_object().unwrap().keys().next().unwrap();
    let refused = rounds
        .expect_error(&service.for_identity(Identity::new("ada")), &asked.state, named(key, "Ada"))
        .await;
    assert_eq!(refused.0, -32600);
    let bob = service.for_identity(Identity::new("bob").with_scopes(["files:write"]));
    assert_eq!(rounds.expect_error(&bob, &asked.state, named(key, "Ada")).await.0, -32602);
    assert_eq!(rounds.finish(&may, &asked.state, named(key, "Ada")).await, "Ada");
}

#[cfg(feature = "rounds")]
#[tokio::test]
async fn a_call_that_a_layer_led_elsewhere_goes_on_with_the_scopes_of_that_tool() {
    use support::rounds::{Rounds, named};

    #[linchpin::args]
    struct Name {
        name: String,
    }

    let ask = |_: NoArgs, cx: Context| async move {
        Ok::<_, linchpin::Error>(cx.elicit::<Name>("Who?").await?.name)
    };
    let layer = |mut request: Request, next: Next| async move {
        let mut params: Map<String, Value> = request.params().as_object().unwrap().clone();
        params.insert("name".into(), "ask".into());
        request.set_params(&params);
        next.run(request).await
    };
    let tool = Tool::new("ask").scopes(["files:write"]).handler(ask);
    let service = Server::new("asks", "1").tool("free", "", || async { "free" }).add(tool).layer(layer);
    let service = service.build().unwrap();
    let may = service.for_identity(Identity::new("ada").with_scopes(["files:write"]));
    let may_not = service.for_identity(Identity::new("ada"));
    let rounds = Rounds::tool("free", json!({}));
    let state = rounds.begin(&may).await.state;
    let answers = || named("q1", "Ada");
    assert_eq!(rounds.expect_error(&may_not, &state, answers()).await.0, -32600, "the call continues");
    assert_eq!(rounds.finish(&may, &state, answers()).await, "Ada");
    assert_eq!(
        rounds.expect_error(&may_not, &state, answers()).await.0,
        -32600,
        "its response is sent again"
    );
    assert_eq!(rounds.finish(&may, &state, answers()).await, "Ada");
}

#[tokio::test]
async fn a_task_is_read_and_answered_with_the_scopes_of_its_tool() {
    let wait = |_: NoArgs, cx: Context| async move {
        cx.cancelled().await;
        "over"
    };
    let run = |support| Tool::new("run").scopes(["files:write"]).task(support).handler(wait);
    let service = Server::new("tasks", "1").add(run(TaskSupport::Required)).build().unwrap();
    let may = service.for_identity(Identity::new("ada").with_scopes(["files:write"]));
    let may_not = service.for_identity(Identity::new("ada"));
    let extension = json!({"extensions": {(linchpin::model::extension::TASKS): {}}});
    let send = |service: Service, method: &'static str, params: Value| {
        let params = stateless_with(params, &extension);
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        async move { support::handled(&service, &message).await.unwrap() }
    };
    let begun = send(may.clone(), "tools/call", json!({"name": "run"})).await;
    let task = json!({"taskId": begun["result"]["taskId"], "inputResponses": {}});
    for method in ["tasks/get", "tasks/update"] {
        assert_eq!(fault(&send(may_not.clone(), method, task.clone()).await).0, -32600, "{method}");
        let answer = send(may.clone(), method, task.clone()).await;
        assert!(answer["result"].is_object(), "{method}: {answer}");
    }
    send(may_not.clone(), "tasks/cancel", task.clone()).await; // stopping it needs no scope
    assert_eq!(fault(&send(may_not, "tasks/get", task.clone()).await).0, -32600, "when it has ended");
    assert_eq!(send(may, "tasks/get", task).await["result"]["status"], "cancelled");
}

#[tokio::test]
async fn the_result_of_a_task_needs_the_scopes_of_its_tool() {
    let session = Revision::LATEST_SESSION;
    let writer = known(&["files:write"]);
    let begun = call(&writer, session, json!({"name": "task", "task": {}})).await;
    let params = json!({"taskId": begun["result"]["task"]["taskId"]});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/result", "params": params});
    let reader = writer.for_identity(Identity::new("ada"));
    assert_eq!(fault(&support::handled(&reader, &message).await.unwrap()).0, -32600);
    let answer = support::handled(&writer, &message).await.unwrap();
    assert_eq!(support::text(&answer["result"]), "done");
}

#[tokio::test]
async fn a_list_shows_what_may_not_be_called() {
    let client = known(&[]).connect_in_memory().await.unwrap();
    assert_eq!(client.tools().all().await.unwrap().len(), 6);
}

#[test]
fn a_scope_that_is_none_is_told_when_the_server_is_built() {
    for scope in ["", "a b", "offline_access"] {
        let tool = Tool::new("t").scopes([scope]).handler(|_: NoArgs| async { "" });
        let error = Server::new("s", "1").add(tool).build().err().unwrap().to_string();
        assert!(error.starts_with("the tool `t` cannot be registered: "), "{error}");
    }
}
