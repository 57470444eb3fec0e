//! Tokens are secrets: whatever happens to one, it is in no log and no response.

use std::fmt::Write as _;

use http::Method;
use linchpin::{Auth, Dpop, Error, Revision};
use serde_json::json;

use crate::issuer::{Calls, ISSUER, Key, RESOURCE, auth, but, call, claims, encode};
use crate::support::log_capture::LogCapture;
use crate::support::web::{TestClient, request};

#[tokio::test]
async fn no_token_is_ever_shown() {
    let ears = LogCapture::default();
    // For every thread: a callsite first hit by a thread without the subscriber would stay disabled for all.
    tracing::subscriber::set_global_default(ears.clone()).unwrap();
    let key = Key::new("k1");
    let opaque = Auth::opaque([ISSUER], RESOURCE, |_| async { Err(Error::tool("the store is gone")) });
    let webs = [
        Calls::default().serve(auth(&key).dpop(Dpop::Optional)),
        Calls::default().serve(opaque),
        Calls::default().serve(Auth::jwt("http://127.0.0.1:9", RESOURCE).clock(crate::issuer::now)),
    ];
    let good = key.sign(&claims());
    let canaries = [
        good.clone(),
        Key::new("k1").sign(&claims()),
        key.sign(&but("aud", json!("canary-audience"))),
        key.sign(&but("iss", json!("http://127.0.0.1:9"))),
        key.sign(&but("cnf", json!({"jkt": "canary"}))),
        key.sign_text(r#"{"alg":"canary"}"#, "{}"),
        encode("canary that is no token"),
        "canary~~canary".to_owned(),
    ];
    let mut answers = String::new();
    for web in &webs {
        for token in &canaries {
            for header in [
                format!("Bearer {token}"),
                format!("DPoP {token}"),
                format!("Bearer {token} x"),
                format!("Basic {token}"),
            ] {
                let answer = call(web, "plain", &[("authorization", &*header), ("dpop", &**token)]).await;
                let _ = write!(answers, "{:?}", answer.headers);
                answers += &answer.text().await;
            }
            let request =
                request(Method::POST, &format!("/mcp?access_token={token}")).body(String::new()).unwrap();
            let answer = TestClient::new(web, Revision::LATEST).handle(request).await;
            let _ = write!(answers, "{:?}", answer.headers);
            answers += &answer.text().await;
        }
    }
    let logged = ears.take();
    assert!(logged.contains("request rejected") && logged.contains("the store is gone"), "{logged}");
    for token in &canaries {
        // Neither the whole token nor its secret parts.
        for part in token.split('.').filter(|part| part.len() > 8).chain([&**token]) {
            assert!(!logged.contains(part) && !answers.contains(part), "{part}");
        }
    }
}
