//! Lifecycle of a sign-in: first tool sync, revocation at the provider, and additional scopes.

use std::time::Duration;

use linchpin::testing::authority::{Authority, AuthorityHost, Misbehaviour};
use linchpin_hub_core::hub::oauth::{GrantState, SignInStatus};
use linchpin_hub_core::store::CallStatus;
use serde_json::json;
use tokio::task::JoinSet;

use crate::fixture::{ADA, agent_of, local_user};
use crate::oauth_fixture::{
    agent, call, greet, oauth_stage, oauth_stage_with, sign_in, start_sign_in, used_tokens,
};

const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the numbers of token refreshes and of requests to the server.
fn request_counts(authority: &Authority) -> (usize, usize) {
    let seen = authority.observations();
    let resource = seen.requests.iter().filter(|request| request.host == AuthorityHost::Resource).count();
    (seen.with_grant_type("refresh_token").count(), resource)
}

#[tokio::test]
async fn the_first_to_sign_in_sees_the_tools() {
    let (stage, authority) = oauth_stage("per-agent").await;
    let (one, two) = (agent(&stage, "One").await, agent(&stage, "Two").await);
    let server = stage.hub.registry().server(local_user(ADA), "guarded").await.unwrap();
    assert_eq!((server.tools, server.last_synced), (0, None));
    assert_eq!(sign_in(&stage, &authority, Some(agent_of(one))).await, SignInStatus::Done);
    let server = stage.hub.registry().server(local_user(ADA), "guarded").await.unwrap();
    assert_eq!((server.tools, server.error), (2, None), "the sync is automatic");
    let before = used_tokens(&authority).len();
    assert_eq!(sign_in(&stage, &authority, Some(agent_of(two))).await, SignInStatus::Done);
    assert_eq!((before, greet(&stage, one).await.status), (1, CallStatus::Success));
}

#[tokio::test]
async fn a_first_look_that_fails_is_shown_and_breaks_nothing() {
    let (stage, authority) = oauth_stage("shared").await;
    let mut watching = stage.hub.events().subscribe(ADA, None);
    let (query, proof) = start_sign_in(&stage.hub, &authority, None).await;
    // From now on the server rejects every request.
    let spoiled = json!({ "headers": { "Origin": "http://stranger.example" } });
    stage.hub.registry().update_server(local_user(ADA), "guarded", spoiled).await.unwrap();
    let back = stage.hub.complete_sign_in(&query, &proof).await.unwrap();
    assert_eq!(back.progress, SignInStatus::Done);
    let error = back.sync_error.unwrap();
    assert!(error.starts_with("cannot connect to `guarded`"), "{error}");
    let server = stage.hub.registry().server(local_user(ADA), "guarded").await.unwrap();
    assert_eq!(server.error, Some(error.clone()));
    let told = async {
        loop {
            let event = watching.next().await.unwrap();
            if event.kind == "sign_in" {
                return event;
            }
        }
    };
    let event = tokio::time::timeout(TEST_TIMEOUT, told).await.unwrap();
    assert_eq!((&event.body["status"], &event.body["sync_error"]), (&json!("done"), &json!(error)));
    stage.hub.registry().update_server(local_user(ADA), "guarded", json!({ "headers": {} })).await.unwrap();
    stage.hub.registry().sync_server(local_user(ADA), "guarded", None).await.unwrap();
    assert_eq!(greet(&stage, local_user(ADA)).await.status, CallStatus::Success);
}

#[tokio::test]
async fn a_grant_that_was_revoked_is_tried_once_and_others_go_on() {
    let (stage, authority) = oauth_stage("per-agent").await;
    let (one, two) = (agent(&stage, "One").await, agent(&stage, "Two").await);
    assert_eq!(sign_in(&stage, &authority, Some(agent_of(one))).await, SignInStatus::Done);
    assert_eq!(greet(&stage, one).await.status, CallStatus::Success);
    authority.revoke();
    assert_eq!(sign_in(&stage, &authority, Some(agent_of(two))).await, SignInStatus::Done);
    let says = "the sign-in to `guarded` has expired or was revoked: sign in again with `linchpin server sign-in guarded \
                --agent \"One\"`";
    let mut calls = JoinSet::new();
    for _ in 0..8 {
        let hub = stage.hub.clone();
        calls.spawn(async move { call(&hub, one, "greet").await });
    }
    for failed in calls.join_all().await {
        assert_eq!(failed.status, CallStatus::Error);
        assert!(failed.error.as_ref().unwrap().contains(says), "{failed:?}");
    }
    let before = request_counts(&authority);
    assert_eq!(before.0, 1, "a refresh token is used once");
    for _ in 0..5 {
        assert_eq!(greet(&stage, one).await.status, CallStatus::Error);
    }
    assert_eq!(request_counts(&authority), before, "no further requests");
    assert_eq!(greet(&stage, two).await.status, CallStatus::Success);
    let standing =
        stage.hub.upstream().grant_status(local_user(ADA), "guarded", Some(agent_of(one))).await.unwrap();
    assert_eq!(
        (standing.state, standing.advice.as_deref()),
        (GrantState::ReauthorizationRequired, Some(says))
    );
    let standing =
        stage.hub.upstream().grant_status(local_user(ADA), "guarded", Some(agent_of(two))).await.unwrap();
    assert_eq!(standing.state, GrantState::Active);
    assert_eq!(sign_in(&stage, &authority, Some(agent_of(one))).await, SignInStatus::Done);
    for agent in [one, two] {
        assert_eq!(greet(&stage, agent).await.status, CallStatus::Success);
    }
}

#[tokio::test]
async fn a_server_that_takes_not_even_a_fresh_token_is_left_alone() {
    let (stage, authority) = oauth_stage("shared").await;
    assert_eq!(sign_in(&stage, &authority, None).await, SignInStatus::Done);
    authority.set_behaviour(Authority::conforming().with(Misbehaviour::UnauthorizedForever));
    for _ in 0..5 {
        let failed = greet(&stage, local_user(ADA)).await;
        assert!(
            failed.error.as_ref().unwrap().contains("sign in again with `linchpin server sign-in guarded`")
        );
    }
    assert_eq!(request_counts(&authority).0, 1);
    // A restarted hub knows it, too.
    let other = crate::fixture::another_hub(&stage.folder, stage.clock.clone(), stage.store.clone());
    let before = request_counts(&authority);
    assert_eq!(call(&other, local_user(ADA), "greet").await.status, CallStatus::Error);
    assert_eq!(request_counts(&authority), before);
    authority.set_behaviour(Authority::conforming());
    assert_eq!(sign_in(&stage, &authority, None).await, SignInStatus::Done);
    assert_eq!(greet(&stage, local_user(ADA)).await.status, CallStatus::Success);
}

#[tokio::test]
async fn an_authority_that_is_down_costs_nobody_the_sign_in() {
    let (stage, authority) = oauth_stage("shared").await;
    assert_eq!(sign_in(&stage, &authority, None).await, SignInStatus::Done);
    authority.set_behaviour(Authority::conforming().with(Misbehaviour::TokenHtmlError));
    authority.expire_tokens();
    assert_eq!(greet(&stage, local_user(ADA)).await.status, CallStatus::Error);
    let standing = stage.hub.upstream().grant_status(local_user(ADA), "guarded", None).await.unwrap();
    assert_eq!(standing.state, GrantState::Active, "{standing:?}");
    authority.set_behaviour(Authority::conforming());
    stage.clock.advance(2); // the backoff has elapsed
    assert_eq!(greet(&stage, local_user(ADA)).await.status, CallStatus::Success);
}

#[tokio::test]
async fn more_is_asked_for_when_somebody_signs_in_again() {
    let (stage, authority) = oauth_stage("shared").await;
    assert_eq!(sign_in(&stage, &authority, None).await, SignInStatus::Done);
    let first = used_tokens(&authority);
    for _ in 0..5 {
        let failed = call(&stage.hub, local_user(ADA), "write").await;
        assert_eq!(failed.status, CallStatus::Error);
        let error = failed.error.unwrap();
        let says =
            "`guarded` requires the scope `write`: sign in again with `linchpin server sign-in guarded`";
        assert!(error.contains(says), "{error}");
        assert_eq!(greet(&stage, local_user(ADA)).await.status, CallStatus::Success, "the rest works");
    }
    assert_eq!((request_counts(&authority).0, authority.observations().authorizations), (0, 1));
    let standing = stage.hub.upstream().grant_status(local_user(ADA), "guarded", None).await.unwrap();
    assert_eq!((standing.state, &*standing.missing_scopes), (GrantState::Active, &["write".to_owned()][..]));

    // An abandoned or denied sign-in does not affect the grant.
    let (query, proof) = start_sign_in(&stage.hub, &authority, None).await;
    let brought = query.split('&').find(|pair| pair.starts_with("state=")).unwrap();
    let iss = query.split('&').find(|pair| pair.starts_with("iss=")).unwrap();
    let no = format!("error=access_denied&{brought}&{iss}");
    let denied = stage.hub.complete_sign_in(&no, &proof).await.unwrap();
    assert!(matches!(denied.progress, SignInStatus::Failed { .. }), "{denied:?}");
    assert_eq!(greet(&stage, local_user(ADA)).await.status, CallStatus::Success);
    assert_eq!(used_tokens(&authority), first, "the same grant");

    let begun = stage.hub.upstream().start_sign_in(local_user(ADA), "guarded", None).await.unwrap();
    let (url, proof) = stage.hub.upstream().sign_in_redirect(local_user(ADA), &begun.id).await.unwrap();
    let scope = url.split('&').find_map(|pair| pair.strip_prefix("scope=")).unwrap();
    assert!(scope.contains("read") && scope.contains("write"), "{scope}");
    let back = authority.approve(&url).await.unwrap();
    let query = back.url.split_once('?').unwrap().1;
    assert_eq!(stage.hub.complete_sign_in(query, &proof).await.unwrap().progress, SignInStatus::Done);
    for tool in ["greet", "write"] {
        assert_eq!(call(&stage.hub, local_user(ADA), tool).await.status, CallStatus::Success);
    }
    let standing = stage.hub.upstream().grant_status(local_user(ADA), "guarded", None).await.unwrap();
    assert_eq!((standing.advice, standing.missing_scopes.len()), (None, 0));
}

#[tokio::test]
async fn too_few_scopes_are_no_refusal() {
    let silent = Authority::conforming().with(Misbehaviour::ChallengeMissing);
    let (stage, authority) = oauth_stage_with("shared", silent).await;
    let form = json!({ "authentication": { "type": "oauth", "scopes": ["write"] } });
    stage.hub.registry().update_server(local_user(ADA), "guarded", form).await.unwrap();
    let (query, proof) = start_sign_in(&stage.hub, &authority, None).await;
    authority.set_behaviour(Authority::conforming());
    let back = stage.hub.complete_sign_in(&query, &proof).await.unwrap();
    assert_eq!(back.progress, SignInStatus::Done);
    let standing = stage.hub.upstream().grant_status(local_user(ADA), "guarded", None).await.unwrap();
    assert_eq!((standing.state, &*standing.missing_scopes), (GrantState::Active, &["read".to_owned()][..]));
    assert_eq!(sign_in(&stage, &authority, None).await, SignInStatus::Done);
    for tool in ["greet", "write"] {
        assert_eq!(call(&stage.hub, local_user(ADA), tool).await.status, CallStatus::Success);
    }
}

#[tokio::test]
async fn a_scope_that_cannot_be_had_is_not_asked_for_again() {
    let (stage, authority) = oauth_stage("shared").await;
    assert_eq!(sign_in(&stage, &authority, None).await, SignInStatus::Done);
    assert_eq!(call(&stage.hub, local_user(ADA), "write").await.status, CallStatus::Error);
    let (query, proof) = start_sign_in(&stage.hub, &authority, None).await;
    let brought = query.split('&').filter(|pair| pair.starts_with("state=") || pair.starts_with("iss="));
    let no = brought.fold("error=invalid_scope".to_owned(), |no, pair| format!("{no}&{pair}"));
    let back = stage.hub.complete_sign_in(&no, &proof).await.unwrap();
    let SignInStatus::Failed { error } = back.progress else { panic!("{back:?}") };
    assert!(error.contains("`invalid_scope`") && error.contains("are not requested any more"), "{error}");
    let standing = stage.hub.upstream().grant_status(local_user(ADA), "guarded", None).await.unwrap();
    assert_eq!((standing.state, standing.missing_scopes.len()), (GrantState::Active, 0));
}
