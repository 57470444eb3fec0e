//! Session ownership, and the effect of a new token.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use linchpin::server::HttpService;
use linchpin::{Context, NoArgs, Revision};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::issuer::{Calls, Key, NOW, auth, but, claims};
use crate::support::session_revisions;
use crate::support::web::{TestClient, text_of};

fn guest(web: &HttpService, revision: Revision, token: &str) -> TestClient {
    let mut guest = TestClient::new(web, revision);
    guest.always = vec![("authorization", format!("Bearer {token}"))];
    guest
}

#[tokio::test]
async fn a_session_is_of_the_one_who_opened_it() {
    let (key, calls) = (Key::new("k1"), Calls::default());
    let web = calls.serve(auth(&key));
    let mut stolen = 0;
    for revision in session_revisions() {
        let mut ada = guest(&web, revision, &key.sign(&claims()));
        ada.initialize().await;
        assert_eq!(ada.call_text("plain", json!({})).await, "done");
        let before = calls.count();
        for other in [
            but("sub", json!("bob")),
            but("sub", json!("Ada")),
            but("client_id", json!("other")),
            but("client_id", Value::Null),
        ] {
            let mut thief = ada.clone();
            thief.always = vec![("authorization", format!("Bearer {}", key.sign(&other)))];
            for method in ["tools/call", "tools/list", "ping", "initialize", "no/such"] {
                let answer = thief.ask(method, json!({"name": "plain"})).await;
                assert_eq!(answer.refusal().await, (404, -32600), "{method}");
                stolen += 1;
            }
            assert_eq!(thief.get(None).await.refusal().await, (404, -32600));
            assert_eq!(thief.delete().await.refusal().await, (404, -32600));
            assert_eq!(
                thief.notify("notifications/cancelled", Value::Null).await.refusal().await,
                (404, -32600)
            );
            stolen += 3;
        }
        assert_eq!(calls.count(), before);
        // Another token of the same principal: other scopes, and issued later.
        let mut renewed = but("scope", json!("mcp:basic files:read files:write"));
        renewed["jti"] = json!("2");
        ada.always = vec![("authorization", format!("Bearer {}", key.sign(&renewed)))];
        assert_eq!(ada.call_text("write", json!({})).await, "done");
        let who = text_of(&ada.call("who", json!({})).await.message().await);
        assert!(who.contains("files:write") && who.ends_with(" 2"), "{who}");
        // An expired token ends nothing and opens nothing.
        let fresh = ada.always.clone();
        ada.always = vec![("authorization", format!("Bearer {}", key.sign(&but("exp", json!(NOW - 100)))))];
        assert_eq!(ada.ask("ping", json!({})).await.status, StatusCode::UNAUTHORIZED);
        ada.always = vec![];
        assert_eq!(ada.ask("ping", json!({})).await.status, StatusCode::UNAUTHORIZED);
        ada.always = fresh;
        assert_eq!(ada.delete().await.status, StatusCode::NO_CONTENT);
    }
    eprintln!("stolen sessions: rejected={stolen} accepted=0");
    assert_eq!(stolen, 128);
}

#[tokio::test]
async fn who_is_not_let_in_leaves_nothing_behind() {
    let (key, calls) = (Key::new("k1"), Calls::default());
    let web = calls.server().http().auth(auth(&key)).max_sessions(1).into_service().unwrap();
    let mut ada = guest(&web, Revision::LATEST_SESSION, &key.sign(&claims()));
    ada.initialize().await;
    let stranger = TestClient::new(&web, Revision::LATEST_SESSION);
    for _ in 0..100 {
        let initialize = crate::support::initialize("2025-11-25", &json!({}));
        assert_eq!(stranger.ask("initialize", initialize).await.status, StatusCode::UNAUTHORIZED);
    }
    assert_eq!(ada.call_text("session", json!({})).await, "true", "the only session is still there");
}

#[tokio::test(start_paused = true)]
async fn streams_end_with_the_token_that_opened_them() {
    const LIFE: Duration = Duration::from_mins(10);
    let (key, end) = (Key::new("k1"), Arc::new(Notify::new()));
    let told = end.clone();
    let slow = move |_: NoArgs, cx: Context| {
        let told = told.clone();
        async move {
            cx.progress(1.0);
            told.notified().await;
            "done"
        }
    };
    let server = Calls::default().server().tool("slow", "", slow);
    let web = server.http().auth(auth(&key).skew(Duration::ZERO)).into_service().unwrap();
    let token = key.sign(&but("exp", json!(NOW + LIFE.as_secs())));
    let mut ada = guest(&web, Revision::LATEST_SESSION, &token);
    ada.initialize().await;
    let now = guest(&web, Revision::LATEST, &token);
    let listen = json!({"notifications": {"toolsListChanged": true}});
    let begun = Instant::now();
    let mut slow = now.watch("slow", json!({})).await.events();
    slow.message().await;
    let mut listening = now.ask("subscriptions/listen", listen).await.events();
    listening.message().await;
    let standalone = ada.get(None).await.events();
    assert_eq!(standalone.rest().await, [Value::Null; 0]);
    assert_eq!(begun.elapsed(), LIFE);
    assert_eq!(listening.rest().await, [Value::Null; 0]);
    assert_eq!(begun.elapsed(), LIFE);
    // The session still exists, and so do the calls that were made in time.
    assert!(ada.get(None).await.is_stream());
    end.notify_one();
    assert_eq!(text_of(&slow.message().await), "done");
}
