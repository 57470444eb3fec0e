//! Whose a session is, and what a new token changes.

use http::StatusCode;
use linchpin::Revision;
use linchpin::server::HttpService;
use serde_json::{Value, json};

use crate::issuer::{Calls, Key, NOW, auth, but, claims};
use crate::support::session_revisions;
use crate::support::web::{Guest, text_of};

fn guest(web: &HttpService, revision: Revision, token: &str) -> Guest {
    let mut guest = Guest::new(web, revision);
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
        // Another token of the same one: with other scopes, and issued later.
        let mut renewed = but("scope", json!("mcp:basic files:read files:write"));
        renewed["jti"] = json!("2");
        ada.always = vec![("authorization", format!("Bearer {}", key.sign(&renewed)))];
        assert_eq!(ada.call_text("write", json!({})).await, "done");
        let who = text_of(&ada.call("who", json!({})).await.message().await);
        assert!(who.contains("files:write") && who.ends_with(" 2"), "{who}");
        // An expired one ends nothing, and opens nothing.
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
    let stranger = Guest::new(&web, Revision::LATEST_SESSION);
    for _ in 0..100 {
        let initialize = crate::support::initialize("2025-11-25", &json!({}));
        assert_eq!(stranger.ask("initialize", initialize).await.status, StatusCode::UNAUTHORIZED);
    }
    assert_eq!(ada.call_text("session", json!({})).await, "true", "the only session is still there");
}
