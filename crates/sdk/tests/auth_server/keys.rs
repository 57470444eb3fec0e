//! Keys fetched from an issuer on this machine, which may misbehave in any way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use linchpin::Auth;
use linchpin::server::HttpService;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::http_script::{HttpScript, ReceivedRequest, Reply};
use crate::issuer::{Calls, Key, RESOURCE, but, call_with, now, refusal, set};

const METADATA: &str = "/.well-known/oauth-authorization-server";
const KEYS: &str = "/keys";

/// Returns a token of the issuer at this address.
fn token(key: &Key, issuer: &str) -> String {
    key.sign(&but("iss", json!(issuer)))
}

fn guarded(issuer: &str) -> HttpService {
    Calls::default().serve(Auth::jwt(issuer, RESOURCE).clock(now))
}

/// Overrides a response of the issuer.
type Special = dyn Fn(&ReceivedRequest) -> Option<Reply> + Send + Sync;

fn origin(seen: &ReceivedRequest) -> String {
    format!("http://{}", seen.header("host"))
}

fn metadata(seen: &ReceivedRequest) -> Reply {
    let origin = origin(seen);
    Reply::json(&json!({"issuer": origin, "jwks_uri": format!("{origin}{KEYS}")}))
}

/// Starts a correct issuer, except for the responses of `special`.
async fn issuer(
    keys: Value,
    special: impl Fn(&ReceivedRequest) -> Option<Reply> + Send + Sync + 'static,
) -> HttpScript {
    HttpScript::start(move |seen| {
        special(seen).unwrap_or_else(|| match &*seen.path {
            METADATA => metadata(seen),
            KEYS => Reply::json(&keys),
            _ => Reply::status(404),
        })
    })
    .await
}

fn paths(script: &HttpScript) -> Vec<String> {
    script.received().iter().map(|seen| seen.path.clone()).collect()
}

#[tokio::test]
async fn keys_are_found_once_for_all() {
    let key = Key::new("k1");
    let script = issuer(set(&[&key]), |_| None).await;
    let web = guarded(&script.origin());
    let token = token(&key, &script.origin());
    let calls = (0..8).map(|_| call_with(&web, "plain", &token));
    let mut set = tokio::task::JoinSet::new();
    for _ in calls {
        let (web, token) = (web.clone(), token.clone());
        set.spawn(async move { call_with(&web, "plain", &token).await.status });
    }
    while let Some(status) = set.join_next().await {
        assert_eq!(status.unwrap(), 200);
    }
    assert_eq!(paths(&script), [METADATA, KEYS]);
    // An unknown key: fetched at most once in a while, however often it is tried.
    let strange = Key::new("k2").sign(&but("iss", json!(script.origin())));
    for _ in 0..20 {
        let (status, _, text) = refusal(call_with(&web, "plain", &strange).await, &strange).await;
        assert_eq!((status, &*text), (401, "the token is signed with an unknown key"));
    }
    assert_eq!(paths(&script).len(), 2);
}

#[tokio::test]
async fn metadata_is_found_in_each_of_its_places() {
    for place in 0..3 {
        let key = Key::new("k1");
        let keys = set(&[&key]);
        let script = HttpScript::start(move |seen| {
            let paths = [
                "/.well-known/oauth-authorization-server/tenant",
                "/.well-known/openid-configuration/tenant",
                "/tenant/.well-known/openid-configuration",
            ];
            let origin = origin(seen);
            match &*seen.path {
                KEYS => Reply::json(&keys),
                path if path == paths[place] => Reply::json(
                    &json!({"issuer": format!("{origin}/tenant"), "jwks_uri": format!("{origin}{KEYS}")}),
                ),
                _ => Reply::status(404),
            }
        })
        .await;
        let issuer = format!("{}/tenant", script.origin());
        let web = guarded(&issuer);
        assert_eq!(call_with(&web, "plain", &token(&key, &issuer)).await.status, 200);
        assert_eq!(paths(&script).len(), place + 2);
    }
}

#[tokio::test]
async fn an_issuer_that_answers_badly_lets_nobody_in() {
    let key = Key::new("k1");
    let elsewhere = HttpScript::start({
        let keys = set(&[&key]);
        move |_| Reply::json(&keys)
    })
    .await;
    let other = elsewhere.origin();
    let keys = set(&[&key]);
    let bad: Vec<(&str, Box<Special>)> = vec![
        ("no metadata", Box::new(|_| Some(Reply::status(404)))),
        ("an error", Box::new(|_| Some(Reply::status(500)))),
        ("no JSON", Box::new(|seen| (seen.path == METADATA).then(|| Reply::new(200, &[], b"<html>")))),
        ("a duplicate member", {
            Box::new(|seen| {
                let origin = origin(seen);
                let text =
                    format!(r#"{{"issuer":"{origin}","issuer":"{origin}","jwks_uri":"{origin}{KEYS}"}}"#);
                (seen.path == METADATA).then(|| Reply::new(200, &[], text.as_bytes()))
            })
        }),
        ("another issuer", {
            Box::new(|seen| {
                let origin = origin(seen);
                let text = json!({"issuer": format!("{origin}/"), "jwks_uri": format!("{origin}{KEYS}")});
                (seen.path == METADATA).then(|| Reply::json(&text))
            })
        }),
        (
            "no jwks_uri",
            Box::new(|seen| (seen.path == METADATA).then(|| Reply::json(&json!({"issuer": origin(seen)})))),
        ),
        ("keys in a private network", {
            Box::new(|seen| {
                let text = json!({"issuer": origin(seen), "jwks_uri": "https://10.0.0.1/keys"});
                (seen.path == METADATA).then(|| Reply::json(&text))
            })
        }),
        ("keys in a file", {
            Box::new(|seen| {
                let text = json!({"issuer": origin(seen), "jwks_uri": "file:///etc/passwd"});
                (seen.path == METADATA).then(|| Reply::json(&text))
            })
        }),
        ("no keys", Box::new(|seen| (seen.path == KEYS).then(|| Reply::json(&json!({"keys": []}))))),
        ("invalid keys", Box::new(|seen| (seen.path == KEYS).then(|| Reply::json(&json!({"keys": {}}))))),
        ("a private key", {
            let mut jwk = key.jwk();
            jwk["d"] = json!("AAAA");
            Box::new(move |seen| (seen.path == KEYS).then(|| Reply::json(&json!({"keys": [jwk]}))))
        }),
        ("a redirect elsewhere", {
            let other = other.clone();
            Box::new(move |seen| (seen.path == KEYS).then(|| Reply::new(302, &[("location", &other)], b"")))
        }),
        ("metadata redirected elsewhere", {
            Box::new(move |seen| {
                (seen.path == METADATA).then(|| Reply::new(302, &[("location", &other)], b""))
            })
        }),
        ("endless redirects", {
            Box::new(|seen| seen.path.starts_with(KEYS).then(|| Reply::new(302, &[("location", KEYS)], b"")))
        }),
        ("too much", {
            let text = format!("{}{}", keys, " ".repeat(1 << 20));
            Box::new(move |seen| (seen.path == KEYS).then(|| Reply::new(200, &[], text.as_bytes())))
        }),
        (
            "a cut",
            Box::new(|seen| (seen.path == KEYS).then(|| Reply::json(&json!({"keys": []})).cut_after(40))),
        ),
    ];
    let mut refused = 0;
    for (what, special) in bad {
        let script = issuer(keys.clone(), special).await;
        let web = guarded(&script.origin());
        let token = token(&key, &script.origin());
        for _ in 0..3 {
            let (status, challenges, text) = refusal(call_with(&web, "plain", &token).await, &token).await;
            assert_eq!((status, &*text), (503, "tokens cannot be verified now: try again later"), "{what}");
            assert!(challenges.is_empty());
        }
        assert!(paths(&script).len() <= 6, "{what}: the keys are fetched once: {:?}", paths(&script));
        refused += 1;
    }
    assert_eq!((refused, elsewhere.received().len()), (16, 0));
}

#[tokio::test]
async fn keys_can_be_where_the_owner_says() {
    let key = Key::new("k1");
    let script = issuer(set(&[&key]), |seen| (seen.path == METADATA).then(|| Reply::status(404))).await;
    let auth = Auth::jwt("https://auth.example.com", RESOURCE).clock(now);
    let web = Calls::default().serve(auth.jwks_uri(format!("{}{KEYS}", script.origin())));
    assert_eq!(call_with(&web, "plain", &token(&key, "https://auth.example.com")).await.status, 200);
    assert_eq!(paths(&script), [KEYS]);
}

#[tokio::test]
async fn a_redirect_within_the_issuer_is_followed() {
    let key = Key::new("k1");
    let keys = set(&[&key]);
    let script = issuer(keys.clone(), move |seen| match &*seen.path {
        KEYS => Some(Reply::new(307, &[("location", "/moved")], b"")),
        "/moved" => Some(Reply::json(&keys)),
        _ => None,
    })
    .await;
    let web = guarded(&script.origin());
    assert_eq!(call_with(&web, "plain", &token(&key, &script.origin())).await.status, 200);
}

#[tokio::test]
async fn whoever_leaves_does_not_end_the_fetch_for_others() {
    let (key, open) = (Key::new("k1"), Arc::new(Notify::new()));
    let (gate, keys) = (open.clone(), set(&[&key]));
    let script =
        issuer(Value::Null, move |seen| (seen.path == KEYS).then(|| Reply::json(&keys).after(&gate))).await;
    let web = guarded(&script.origin());
    let token = token(&key, &script.origin());
    let mut first = tokio::task::JoinSet::new();
    {
        let (web, token) = (web.clone(), token.clone());
        first.spawn(async move { call_with(&web, "plain", &token).await.status });
    }
    script.wait_for("GET", 2).await;
    first.abort_all();
    assert!(first.join_next().await.unwrap().is_err());
    open.notify_one();
    assert_eq!(call_with(&web, "plain", &token).await.status, 200);
    assert_eq!(paths(&script), [METADATA, KEYS]);
}

/// Advances the clock without waiting: sockets cannot be paused.
async fn later(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn keys_change_and_old_ones_go() {
    let (old, new) = (Key::new("old"), Key::new("new"));
    let (turn, sets) = (Arc::new(AtomicUsize::new(0)), [set(&[&old]), set(&[&old, &new]), set(&[&new])]);
    let now_at = turn.clone();
    let script = issuer(Value::Null, move |seen| {
        let set = &sets[now_at.load(Ordering::SeqCst)];
        (seen.path == KEYS).then(|| Reply::json(set).with_header("cache-control", "max-age=1"))
    })
    .await;
    let web = guarded(&script.origin());
    let (by_old, by_new) = (token(&old, &script.origin()), token(&new, &script.origin()));
    assert_eq!(call_with(&web, "plain", &by_old).await.status, 200);
    turn.store(1, Ordering::SeqCst);
    assert_eq!(call_with(&web, "plain", &by_new).await.status, 401, "fetched a moment ago");
    later(Duration::from_secs(31)).await;
    assert_eq!(call_with(&web, "plain", &by_new).await.status, 200);
    assert_eq!(paths(&script).len(), 4);
    turn.store(2, Ordering::SeqCst);
    // After five minutes the keys are no longer fresh: the next request waits for new ones.
    later(Duration::from_secs(301)).await;
    assert_eq!(call_with(&web, "plain", &by_new).await.status, 200);
    assert_eq!(paths(&script).len(), 6);
    assert_eq!(call_with(&web, "plain", &by_old).await.status, 401);
    assert_eq!(paths(&script).len(), 6, "fetched a moment ago");
}
