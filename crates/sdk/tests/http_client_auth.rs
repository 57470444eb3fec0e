//! Authorization schemes: the requests and rejections they receive.
#![cfg(feature = "http-client")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/http.rs"]
mod http;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::{Reply, client, server};
use linchpin::auth::{AuthFuture, AuthRejection, Authorize, Credentials, Request};
use linchpin::{ClientError, Revision};
use serde_json::json;
use tokio::sync::Notify;

/// Records its calls.
#[derive(Clone, Default)]
struct Noting {
    /// Whether each request runs in the background.
    background: Arc<Mutex<Vec<bool>>>,
    refusals: Arc<Mutex<Vec<AuthRejection>>>,
}

impl Authorize for Noting {
    fn credentials<'a>(&'a self, request: Request<'a>) -> AuthFuture<'a, Credentials> {
        self.background.lock().unwrap().push(request.is_background);
        Box::pin(async { Ok(Credentials::default()) })
    }

    fn on_rejected<'a>(&'a self, _: Request<'a>, refusal: AuthRejection) -> AuthFuture<'a, bool> {
        self.refusals.lock().unwrap().push(refusal);
        Box::pin(async { Ok(false) })
    }
}

#[tokio::test]
async fn nobody_waits_for_a_stream_of_changes_that_is_opened_again() {
    let opened = AtomicUsize::new(0);
    let end = Arc::new(Notify::new());
    let script = server(Revision::LATEST, move |seen| {
        let stream = Reply::events().event(&seen.acknowledgement(&json!({})));
        seen.is("subscriptions/listen").then(|| match opened.fetch_add(1, Ordering::SeqCst) {
            0 => stream.close(),
            _ => stream.until_closed(&end),
        })
    })
    .await;
    let noting = Noting::default();
    let client = client(&script).auth(noting.clone()).connect().await.unwrap();
    let _watched = client.subscribe("memo://a").await.unwrap();
    script.wait_for("subscriptions/listen", 2).await;
    client.call("echo", ()).await.unwrap();
    assert_eq!(
        script.methods(),
        ["server/discover", "subscriptions/listen", "subscriptions/listen", "tools/call"]
    );
    assert_eq!(*noting.background.lock().unwrap(), [false, false, true, false]);
}

#[tokio::test]
async fn a_challenge_with_words_beyond_ascii_is_read() {
    let script = server(Revision::LATEST, |seen| {
        let challenge =
            "Bearer error_description=\"dafür fehlt etwas\", error=\"insufficient_scope\", scope=\"write\"";
        seen.is("tools/call").then(|| Reply::new(403, &[("www-authenticate", challenge)], b""))
    })
    .await;
    let noting = Noting::default();
    let client = client(&script).auth(noting.clone()).connect().await.unwrap();
    let refused = client.call("echo", ()).await.unwrap_err();
    assert!(matches!(refused, ClientError::Call(_)), "{refused:?}");
    let refusals = noting.refusals.lock().unwrap();
    assert_eq!(refusals[0].challenge.error.as_deref(), Some("insufficient_scope"));
    assert!(refusals[0].challenge.scope.is_some());
}
