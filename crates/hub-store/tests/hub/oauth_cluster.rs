//! Sign-ins with several hubs on one store, and across a restart.

use linchpin_hub_core::hub::oauth::{GrantState, SignInStatus};
use linchpin_hub_core::store::{Batch, CallStatus, DocumentKind, PageRequest, StoreChange, StoredDocument};

use crate::fixture::{ADA, Stage, agent_of, another_hub, local_user, open};
use crate::oauth_fixture::{agent, call, oauth_stage, sign_in, start_sign_in};

fn second_hub(stage: &Stage) -> std::sync::Arc<linchpin_hub_core::hub::Hub> {
    another_hub(&stage.folder, stage.clock.clone(), stage.store.clone())
}

/// Returns whether the database files contain a text.
fn is_readable(stage: &Stage, text: &str) -> bool {
    ["hub.db", "hub.db-wal"].iter().any(|name| {
        let bytes = std::fs::read(stage.folder.path().join(name)).unwrap_or_default();
        bytes.windows(text.len()).any(|part| part == text.as_bytes())
    })
}

#[tokio::test]
async fn who_left_from_one_hub_comes_back_to_another_once() {
    let (stage, authority) = oauth_stage("per-agent").await;
    let (other, helper) = (second_hub(&stage), agent(&stage, "Helper").await);
    let whose = Some(agent_of(helper));
    let (query, proof) = start_sign_in(&stage.hub, &authority, whose).await;
    let brought = query.split('&').find_map(|pair| pair.strip_prefix("state=")).unwrap();
    assert!(!is_readable(&stage, brought), "the pending sign-in is encrypted");
    let back = other.complete_sign_in(&query, &proof).await.unwrap();
    assert_eq!((back.progress, back.sync_error), (SignInStatus::Done, None));
    for hub in [&stage.hub, &other] {
        assert_eq!(hub.complete_sign_in(&query, &proof).await.unwrap_err().code(), "unknown_sign_in");
        assert_eq!(call(hub, helper, "greet").await.status, CallStatus::Success);
        let seen = hub.upstream().sign_in_view(local_user(ADA), &back.id).await.unwrap();
        assert_eq!(seen.progress, SignInStatus::Done, "at every hub");
    }
    // A sign-out or a new sign-in at one hub takes effect at all hubs.
    assert!(other.upstream().sign_out_of_server(local_user(ADA), "guarded", whose).await.unwrap());
    assert_eq!(call(&stage.hub, helper, "greet").await.status, CallStatus::Error);
    let (query, proof) = start_sign_in(&other, &authority, whose).await;
    assert_eq!(stage.hub.complete_sign_in(&query, &proof).await.unwrap().progress, SignInStatus::Done);
    for hub in [&stage.hub, &other] {
        assert_eq!(call(hub, helper, "greet").await.status, CallStatus::Success);
    }
}

#[tokio::test]
async fn a_sign_in_that_nobody_can_read_is_in_nobodys_way() {
    let (mut stage, authority) = oauth_stage("shared").await;
    stage.hub.upstream().start_sign_in(local_user(ADA), "guarded", None).await.unwrap();
    let server = stage.hub.registry().server(local_user(ADA), "guarded").await.unwrap().id.to_string();
    let paging = PageRequest { after: None, limit: 10 };
    let kept = stage.store.documents(ADA, DocumentKind::Secret, Some(&server), &paging).await.unwrap();
    let StoredDocument { mut document, version } = kept.items.into_iter().next().unwrap();
    document.body["bytes"] = "00".into();
    document.code = None;
    let key = document.key.clone();
    stage.store.commit(ADA, Batch::new().change(StoreChange::Put { document, version })).await.unwrap();
    stage.hub = second_hub(&stage);
    assert_eq!(sign_in(&stage, &authority, None).await, SignInStatus::Done);
    assert!(stage.store.document(ADA, &key).await.unwrap().is_none(), "the record is deleted");
}

#[tokio::test]
async fn of_two_who_come_back_at_once_one_is_heard() {
    let (stage, authority) = oauth_stage("shared").await;
    let other = second_hub(&stage);
    let (query, proof) = start_sign_in(&stage.hub, &authority, None).await;
    let both =
        tokio::join!(stage.hub.complete_sign_in(&query, &proof), other.complete_sign_in(&query, &proof));
    let heard = [both.0, both.1].into_iter().flatten().count();
    assert_eq!((heard, authority.observations().reuses), (1, 0), "the code was used once");
}

#[tokio::test]
async fn nobody_is_waited_for_longer_than_ten_minutes() {
    let (stage, authority) = oauth_stage("shared").await;
    let begun = stage.hub.upstream().start_sign_in(local_user(ADA), "guarded", None).await.unwrap();
    let (url, proof) = stage.hub.upstream().sign_in_redirect(local_user(ADA), &begun.id).await.unwrap();
    let back = authority.approve(&url).await.unwrap();
    stage.clock.advance(600);
    let query = back.url.split_once('?').unwrap().1;
    assert_eq!(stage.hub.complete_sign_in(query, &proof).await.unwrap_err().code(), "unknown_sign_in");
    let late = stage.hub.upstream().sign_in_view(local_user(ADA), &begun.id).await.unwrap();
    assert!(matches!(late.progress, SignInStatus::Failed { .. }), "{late:?}");
    assert_eq!(
        stage.hub.upstream().sign_in_redirect(local_user(ADA), &begun.id).await.unwrap_err().code(),
        "sign_in_finished"
    );
    // The next sign-in removes the expired one.
    assert_eq!(sign_in(&stage, &authority, None).await, SignInStatus::Done);
    assert_eq!(
        stage.hub.upstream().sign_in_view(local_user(ADA), &begun.id).await.unwrap_err().code(),
        "not_found"
    );
}

#[tokio::test]
async fn too_many_cannot_be_away() {
    let (stage, _authority) = oauth_stage("shared").await;
    for _ in 0..32 {
        stage.hub.upstream().start_sign_in(local_user(ADA), "guarded", None).await.unwrap();
    }
    let error = stage.hub.upstream().start_sign_in(local_user(ADA), "guarded", None).await.unwrap_err();
    assert_eq!(error.code(), "too_many_sign_ins");
    let hops = stage.hub.upstream().trace(local_user(ADA), "guarded", None).await.unwrap();
    assert_eq!(hops.len(), 50, "the last requests are retained");
}

#[tokio::test]
async fn what_was_asked_of_whom_is_still_known_after_a_restart() {
    let (mut stage, authority) = oauth_stage("shared").await;
    let before = stage.hub.upstream().grant_status(local_user(ADA), "guarded", None).await.unwrap();
    assert_eq!((before.state, before.trace.len()), (GrantState::None, 0));
    assert_eq!(before.advice.as_deref(), Some("sign in with `linchpin server sign-in guarded`"));
    assert_eq!(sign_in(&stage, &authority, None).await, SignInStatus::Done);
    let hops = stage.hub.upstream().trace(local_user(ADA), "guarded", None).await.unwrap();
    let whats: Vec<_> = hops.iter().map(|hop| hop.purpose.as_str()).collect();
    assert!(
        whats.contains(&"sign-in of the user in the browser") && whats.contains(&"token request"),
        "{whats:?}"
    );
    (stage.hub, stage.store) = open(&stage.folder, stage.clock.clone());
    let after = stage.hub.upstream().grant_status(local_user(ADA), "guarded", None).await.unwrap();
    assert_eq!((after.state, after.advice), (GrantState::Active, None));
    assert_eq!(after.trace.len(), hops.len());
    let text = serde_json::to_string(&after.trace).unwrap();
    assert!(authority.secrets().len() > 3 && !text.contains('?'));
    for secret in authority.secrets() {
        assert!(!text.contains(&secret) && !is_readable(&stage, &secret), "{text}");
    }
    stage.hub.registry().remove_server(local_user(ADA), "guarded").await.unwrap();
    let error = stage.hub.upstream().trace(local_user(ADA), "guarded", None).await.unwrap_err();
    assert_eq!(error.code(), "not_found");
}

#[tokio::test]
async fn a_server_that_lets_everybody_look_needs_nobody() {
    let (stage, _authority) = oauth_stage("shared").await;
    let form = serde_json::json!({ "name": "Open", "url": stage.upstream.url, "retry_attempts": 0,
        "authentication": { "type": "oauth" } });
    stage.hub.registry().add_server(local_user(ADA), form).await.unwrap();
    let begun = stage.hub.upstream().start_sign_in(local_user(ADA), "open", None).await.unwrap();
    assert_eq!(begun.progress, SignInStatus::NotNeeded);
}
