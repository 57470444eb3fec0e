//! Negotiation: how a client finds the era and revision of a server, however the server reacts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use linchpin::CallError;
use linchpin::client::RevisionCache;
use linchpin::model::Root;
use linchpin::testing::{Reaction, Script};
use linchpin::transport::Transport;
use linchpin::{Client, ClientError, Revision};
use serde_json::{Value, json};
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

async fn connect(script: &Script) -> Result<Client, ClientError> {
    Client::over(script.clone()).revision_cache(RevisionCache::new()).connect().await
}

/// Returns the methods sent to a script, in order.
fn methods(script: &Script) -> Vec<String> {
    script
        .messages()
        .iter()
        .map(|message| message["method"].as_str().unwrap_or("a response").to_owned())
        .collect()
}

fn session_revisions() -> impl Iterator<Item = Revision> {
    Revision::ALL.into_iter().filter(|revision| *revision != Revision::LATEST)
}

#[tokio::test(start_paused = true)]
async fn every_revision_is_found() {
    for revision in session_revisions() {
        let script = Script::with_revision(revision);
        assert_eq!(connect(&script).await.unwrap().revision(), revision);
        assert_eq!(methods(&script), ["server/discover", "initialize", "notifications/initialized"]);
    }
    let script = Script::with_revision(Revision::LATEST);
    assert_eq!(connect(&script).await.unwrap().revision(), Revision::LATEST);
    assert_eq!(methods(&script), ["server/discover"]);
}

#[tokio::test(start_paused = true)]
async fn whatever_error_answers_the_probe_a_session_is_tried() {
    let errors: [fn() -> Reaction; 6] = [
        || Reaction::new().error(-32600, "initialize first"),
        || Reaction::new().error(-32602, "Invalid request parameters"),
        || Reaction::new().error(0, ""),
        || Reaction::new().result(json!({})),
        || Reaction::new().result(json!("hello")),
        || Reaction::new().error_with(-32022, "Unsupported", &json!({ "supported": ["2025-06-18"] })),
    ];
    for error in errors {
        let script = Script::with_revision(Revision::V2025_06_18).on("server/discover", move |_| error());
        assert_eq!(connect(&script).await.unwrap().revision(), Revision::V2025_06_18);
        assert_eq!(script.connections(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_silent_is_greeted_as_of_old() {
    let script = Script::with_revision(Revision::V2024_11_05).on("server/discover", |_| Reaction::new());
    let begun = Instant::now();
    let client = Client::over(script.clone())
        .revision_cache(RevisionCache::new())
        .probe_timeout(SECOND)
        .connect()
        .await
        .unwrap();
    assert_eq!((client.revision(), begun.elapsed()), (Revision::V2024_11_05, SECOND));
    assert_eq!(methods(&script), ["server/discover", "initialize", "notifications/initialized"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_takes_long_to_start_is_waited_for() {
    let discovered = json!({
        "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {},
        "ttlMs": 0, "cacheScope": "private",
    });
    let script = Script::new()
        .on("server/discover", move |_| Reaction::new().wait(SECOND * 20).result(discovered.clone()));
    assert_eq!(connect(&script).await.unwrap().revision(), Revision::LATEST);
    // A permanently silent server must time out.
    let begun = Instant::now();
    let silent = |_: &Value| Reaction::new();
    let silent = Script::new().on("server/discover", silent).on("initialize", silent);
    let error = Client::over(silent)
        .revision_cache(RevisionCache::new())
        .open_timeout(SECOND * 10)
        .connect()
        .await
        .unwrap_err();
    assert!(matches!(error, ClientError::Call(CallError::TimedOut(_))), "{error:?}");
    assert_eq!(begun.elapsed(), SECOND * 10);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_dies_of_the_probe_is_started_again() {
    for wait in [Duration::ZERO, SECOND] {
        let script = Script::with_revision(Revision::V2025_03_26)
            .on("server/discover", move |_| Reaction::new().wait(wait).close("it panicked"));
        assert_eq!(connect(&script).await.unwrap().revision(), Revision::V2025_03_26);
        assert_eq!(script.connections(), 2);
        assert_eq!(methods(&script), ["server/discover", "initialize", "notifications/initialized"]);
    }
    let dead = Script::new().on_open(Reaction::new().close("no such file"));
    let error = connect(&dead).await.unwrap_err().to_string();
    assert!(error.contains("no such file"), "{error}");
    assert_eq!(dead.connections(), 2);
}

#[tokio::test(start_paused = true)]
async fn revisions_that_nobody_knows_are_named() {
    let greeted = json!({
        "protocolVersion": "1999-01-01", "capabilities": {}, "serverInfo": { "name": "old", "version": "1" },
    });
    let old = Script::new().on("initialize", move |_| greeted.clone());
    let error = connect(&old).await.unwrap_err();
    assert!(matches!(&error, ClientError::UnsupportedVersion { offered, .. } if offered == &["1999-01-01"]));
    assert!(error.to_string().contains("1999-01-01"), "{error}");

    let refusal = json!({ "supported": ["2099-01-01"], "requested": "2026-07-28" });
    let newer =
        Script::new().on("server/discover", move |_| Reaction::new().error_with(-32022, "no", &refusal));
    let error = connect(&newer).await.unwrap_err();
    assert!(matches!(&error, ClientError::UnsupportedVersion { offered, .. } if offered == &["2099-01-01"]));

    // A revision that is rejected, but also offered, is tried once more.
    let refusal = json!({ "supported": [Revision::LATEST.as_str()], "requested": Revision::LATEST.as_str() });
    let refused = Arc::new(AtomicUsize::new(0));
    let wavering = |refusals: usize| {
        let (refusal, refused) = (refusal.clone(), refused.clone());
        refused.store(0, Ordering::Relaxed);
        Script::new().on("server/discover", move |_| {
            if refused.fetch_add(1, Ordering::Relaxed) < refusals {
                return Reaction::new().error_with(-32022, "no", &refusal);
            }
            Reaction::new().result(json!({
                "resultType": "complete", "supportedVersions": [Revision::LATEST.as_str()], "capabilities": {},
                "ttlMs": 0, "cacheScope": "private",
            }))
        })
    };
    assert_eq!(connect(&wavering(1)).await.unwrap().revision(), Revision::LATEST);
    let stubborn = wavering(usize::MAX);
    assert!(matches!(connect(&stubborn).await.unwrap_err(), ClientError::UnsupportedVersion { .. }));
    assert_eq!(stubborn.received_messages("server/discover").len(), 2);

    // The revisions that the client is restricted to apply, too.
    let script = Script::with_revision(Revision::V2025_03_26);
    let only =
        Client::over(script.clone()).revision_cache(RevisionCache::new()).revisions([Revision::V2025_11_25]);
    let error = only.connect().await.unwrap_err();
    assert!(matches!(error, ClientError::UnsupportedVersion { .. }), "{error:?}");
    let only = Client::over(script).revision_cache(RevisionCache::new()).revisions([Revision::LATEST]);
    assert!(matches!(only.connect().await.unwrap_err(), ClientError::UnsupportedVersion { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_malformed_greeting_says_what_is_wrong() {
    let script =
        Script::new().on("initialize", |_| json!({ "protocolVersion": "2025-11-25", "capabilities": 1 }));
    let error = connect(&script).await.unwrap_err();
    assert!(matches!(error, ClientError::Malformed { .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn what_a_server_speaks_is_remembered() {
    for revision in Revision::ALL {
        let (eras, script) = (RevisionCache::new(), Script::with_revision(revision));
        for _ in 0..2 {
            let client = Client::over(script.clone()).revision_cache(eras.clone()).connect().await.unwrap();
            assert_eq!(client.revision(), revision);
        }
        let probes = if revision == Revision::LATEST { 2 } else { 1 };
        assert_eq!(script.received_messages("server/discover").len(), probes);
        assert_eq!(eras.get(&script.name()), Some(revision));
        assert_eq!(
            RevisionCache::from_entries(eras.entries()).get(&script.name()),
            Some(revision),
            "it can be persisted"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_memory_that_is_wrong_is_mended() {
    for (remembered, spoken) in [
        (Revision::LATEST, Revision::LATEST_SESSION),
        (Revision::LATEST_SESSION, Revision::LATEST),
        (Revision::V2024_11_05, Revision::V2025_06_18),
    ] {
        let (eras, script) = (RevisionCache::new(), Script::with_revision(spoken));
        eras.set(&script.name(), remembered);
        let client = Client::over(script.clone()).revision_cache(eras.clone()).connect().await.unwrap();
        assert_eq!(client.revision(), spoken);
        assert_eq!(eras.get(&script.name()), Some(spoken));
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_may_ask_as_soon_as_the_session_is_open() {
    let opened = AtomicUsize::new(0);
    let script = Script::with_revision(Revision::V2025_06_18).on("notifications/initialized", move |_| {
        opened.fetch_add(1, Ordering::Relaxed);
        Reaction::new().request("roots", "roots/list", &json!({}))
    });
    let root = Root { uri: "file:///work".into(), name: None, meta: None };
    let client = Client::over(script.clone()).revision_cache(RevisionCache::new()).roots([root]);
    let _client = client.connect().await.unwrap();
    let answer =
        tokio::time::timeout(SECOND, script.wait_for(|message| message["id"] == "roots")).await.unwrap();
    assert_eq!(answer["result"]["roots"][0]["uri"], "file:///work");
}

#[tokio::test(start_paused = true)]
async fn a_server_may_ping_before_the_session_is_open() {
    let greeted = json!({
        "protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": { "name": "x", "version": "1" },
    });
    let script = Script::new().on("initialize", move |_| {
        Reaction::new().request("ping", "ping", &json!({})).wait(SECOND).result(greeted.clone())
    });
    connect(&script).await.unwrap();
    let answer = script.messages().into_iter().find(|message| message["id"] == "ping");
    assert_eq!(answer, Some(json!({ "jsonrpc": "2.0", "id": "ping", "result": {} })));
}
