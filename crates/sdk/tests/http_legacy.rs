//! HTTP+SSE transport: one stream, a POST for each message; and all transports at one URL.
#![cfg(feature = "http-server")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::time::Duration;

use http::{Method, StatusCode};
use linchpin::Revision;
use linchpin::server::HttpService;
use serde_json::{Value, json};
use spec_check::Conversation;
use support::call_scenarios::CallControls;
use support::paused::pass;
use support::web::{self, Answer, BackgroundTask, Events, TestClient, serve, text_of};
use support::{STATELESS, initialize};

const FIRST: Revision = Revision::V2024_11_05;
const SECOND: Duration = Duration::from_secs(1);

/// Client of the revision 2024-11-05.
struct Old {
    guest: TestClient,
    address: String,
    events: Events,
    conversation: Conversation,
    next: i64,
}

fn line(guest: &TestClient, path: &str) -> impl Future<Output = Answer> {
    let request = web::with(
        web::request(Method::GET, path).body(String::new()).unwrap(),
        &web::borrowed(&guest.always),
    );
    let guest = guest.clone();
    async move { guest.handle(request).await }
}

impl Old {
    async fn connect(web: &HttpService, path: &str) -> Self {
        Self::connect_as(TestClient::new(web, FIRST), path).await
    }

    async fn connect_as(guest: TestClient, path: &str) -> Self {
        let mut events = line(&guest, path).await.events();
        let first = events.event().await.unwrap();
        assert_eq!((first.name.as_deref(), &first.id), (Some("endpoint"), &None));
        let address = first.data.unwrap();
        assert!(address.starts_with("/mcp?sessionId="), "{address}");
        let mut old = Old { guest, address, events, conversation: Conversation::new(), next: 0 };
        let opened = old.request("initialize", initialize(FIRST.as_str(), &web::everything())).await;
        assert_eq!(opened["result"]["protocolVersion"], FIRST.as_str());
        let noted = old.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        assert_eq!(noted.status, StatusCode::ACCEPTED);
        old
    }

    async fn post(&mut self, message: &Value) -> Answer {
        self.conversation.record_sent(message.to_string());
        post_to(&self.guest, &self.address, message).await
    }

    async fn send(&mut self, method: &str, params: Value) -> i64 {
        self.next += 1;
        let message = json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params});
        let taken = self.post(&message).await;
        assert_eq!((taken.status, taken.text().await), (StatusCode::ACCEPTED, String::new()));
        self.next
    }

    async fn read(&mut self) -> Option<Value> {
        loop {
            let event = self.events.event().await?;
            let Some(data) = event.data else { continue };
            assert_eq!((event.name, event.id), (None, None));
            self.conversation.check_received(&data).unwrap();
            return Some(serde_json::from_str(&data).unwrap());
        }
    }

    async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        let answer = self.read().await.unwrap();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    async fn call(&mut self, tool: &str, arguments: Value) -> String {
        text_of(&self.request("tools/call", json!({"name": tool, "arguments": arguments})).await)
    }
}

/// Posts without `Accept`, as old clients do.
async fn post_to(guest: &TestClient, address: &str, message: &Value) -> Answer {
    let request = web::request(Method::POST, address).body(message.to_string()).unwrap();
    let request = web::with(request, &[("accept", "")]);
    guest.handle(web::with(request, &web::borrowed(&guest.always))).await
}

#[tokio::test(start_paused = true)]
async fn messages_go_by_post_and_answers_come_on_the_stream() {
    let scene = CallControls::new();
    let service = scene.server().build().unwrap();
    let web = serve(service.http().legacy_sse());
    for path in ["/mcp", "/sse"] {
        let mut old = Old::connect(&web, path).await;
        assert_eq!(old.call("echo", json!({"message": "hi"})).await, "hi");
        // Responses arrive as they are ready.
        let slow = old
            .send(
                "tools/call",
                json!({"name": "wait", "arguments": {"count": 2}, "_meta": {"progressToken": "p"}}),
            )
            .await;
        assert_eq!(old.call("echo", json!({"message": "quick"})).await, "quick");
        scene.step(2);
        assert_eq!(old.read().await.unwrap()["params"]["progressToken"], "p");
        let answer = old.read().await.unwrap();
        assert_eq!((&answer["id"], text_of(&answer)), (&json!(slow), "2 steps".to_owned()));
        // Server requests and change notifications.
        old.send("tools/call", json!({"name": "roots", "arguments": {}})).await;
        let question = old.read().await.unwrap();
        assert_eq!(question["method"], "roots/list");
        let reply = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}});
        assert_eq!(old.post(&reply).await.status, StatusCode::ACCEPTED);
        assert_eq!(text_of(&old.read().await.unwrap()), "0 roots");
        service.handle().tools_changed();
        assert_eq!(old.read().await.unwrap()["method"], "notifications/tools/list_changed");
        old.request("resources/subscribe", json!({"uri": "memo://one"})).await;
        service.handle().resource_updated("memo://one");
        assert_eq!(old.read().await.unwrap()["params"]["uri"], "memo://one");
        assert_eq!(old.request("no/such", json!({})).await["error"]["code"], -32601);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_ends_everything() {
    let scene = CallControls::new();
    let web = serve(scene.server().http().legacy_sse());
    let mut old = Old::connect(&web, "/sse").await;
    old.send("tools/call", json!({"name": "wait", "arguments": {"count": 1}})).await;
    scene.until_alive(1).await;
    let (guest, address) = (old.guest.clone(), old.address.clone());
    drop(old);
    scene.until_alive(0).await;
    assert_eq!(scene.finished(), 0);
    let ping = json!({"jsonrpc": "2.0", "id": 9, "method": "ping"});
    assert_eq!(post_to(&guest, &address, &ping).await.refusal().await, (404, -32600));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_is_not_answered() {
    let scene = CallControls::new();
    let web = serve(scene.server().http().legacy_sse());
    let mut old = Old::connect(&web, "/sse").await;
    let id = old.send("tools/call", json!({"name": "wait", "arguments": {"count": 1}})).await;
    scene.until_alive(1).await;
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    old.post(&cancel).await;
    scene.until_alive(0).await;
    assert_eq!(old.call("echo", json!({"message": "next"})).await, "next");
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_a_post() {
    let web = serve(CallControls::new().server().max_message(2_000).http().legacy_sse());
    let mut old = Old::connect(&web, "/sse").await;
    let ping = json!({"jsonrpc": "2.0", "id": 9, "method": "ping"});
    let id = old.address.rsplit('=').next().unwrap().to_owned();
    let zeros = "0".repeat(64);
    for wrong in [&*zeros, "", "x", &id[1..], &id.to_uppercase(), &format!("{id}%20"), &format!("{id}/")] {
        if wrong == id {
            continue;
        }
        let address = format!("/mcp?sessionId={wrong}");
        assert_eq!(post_to(&old.guest, &address, &ping).await.refusal().await, (404, -32600), "{address}");
    }
    // Sessions of one transport do not exist in the other.
    let session = TestClient::open(&web, Revision::LATEST_SESSION).await.session.unwrap();
    assert_eq!(
        post_to(&old.guest, &format!("/mcp?sessionId={session}"), &ping).await.status,
        StatusCode::NOT_FOUND
    );
    let request = web::post(&ping, &[("mcp-session-id", &id)]);
    assert_eq!(old.guest.handle(request).await.refusal().await, (404, -32600));
    for (body, headers, expected) in [
        ("{", &[][..], 400),
        ("[]", &[][..], 400),
        ("{}", &[("content-type", "text/plain")][..], 415),
        ("{}", &[("content-type", "")][..], 415),
        (&*" ".repeat(2_001), &[][..], 413),
    ] {
        let request = web::request(Method::POST, &old.address).body(body.to_owned()).unwrap();
        let answer = old.guest.handle(web::with(request, headers)).await;
        assert_eq!(answer.status.as_u16(), expected, "{body:.20} {headers:?}");
    }
    assert_eq!(old.call("echo", json!({"message": "alive"})).await, "alive", "and nothing is on the stream");
}

#[tokio::test(start_paused = true)]
async fn it_is_there_only_on_request() {
    let web = serve(CallControls::new().server().http());
    let guest = TestClient::new(&web, FIRST);
    let nothing = line(&guest, "/sse").await;
    assert_eq!(
        (nothing.status.as_u16(), nothing.header("content-type")),
        (404, Some("text/plain; charset=utf-8"))
    );
    assert_eq!(line(&guest, "/mcp").await.refusal().await, (400, -32600));
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_its_principals_and_they_are_bounded() {
    let http = CallControls::new().server().http().legacy_sse().max_sessions(4).max_sessions_per_principal(2);
    let web =
        serve(http.principal(|parts| {
            Ok(parts.headers.get("x-user").map(|user| user.to_str().unwrap().to_owned()))
        }));
    let ada = || {
        let mut guest = TestClient::new(&web, FIRST);
        guest.always.push(("x-user", "ada".into()));
        guest
    };
    let mut first = Old::connect_as(ada(), "/sse").await;
    assert_eq!(first.call("who", json!({})).await, "ada");
    let ping = json!({"jsonrpc": "2.0", "id": 9, "method": "ping"});
    let stranger = TestClient::new(&web, FIRST);
    assert_eq!(post_to(&stranger, &first.address, &ping).await.refusal().await, (404, -32600));
    let second = Old::connect_as(ada(), "/sse").await;
    assert_eq!(line(&ada(), "/sse").await.refusal().await, (503, -32600));
    let others = (line(&stranger, "/sse").await, line(&stranger, "/sse").await);
    assert_eq!(line(&stranger, "/sse").await.refusal().await, (503, -32600));
    drop((second, others));
    assert_eq!(line(&ada(), "/sse").await.status, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_server_answers_first() {
    let scene = CallControls::new();
    let web = serve(scene.server().http().legacy_sse());
    let mut old = Old::connect(&web, "/sse").await;
    old.send("tools/call", json!({"name": "wait", "arguments": {"count": 1}})).await;
    scene.until_alive(1).await;
    web.close_streams();
    pass(SECOND).await;
    scene.step(1);
    assert_eq!(text_of(&old.read().await.unwrap()), "1 steps");
    assert_eq!(old.read().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_not_answered_without_end() {
    let web = serve(CallControls::new().server().http().legacy_sse());
    let mut old = Old::connect(&web, "/sse").await;
    let long = "x".repeat(100 << 10);
    let message = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "echo", "arguments": {"message": long}}});
    let mut taken = 0;
    while old.post(&message).await.status == StatusCode::ACCEPTED {
        taken += 1;
        assert!(taken < 100);
    }
    assert!(taken > 5, "{taken}");
    for _ in 0..taken {
        assert_eq!(text_of(&old.read().await.unwrap()).len(), long.len());
    }
    assert_eq!(old.post(&message).await.status, StatusCode::ACCEPTED);
}

#[tokio::test]
async fn one_url_serves_clients_of_all_revisions_at_once() {
    let scene = CallControls::new();
    let web = serve(scene.server().http().legacy_sse());
    let first = web.clone();
    let old = BackgroundTask::start(async move {
        let mut old = Old::connect(&first, "/mcp").await;
        for turn in 0..200 {
            assert_eq!(
                old.call("echo", json!({"message": format!("old {turn}")})).await,
                format!("old {turn}")
            );
            tokio::task::yield_now().await;
        }
    });
    let others = Revision::ALL.into_iter().filter(|revision| *revision != FIRST).map(|revision| {
        let web = web.clone();
        BackgroundTask::start(async move {
            let guest = TestClient::open(&web, revision).await;
            assert_eq!(guest.session.is_some(), revision != STATELESS);
            for turn in 0..200 {
                let said = format!("{revision} {turn}");
                assert_eq!(guest.call_text("echo", json!({"message": said})).await, said);
                tokio::task::yield_now().await;
            }
        })
    });
    for other in others.collect::<Vec<_>>() {
        other.end().await;
    }
    old.end().await;
}
