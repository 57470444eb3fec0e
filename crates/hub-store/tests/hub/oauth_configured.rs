//! OAuth servers of the configuration file: effects of an edited authentication on grants and client secrets.

use linchpin::auth::Secret;
use linchpin::testing::authority::{Authority, Known};
use linchpin_hub_core::hub::oauth::{Progress, SignedIn};
use linchpin_hub_core::id::SecretId;
use linchpin_hub_core::platform::System;
use linchpin_hub_core::server::Operated;
use linchpin_hub_core::store::{Batch, Kind, Paging, Status};
use linchpin_hub_core::vault::key_ring::Keys;
use linchpin_hub_core::vault::{KeyFile, Label};
use serde_json::{Value, json};

use crate::fixture::{ADA, Stage, person};
use crate::oauth_fixture::{greet, led_away, sign_in, used};

/// Returns the server with this authentication, as the configuration file declares it.
fn declared(authority: &Authority, authentication: &Value) -> Vec<Operated> {
    let form = json!({"name": "Guarded", "url": authority.mcp_url(), "retry_attempts": 0, "authentication": authentication});
    vec![Operated::read("guarded", form).unwrap()]
}

async fn configured(authentication: &Value) -> (Stage, Authority) {
    let (stage, authority) = (Stage::new().await, Authority::start(Authority::honest()).await.unwrap());
    stage.hub.operate(ADA, declared(&authority, authentication)).await.unwrap();
    (stage, authority)
}

async fn standing(stage: &Stage) -> SignedIn {
    stage.hub.standing(person(ADA), "guarded", None).await.unwrap().signed_in
}

fn plain() -> Value {
    json!({"type": "oauth"})
}

fn with_client(known: Known) -> Value {
    json!({"type": "oauth", "client_id": known.id()})
}

#[tokio::test]
async fn other_scopes_in_the_file_keep_the_grant() {
    let (stage, authority) = configured(&plain()).await;
    assert_eq!(sign_in(&stage, &authority, None).await, Progress::Done);
    let more = json!({"type": "oauth", "scopes": ["read", "write"]});
    stage.hub.operate(ADA, declared(&authority, &more)).await.unwrap();
    assert_eq!(standing(&stage).await, SignedIn::Yes);
    assert_eq!(greet(&stage, person(ADA)).await.status, Status::Success);
}

#[tokio::test]
async fn a_grant_is_used_with_the_client_and_issuer_of_its_sign_in_alone() {
    let (stage, authority) = configured(&plain()).await;
    assert_eq!(sign_in(&stage, &authority, None).await, Progress::Done);
    assert_eq!(greet(&stage, person(ADA)).await.status, Status::Success);
    let before = used(&authority);
    let issuer = json!({"type": "oauth", "issuer": "https://other.example"});
    for other in [with_client(Known::Public), issuer, json!({"type": "none"})] {
        stage.hub.operate(ADA, declared(&authority, &other)).await.unwrap();
        let seen = authority.seen().requests.len();
        let failed = greet(&stage, person(ADA)).await;
        assert_eq!(failed.status, Status::Error);
        let sent = authority.seen().requests.split_off(seen);
        assert!(sent.iter().all(|request| request.header("authorization").is_empty()), "{other}");
        if other["type"] == "oauth" {
            assert_eq!(standing(&stage).await, SignedIn::No);
            let error = failed.error.unwrap();
            assert!(error.contains("was for another URL, client or issuer: sign in again with"), "{error}");
        }
        // As it was: no user has to sign in again.
        stage.hub.operate(ADA, declared(&authority, &plain())).await.unwrap();
        assert_eq!(standing(&stage).await, SignedIn::Yes);
        assert_eq!(greet(&stage, person(ADA)).await.status, Status::Success, "{other}");
    }
    assert_eq!(used(&authority), before, "the same grant");
}

#[tokio::test]
async fn a_sign_in_ends_when_the_file_changes_its_client() {
    let (stage, authority) = configured(&plain()).await;
    let (query, proof) = led_away(&stage.hub, &authority, None).await;
    stage.hub.operate(ADA, declared(&authority, &with_client(Known::Public))).await.unwrap();
    let error = stage.hub.return_from_sign_in(&query, &proof).await.unwrap_err();
    assert_eq!(error.code(), "sign_in_outdated");
    assert_eq!(standing(&stage).await, SignedIn::No);
}

#[tokio::test]
async fn the_secret_of_a_client_is_shown_for_no_other_client() {
    let (stage, authority) = configured(&with_client(Known::Basic)).await;
    let secret = Secret::new(authority.secret(Known::Basic));
    stage.hub.set_credential(person(ADA), "guarded", None, &secret).await.unwrap();
    stage.hub.operate(ADA, declared(&authority, &with_client(Known::Public))).await.unwrap();
    assert_eq!(sign_in(&stage, &authority, None).await, Progress::Done);
    let seen = authority.seen();
    let shown =
        |text: &str| seen.requests.iter().any(|request| request.header("authorization").starts_with(text));
    assert!(!shown("Basic ") && seen.grants("authorization_code").count() == 1);
    stage.hub.operate(ADA, declared(&authority, &with_client(Known::Basic))).await.unwrap();
    assert_eq!(
        sign_in(&stage, &authority, None).await,
        Progress::Done,
        "with its own client it is used again"
    );
}

/// Binds a grant to the origin alone, as older versions stored it.
async fn make_older(stage: &Stage) {
    let (file, _) = KeyFile::open(&stage.place.path().join("keys"), &System).unwrap();
    let keys = Keys::new(stage.store.clone(), stage.clock.clone(), file);
    let paging = Paging { after: None, limit: 100 };
    let all = stage.store.documents(ADA, Kind::Secret, None, &paging).await.unwrap().items;
    let grant = all.into_iter().find(|stored| stored.document.body["kind"] == "oauth").unwrap().document;
    let id: SecretId = grant.key.id.parse().unwrap();
    let (secret, sealed, version) = keys.open(ADA, id).await.unwrap().unwrap();
    let origin = sealed.bound_to.split_once(" as ").unwrap().0.to_owned();
    let label = Label { id, kind: sealed.kind, bound_to: origin };
    let change = keys.seal(ADA, &label, &grant.parent.unwrap(), &secret, version).await.unwrap();
    stage.store.commit(ADA, Batch::new().change(change)).await.unwrap();
}

#[tokio::test]
async fn a_grant_of_an_older_version_belongs_to_the_client_that_was_configured() {
    let (stage, authority) = configured(&plain()).await;
    assert_eq!(sign_in(&stage, &authority, None).await, Progress::Done);
    make_older(&stage).await;
    assert_eq!(standing(&stage).await, SignedIn::Yes);
    assert_eq!(greet(&stage, person(ADA)).await.status, Status::Success);
    stage.hub.operate(ADA, declared(&authority, &with_client(Known::Public))).await.unwrap();
    assert_eq!(standing(&stage).await, SignedIn::No);
    assert_eq!(greet(&stage, person(ADA)).await.status, Status::Error);
    stage.hub.operate(ADA, declared(&authority, &plain())).await.unwrap();
    assert_eq!(standing(&stage).await, SignedIn::Yes);
    assert_eq!(greet(&stage, person(ADA)).await.status, Status::Success);
}
