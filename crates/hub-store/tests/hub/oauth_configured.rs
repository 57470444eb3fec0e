//! OAuth servers of the configuration file: effects of an edited authentication on grants and client secrets.

use linchpin::auth::Secret;
use linchpin::testing::authority::{Authority, KnownClient};
use linchpin_hub_core::hub::oauth::{GrantState, SignInStatus};
use linchpin_hub_core::id::SecretId;
use linchpin_hub_core::platform::SystemPlatform;
use linchpin_hub_core::server::ConfiguredServer;
use linchpin_hub_core::store::{Batch, CallStatus, DocumentKind, PageRequest};
use linchpin_hub_core::vault::key_ring::KeyRing;
use linchpin_hub_core::vault::{KeyFile, SecretBinding};
use serde_json::{Value, json};

use crate::fixture::{ADA, Stage, local_user};
use crate::oauth_fixture::{greet, sign_in, start_sign_in, used_tokens};

/// Returns the server with this authentication, as the configuration file declares it.
fn declared(authority: &Authority, authentication: &Value) -> Vec<ConfiguredServer> {
    let form = json!({"name": "Guarded", "url": authority.mcp_url(), "retry_attempts": 0, "authentication": authentication});
    vec![ConfiguredServer::read("guarded", form).unwrap()]
}

async fn configured(authentication: &Value) -> (Stage, Authority) {
    let (stage, authority) = (Stage::new().await, Authority::start(Authority::conforming()).await.unwrap());
    stage.hub.registry().apply_config(ADA, declared(&authority, authentication)).await.unwrap();
    (stage, authority)
}

async fn grant_status(stage: &Stage) -> GrantState {
    stage.hub.upstream().grant_status(local_user(ADA), "guarded", None).await.unwrap().state
}

fn plain() -> Value {
    json!({"type": "oauth"})
}

fn with_client(known: KnownClient) -> Value {
    json!({"type": "oauth", "client_id": known.id()})
}

#[tokio::test]
async fn other_scopes_in_the_file_keep_the_grant() {
    let (stage, authority) = configured(&plain()).await;
    assert_eq!(sign_in(&stage, &authority, None).await, SignInStatus::Done);
    let more = json!({"type": "oauth", "scopes": ["read", "write"]});
    stage.hub.registry().apply_config(ADA, declared(&authority, &more)).await.unwrap();
    assert_eq!(grant_status(&stage).await, GrantState::Active);
    assert_eq!(greet(&stage, local_user(ADA)).await.status, CallStatus::Success);
}

#[tokio::test]
async fn a_grant_is_used_with_the_client_and_issuer_of_its_sign_in_alone() {
    let (stage, authority) = configured(&plain()).await;
    assert_eq!(sign_in(&stage, &authority, None).await, SignInStatus::Done);
    assert_eq!(greet(&stage, local_user(ADA)).await.status, CallStatus::Success);
    let before = used_tokens(&authority);
    let issuer = json!({"type": "oauth", "issuer": "https://other.example"});
    for other in [with_client(KnownClient::Public), issuer, json!({"type": "none"})] {
        stage.hub.registry().apply_config(ADA, declared(&authority, &other)).await.unwrap();
        let seen = authority.observations().requests.len();
        let failed = greet(&stage, local_user(ADA)).await;
        assert_eq!(failed.status, CallStatus::Error);
        let sent = authority.observations().requests.split_off(seen);
        assert!(sent.iter().all(|request| request.header("authorization").is_empty()), "{other}");
        if other["type"] == "oauth" {
            assert_eq!(grant_status(&stage).await, GrantState::None);
            let error = failed.error.unwrap();
            assert!(error.contains("was for another URL, client or issuer: sign in again with"), "{error}");
        }
        // As it was: no user has to sign in again.
        stage.hub.registry().apply_config(ADA, declared(&authority, &plain())).await.unwrap();
        assert_eq!(grant_status(&stage).await, GrantState::Active);
        assert_eq!(greet(&stage, local_user(ADA)).await.status, CallStatus::Success, "{other}");
    }
    assert_eq!(used_tokens(&authority), before, "the same grant");
}

#[tokio::test]
async fn a_sign_in_ends_when_the_file_changes_its_client() {
    let (stage, authority) = configured(&plain()).await;
    let (query, proof) = start_sign_in(&stage.hub, &authority, None).await;
    stage
        .hub
        .registry()
        .apply_config(ADA, declared(&authority, &with_client(KnownClient::Public)))
        .await
        .unwrap();
    let error = stage.hub.complete_sign_in(&query, &proof).await.unwrap_err();
    assert_eq!(error.code(), "sign_in_outdated");
    assert_eq!(grant_status(&stage).await, GrantState::None);
}

#[tokio::test]
async fn the_secret_of_a_client_is_shown_for_no_other_client() {
    let (stage, authority) = configured(&with_client(KnownClient::Basic)).await;
    let secret = Secret::new(authority.secret(KnownClient::Basic));
    stage.hub.upstream().set_credential(local_user(ADA), "guarded", None, &secret).await.unwrap();
    stage
        .hub
        .registry()
        .apply_config(ADA, declared(&authority, &with_client(KnownClient::Public)))
        .await
        .unwrap();
    assert_eq!(sign_in(&stage, &authority, None).await, SignInStatus::Done);
    let seen = authority.observations();
    let shown =
        |text: &str| seen.requests.iter().any(|request| request.header("authorization").starts_with(text));
    assert!(!shown("Basic ") && seen.with_grant_type("authorization_code").count() == 1);
    stage
        .hub
        .registry()
        .apply_config(ADA, declared(&authority, &with_client(KnownClient::Basic)))
        .await
        .unwrap();
    assert_eq!(
        sign_in(&stage, &authority, None).await,
        SignInStatus::Done,
        "with its own client it is used again"
    );
}

/// Binds a grant to the origin alone, as older versions stored it.
async fn store_legacy_binding(stage: &Stage) {
    let (file, _) = KeyFile::open(&stage.folder.path().join("keys"), &SystemPlatform).unwrap();
    let keys = KeyRing::new(stage.store.clone(), stage.clock.clone(), file);
    let paging = PageRequest { after: None, limit: 100 };
    let all = stage.store.documents(ADA, DocumentKind::Secret, None, &paging).await.unwrap().items;
    let grant = all.into_iter().find(|stored| stored.document.body["kind"] == "oauth").unwrap().document;
    let id: SecretId = grant.key.id.parse().unwrap();
    let (secret, sealed, version) = keys.open_secret(ADA, id).await.unwrap().unwrap();
    let origin = sealed.bound_to.split_once(" as ").unwrap().0.to_owned();
    let label = SecretBinding { id, kind: sealed.kind, bound_to: origin };
    let change = keys.seal_secret(ADA, &label, &grant.parent.unwrap(), &secret, version).await.unwrap();
    stage.store.commit(ADA, Batch::new().change(change)).await.unwrap();
}

#[tokio::test]
async fn a_grant_of_an_older_version_belongs_to_the_client_that_was_configured() {
    let (stage, authority) = configured(&plain()).await;
    assert_eq!(sign_in(&stage, &authority, None).await, SignInStatus::Done);
    store_legacy_binding(&stage).await;
    assert_eq!(grant_status(&stage).await, GrantState::Active);
    assert_eq!(greet(&stage, local_user(ADA)).await.status, CallStatus::Success);
    stage
        .hub
        .registry()
        .apply_config(ADA, declared(&authority, &with_client(KnownClient::Public)))
        .await
        .unwrap();
    assert_eq!(grant_status(&stage).await, GrantState::None);
    assert_eq!(greet(&stage, local_user(ADA)).await.status, CallStatus::Error);
    stage.hub.registry().apply_config(ADA, declared(&authority, &plain())).await.unwrap();
    assert_eq!(grant_status(&stage).await, GrantState::Active);
    assert_eq!(greet(&stage, local_user(ADA)).await.status, CallStatus::Success);
}
