//! Scope checks: the same in every revision and on every path to a tool.

use http::{Method, Request, StatusCode};
use linchpin::model::TaskSupport;
use linchpin::server::HttpService;
use linchpin::{Auth, Context, Identity, NoArgs, Revision, Server, Tool};
use serde_json::{Value, json};

use crate::issuer::{Calls, ISSUER, METADATA, RESOURCE, challenges};
use crate::support::call_scenarios::Name;
use crate::support::web::{Answer, TestClient, request, text_of, with};
use crate::support::{STATELESS, session_revisions};

/// Configures tokens that name their scopes: `mcp.basic+files.read`.
fn auth() -> Auth {
    Auth::opaque([ISSUER], RESOURCE, |token| async move {
        let scopes = token.expose().split('+').map(|scope| scope.replace('.', ":"));
        Ok(Some(Identity::new("ada").with_scopes(scopes)))
    })
    .require(["mcp:basic"])
}

/// Returns the `Authorization` header for these scopes.
fn header(scopes: &str) -> String {
    format!("Bearer {}", scopes.replace(':', "."))
}

fn guest(web: &HttpService, revision: Revision, scopes: &str) -> TestClient {
    let mut guest = TestClient::new(web, revision);
    guest.always = vec![("authorization", header(scopes))];
    guest
}

/// Returns the challenge for these scopes.
fn insufficient(scopes: &str) -> Vec<String> {
    vec![format!(
        "Bearer resource_metadata=\"{METADATA}\", scope=\"{scopes}\", error=\"insufficient_scope\", \
         error_description=\"the token lacks scopes that this request needs\""
    )]
}

async fn assert_forbidden(answer: Answer, scopes: &str, what: &str) {
    assert_eq!(
        (answer.status, challenges(&answer.headers)),
        (StatusCode::FORBIDDEN, insufficient(scopes)),
        "{what}"
    );
    assert_eq!(answer.message().await["error"]["code"], -32600);
}

/// All scopes that each tool requires.
const TOOLS: [(&str, &str); 3] =
    [("plain", "mcp:basic"), ("read", "mcp:basic files:read"), ("write", "mcp:basic files:write files:read")];
const TOKENS: [&str; 7] = [
    "mcp:basic",
    "mcp:basic+files:read",
    "mcp:basic+files:write",
    "mcp:basic+files:read+files:write",
    "files:read+files:write",
    "MCP:BASIC+FILES:READ+FILES:WRITE",
    "mcp+files+mcp:basic:x+files:read:x",
];

fn may(token: &str, needed: &str) -> bool {
    needed.split(' ').all(|scope| token.split('+').any(|own| own == scope))
}

#[tokio::test]
async fn a_revision_is_no_way_around() {
    let calls = Calls::default();
    let (with_sessions, without) =
        (calls.serve(auth()), calls.server().http().auth(auth()).stateless().into_service().unwrap());
    let (mut tried, mut refused, mut expected) = (0, 0, 0);
    for (web, has_sessions) in [(&with_sessions, true), (&without, false)] {
        for revision in Revision::ALL {
            for token in TOKENS {
                // The session is opened with a sufficient token, and used by the same principal with another one.
                let mut guest = guest(web, revision, "mcp:basic");
                if has_sessions {
                    guest.initialize().await;
                }
                guest.always = vec![("authorization", header(token))];
                for (tool, needed) in TOOLS {
                    let answer = guest.call(tool, json!({})).await;
                    tried += 1;
                    if may(token, needed) {
                        expected += 1;
                        assert_eq!(answer.status, 200, "{tool} {token} {revision:?}");
                        assert_eq!(text_of(&answer.message().await), "done");
                    } else {
                        refused += 1;
                        assert_forbidden(answer, needed, &format!("{tool} {token} {revision:?}")).await;
                    }
                    assert_eq!(calls.count(), expected, "{tool} {token} {revision:?}");
                }
            }
        }
    }
    eprintln!("scopes: cells={tried} rejected={refused} accepted={expected}");
    assert_eq!((tried, refused), (210, 140));
}

#[tokio::test]
async fn a_tool_that_a_layer_chose_is_challenged_like_any_other() {
    let layer = |mut request: linchpin::server::Request, next: linchpin::server::Next| async move {
        if request.target().as_deref() == Some("plain") {
            let mut params = request.params().as_object().cloned().unwrap();
            params.insert("name".into(), "write".into());
            request.set_params(&params);
        }
        next.run(request).await
    };
    let calls = Calls::default();
    let web = calls.server().layer(layer).http().auth(auth()).into_service().unwrap();
    for revision in Revision::ALL {
        let mut guest = guest(&web, revision, "mcp:basic");
        guest.initialize().await;
        let answer = guest.call("plain", json!({})).await;
        assert_forbidden(answer, "mcp:basic files:write files:read", revision.as_str()).await;
        assert_eq!(calls.count(), 0);
    }
}

#[tokio::test]
async fn every_method_needs_what_every_request_needs() {
    let web = Calls::default().serve(auth());
    let mut refused = 0;
    for revision in Revision::ALL {
        let mut guest = guest(&web, revision, "mcp:basic");
        guest.initialize().await;
        guest.always = vec![("authorization", header("files:read"))];
        for method in
            ["tools/list", "ping", "resources/read", "initialize", "server/discover", "no/such", "tasks/get"]
        {
            assert_forbidden(guest.ask(method, json!({})).await, "mcp:basic", method).await;
            refused += 1;
        }
        assert_forbidden(guest.notify("notifications/cancelled", Value::Null).await, "mcp:basic", "notice")
            .await;
        let reply = json!({"jsonrpc": "2.0", "id": 1, "result": {}});
        assert_forbidden(guest.send(&reply).await, "mcp:basic", "reply").await;
        assert_forbidden(guest.get(None).await, "mcp:basic", "GET").await;
        assert_forbidden(guest.delete().await, "mcp:basic", "DELETE").await;
        refused += 4;
    }
    assert_eq!(refused, 55);
}

#[tokio::test]
async fn a_batch_is_refused_as_a_whole_before_any_of_it_is_done() {
    let calls = Calls::default();
    let web = calls.serve(auth());
    let mut guest = guest(&web, Revision::V2025_03_26, "mcp:basic+files:read");
    guest.initialize().await;
    let one = |id: i64, tool: &str| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool}});
    let answer = guest.send(&json!([one(1, "plain"), one(2, "read"), one(3, "write")])).await;
    assert_forbidden(answer, "mcp:basic files:read files:write", "batch").await;
    assert_eq!(calls.count(), 0);
    let answer = guest.send(&json!([one(4, "plain"), one(5, "read")])).await;
    assert_eq!(answer.status, 200);
    assert_eq!(calls.count(), 2);
}

fn legacy(method: Method, path: &str, token: &str, body: &str) -> Request<String> {
    with(request(method, path).body(body.to_owned()).unwrap(), &[("authorization", &*header(token))])
}

#[tokio::test]
async fn the_first_transport_is_no_way_around() {
    let calls = Calls::default();
    let web = calls.server().http().auth(auth()).legacy_sse().into_service().unwrap();
    let guest = TestClient::new(&web, Revision::V2024_11_05);
    assert_eq!(guest.handle(request(Method::GET, "/sse").body(String::new()).unwrap()).await.status, 401);
    let mut stream = guest.handle(legacy(Method::GET, "/sse", "mcp:basic", "")).await.events();
    let path = stream.event().await.unwrap().data.unwrap();
    let call = |tool: &str| {
        let params = json!({"name": tool, "arguments": {}});
        json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params})
    };
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": crate::support::initialize("2024-11-05", &json!({}))});
    guest.record_sent(&initialize);
    let opened = guest.handle(legacy(Method::POST, &path, "mcp:basic", &initialize.to_string())).await;
    assert_eq!(opened.status, 202);
    assert_eq!(stream.message().await["id"], 1);
    let post = async |token: &str, tool: &str| {
        guest.handle(legacy(Method::POST, &path, token, &call(tool).to_string())).await
    };
    assert_forbidden(post("mcp:basic", "read").await, "mcp:basic files:read", "read").await;
    assert_forbidden(post("files:read", "plain").await, "mcp:basic", "plain").await;
    assert_eq!(calls.count(), 0);
    // More scopes than the stream was opened with: the token of the message counts.
    guest.record_sent(&call("read"));
    assert_eq!(post("mcp:basic+files:read", "read").await.status, 202);
    assert_eq!(text_of(&stream.message().await), "done");
    assert_eq!(calls.count(), 1);
}

#[cfg(feature = "rounds")]
#[tokio::test]
async fn a_call_that_goes_on_needs_its_scopes_still() {
    let ask = |_: NoArgs, cx: Context| async move {
        Ok::<_, linchpin::Error>(cx.elicit::<Name>("Who?").await?.name)
    };
    let server =
        Server::new("asks", "1").add(Tool::new("ask").idempotent().scopes(["files:write"]).handler(ask));
    let service = server.build().unwrap();
    for service in [service.clone(), service.without_parking()] {
        let web = service.http().auth(auth()).into_service().unwrap();
        let mut guest = guest(&web, STATELESS, "mcp:basic+files:write");
        let asked = guest.call("ask", json!({})).await.message().await;
        let state = &asked["result"]["requestState"];
        let keys: Vec<_> = asked["result"]["inputRequests"].as_object().unwrap().keys().cloned().collect();
        let answers = json!({(keys[0].as_str()): {"action": "accept", "content": {"name": "Ada"}}});
        let retry = json!({"name": "ask", "arguments": {}, "requestState": state, "inputResponses": answers});
        guest.always = vec![("authorization", header("mcp:basic"))];
        let answer = guest.ask("tools/call", retry.clone()).await;
        assert_forbidden(answer, "mcp:basic files:write", "the retry").await;
        guest.always = vec![("authorization", header("mcp:basic+files:write"))];
        let answer = guest.ask("tools/call", retry).await;
        assert_eq!(text_of(&answer.message().await), "Ada");
    }
}

#[tokio::test]
async fn a_task_needs_the_scopes_of_its_tool() {
    let task = Tool::new("work")
        .scopes(["files:write"])
        .task(TaskSupport::Optional)
        .handler(|_: NoArgs| async { "" });
    let web = Server::new("works", "1").add(task).http().auth(auth()).into_service().unwrap();
    let mut guest = guest(&web, Revision::V2025_11_25, "mcp:basic");
    guest.initialize().await;
    let wish = json!({"name": "work", "task": {}});
    assert_forbidden(guest.ask("tools/call", wish.clone()).await, "mcp:basic files:write", "a task").await;
    guest.always = vec![("authorization", header("mcp:basic+files:write"))];
    let begun = guest.ask("tools/call", wish).await.message().await;
    assert_eq!(begun["result"]["task"]["status"], "working");
}

#[tokio::test]
async fn a_scope_can_stand_for_others() {
    let calls = Calls::default();
    let auth = auth()
        .scope_implies("admin", ["files:write", "mcp:basic"])
        .scope_implies("files:write", ["files:read", "admin"]);
    let web = calls.serve(auth);
    assert_eq!(guest(&web, STATELESS, "admin").call("write", json!({})).await.status, 200);
    assert_forbidden(
        guest(&web, STATELESS, "files:read").call("read", json!({})).await,
        "mcp:basic files:read",
        "",
    )
    .await;
    let who = guest(&web, STATELESS, "files:write").call_text("who", json!({})).await;
    assert_eq!(who, "ada Some(\"https://auth.example.com\") None admin files:read files:write mcp:basic ");
}

#[tokio::test]
async fn the_list_shows_all_tools() {
    let web = Calls::default().serve(auth());
    for revision in session_revisions().chain([STATELESS]) {
        let mut guest = guest(&web, revision, "mcp:basic");
        guest.initialize().await;
        let listed = guest.ask("tools/list", json!({})).await.message().await;
        assert_eq!(listed["result"]["tools"].as_array().unwrap().len(), 5);
    }
}
