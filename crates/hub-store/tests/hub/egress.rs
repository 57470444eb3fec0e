//! Egress policy: denied connections are audited and not retried, and the policy can be changed while the hub runs.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use linchpin::egress::{BoxFuture, Egress, Policy, Resolver};
use linchpin::testing::authority::{Authority, Behaviour};
use linchpin_hub_core::hub::oauth::SignInStatus;
use serde_json::{Value, json};

use crate::fixture::{ADA, Stage, local_user};

const PRIVATE: &str = "10.0.0.7";
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Resolver that maps every name to a private address, and counts the lookups.
struct PrivateResolver(Arc<AtomicUsize>);

impl Resolver for PrivateResolver {
    fn resolve(&self, _: &str) -> BoxFuture<io::Result<Vec<IpAddr>>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::ready(Ok(vec![PRIVATE.parse().unwrap()])))
    }
}

/// Egress that allows public addresses and these networks.
fn egress(allowed: &[&str], lookups: &Arc<AtomicUsize>) -> Egress {
    let allow = |policy: Policy, network: &&str| policy.allow(network.parse().unwrap());
    let policy = allowed.iter().fold(Policy::public_only(), allow);
    Egress::builder().policy(policy).resolver(PrivateResolver(lookups.clone())).build().unwrap()
}

async fn stage() -> (Stage, Arc<AtomicUsize>) {
    let lookups = Arc::new(AtomicUsize::new(0));
    (Stage::with(egress(&["127.0.0.1"], &lookups)).await, lookups)
}

/// Returns the audit entries about denied connections.
async fn denied_connections(stage: &Stage) -> Vec<Value> {
    let rows = stage.hub.audit().entries(local_user(ADA), 0, 500).await.unwrap();
    let rows = rows.into_iter().filter(|row| row.action == "egress.denied");
    rows.map(|row| json!({ "actor": row.actor, "fields": row.fields })).collect()
}

/// Waits for `count` audit entries about denied connections.
async fn wait_for_denied(stage: &Stage, count: usize) -> Vec<Value> {
    let enough = async {
        loop {
            let found = denied_connections(stage).await;
            if found.len() >= count {
                return found;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, enough).await.unwrap()
}

#[tokio::test]
async fn what_is_denied_is_in_the_audit_and_tried_once() {
    let (stage, lookups) = stage().await;
    let form = json!({ "name": "Near", "url": "https://near.example/mcp?region=eu", "retry_attempts": 5 });
    let server = stage.hub.registry().add_server(local_user(ADA), form.clone()).await.unwrap();
    let error = stage.hub.registry().connect_server(local_user(ADA), "near").await.unwrap_err();
    assert!(error.message().contains("10.0.0.7 is a private address"), "{error}");
    assert!(error.message().contains("`[egress] allow = [\"10.0.0.0/8\"]`"), "{error}");
    assert_eq!(lookups.load(Ordering::SeqCst), 1, "no retry");
    let found = wait_for_denied(&stage, 1).await;
    let [first] = &*found else { panic!("{found:?}") };
    assert_eq!(first["actor"], local_user(ADA).subject().to_string());
    let fields = &first["fields"];
    assert_eq!(fields["host"], "near.example");
    assert_eq!(fields["address"], PRIVATE);
    assert_eq!(fields["server"], server.id.to_string());
    assert_eq!(fields["count"], 1);
    assert!(fields["reason"].as_str().unwrap().contains("only public addresses are allowed"), "{fields}");
    assert!(!first.to_string().contains("region"), "{first}");

    // Repeated denials are counted, and recorded after a minute or at the shutdown of the hub.
    for _ in 0..20 {
        stage.hub.upstream().test_server(local_user(ADA), "near").await.unwrap_err();
    }
    assert_eq!(denied_connections(&stage).await.len(), 1);
    // A denial of another operation is recorded separately.
    stage.hub.upstream().test_draft(local_user(ADA), form).await.unwrap_err();
    stage.hub.registry().sync_server(local_user(ADA), "near", None).await.unwrap_err();
    stage.hub.shutdown().await;
    let found = denied_connections(&stage).await;
    let counts: Vec<_> = found.iter().map(|found| found["fields"]["count"].as_u64().unwrap()).collect();
    assert_eq!(counts.iter().sum::<u64>(), 1 + 20 + 1 + 1, "{found:?}");
    assert!(found.len() <= 5, "{found:?}");
}

#[tokio::test]
async fn what_signing_in_leads_to_is_denied_and_told() {
    let conforming = Authority::conforming;
    // A private address, plain `http` to a public address, and a number that some parsers accept as an address.
    for (url, host) in [
        ("https://near.example/x?token=secret", "near.example"),
        ("http://8.8.8.8/x?token=secret", "8.8.8.8"),
        ("https://167772167/x?token=secret", "167772167"),
    ] {
        let places = [
            ("resource_metadata", conforming().challenge(format!("Bearer resource_metadata=\"{url}\""))),
            ("issuer", conforming().resource_metadata("authorization_servers", json!([url]))),
            ("registration", conforming().metadata("registration_endpoint", url)),
            ("token", conforming().metadata("token_endpoint", url)),
            ("revocation", conforming().metadata("revocation_endpoint", url)),
            ("metadata", conforming().redirect_metadata(url)),
        ];
        for (place, behaviour) in places {
            let found = Box::pin(denied_during_sign_in(behaviour)).await;
            // A URL that cannot be parsed is reported with the host that sent it.
            let is_it =
                |found: &Value| found["fields"]["host"] == host || found["fields"]["host"] == "127.0.0.1";
            assert!(found.iter().all(is_it), "{place}, {url}: {found:?}");
            assert!(!format!("{found:?}").contains("secret"), "{place}: {found:?}");
        }
    }
}

/// Signs in and out, and returns the denied connections.
async fn denied_during_sign_in(behaviour: Behaviour) -> Vec<Value> {
    let (stage, _) = stage().await;
    let authority = Authority::start(behaviour).await.unwrap();
    let form = json!({ "name": "Guarded", "url": authority.mcp_url(), "retry_attempts": 5,
        "authentication": { "type": "oauth" } });
    stage.hub.registry().add_server(local_user(ADA), form).await.unwrap();
    let begun = stage.hub.upstream().start_sign_in(local_user(ADA), "guarded", None).await.unwrap();
    if begun.progress == SignInStatus::Waiting {
        let (url, proof) = stage.hub.upstream().sign_in_redirect(local_user(ADA), &begun.id).await.unwrap();
        let back = authority.approve(&url).await.unwrap();
        stage.hub.complete_sign_in(back.url.split_once('?').unwrap().1, &proof).await.unwrap();
        let _ = stage.hub.upstream().sign_out_of_server(local_user(ADA), "guarded", None).await; // the sign-in may have failed
    }
    wait_for_denied(&stage, 1).await
}

#[tokio::test]
async fn plain_http_is_for_this_machine() {
    let lookups = Arc::default();
    let stage = Stage::with(egress(&["127.0.0.1", "10.0.0.0/8", "8.8.8.8"], &lookups)).await;
    for url in ["http://8.8.8.8/mcp", "http://near.example/mcp", "http://10.0.0.7/mcp", "HTTP://near.example"]
    {
        let form = json!({ "name": "A", "url": url });
        let error = stage.hub.registry().add_server(local_user(ADA), form).await.unwrap_err();
        assert!(error.message().contains("use `https`"), "{url}: {error}");
    }
    // A `localhost` name that resolves to another machine.
    let form = json!({ "name": "A", "url": "http://a.localhost/mcp", "retry_attempts": 0 });
    let error = stage.hub.upstream().test_draft(local_user(ADA), form).await.unwrap_err();
    assert!(error.message().contains("10.0.0.7 is a private address, and plain `http`"), "{error}");
}

#[tokio::test]
async fn another_policy_counts_at_once_and_ends_what_it_denies() {
    let (stage, lookups) = stage().await;
    let scope = stage.agent("One", "auto", &[]).await;
    stage.call(scope, "echo", json!({ "message": "a" })).await.unwrap();
    let status = async || {
        let view = stage.hub.registry().server(local_user(ADA), "up").await.unwrap();
        serde_json::to_value(&view).unwrap()["status"].clone()
    };
    assert_eq!(status().await, "connected");
    stage.hub.change_egress(&egress(&["127.0.0.0/8", "10.0.0.0/8"], &lookups));
    assert_eq!(status().await, "connected", "it is still allowed");
    stage.call(scope, "echo", json!({ "message": "b" })).await.unwrap();
    stage.hub.change_egress(&egress(&["10.0.0.0/8"], &lookups));
    assert_eq!(status().await, "disconnected");
    let call = stage.call(scope, "echo", json!({ "message": "c" })).await.unwrap();
    assert!(call.error.as_ref().unwrap().contains("127.0.0.1 is a loopback address"), "{call:?}");
    assert_eq!(wait_for_denied(&stage, 1).await[0]["actor"], scope.subject().to_string());
    stage.hub.change_egress(&egress(&["127.0.0.1"], &lookups));
    stage.call(scope, "echo", json!({ "message": "d" })).await.unwrap();
    assert_eq!(stage.upstream.ran(), 3);
}
