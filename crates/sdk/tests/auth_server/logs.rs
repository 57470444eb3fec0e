//! Tokens are secrets: whatever becomes of one, nobody reads it in a log or an answer.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use http::Method;
use linchpin::{Auth, Dpop, Error, Revision};
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::issuer::{Calls, ISSUER, Key, RESOURCE, auth, but, call, claims, encode};
use crate::support::web::{Guest, request};

/// All that anybody logs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Visit for &Log {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0.lock().unwrap(), " {field}={value:?}");
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut &*self);
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut &*self);
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        event.record(&mut &*self);
        self.0.lock().unwrap().push('\n');
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn no_token_is_ever_shown() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
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
            let answer = Guest::new(web, Revision::LATEST).handle(request).await;
            let _ = write!(answers, "{:?}", answer.headers);
            answers += &answer.text().await;
        }
    }
    let logged = log.0.lock().unwrap().clone();
    assert!(logged.contains("a request was not let in") && logged.contains("the store is gone"), "{logged}");
    for token in &canaries {
        // Neither as it is, nor the parts of it that are secret.
        for part in token.split('.').filter(|part| part.len() > 8).chain([&**token]) {
            assert!(!logged.contains(part) && !answers.contains(part), "{part}");
        }
    }
}
