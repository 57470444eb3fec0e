//! Lifecycle of a sign-in: first tool sync, revocation at the provider, and additional scopes.

use std::time::Duration;

use linchpin::testing::authority::{Authority, Place, Switch};
use linchpin_hub_core::hub::oauth::{Progress, SignedIn};
use linchpin_hub_core::store::Status;
use serde_json::json;
use tokio::task::JoinSet;

use crate::fixture::{ADA, agent_of, person};
use crate::oauth_fixture::{agent, call, greet, led_away, sign_in, used, with, with_behaviour};

const LONG: Duration = Duration::from_secs(30);

/// Returns the numbers of token refreshes and of requests to the server.
fn asked(authority: &Authority) -> (usize, usize) {
    let seen = authority.seen();
    let resource = seen.requests.iter().filter(|request| request.place == Place::Resource).count();
    (seen.grants("refresh_token").count(), resource)
}

#[tokio::test]
async fn the_first_to_sign_in_sees_the_tools() {
    let (stage, authority) = with("per-agent").await;
    let (one, two) = (agent(&stage, "One").await, agent(&stage, "Two").await);
    let server = stage.hub.server(person(ADA), "guarded").await.unwrap();
    assert_eq!((server.tools, server.last_synced), (0, None));
    assert_eq!(sign_in(&stage, &authority, Some(agent_of(one))).await, Progress::Done);
    let server = stage.hub.server(person(ADA), "guarded").await.unwrap();
    assert_eq!((server.tools, server.error), (2, None), "the sync is automatic");
    let before = used(&authority).len();
    assert_eq!(sign_in(&stage, &authority, Some(agent_of(two))).await, Progress::Done);
    assert_eq!((before, greet(&stage, one).await.status), (1, Status::Success));
}

#[tokio::test]
async fn a_first_look_that_fails_is_shown_and_breaks_nothing() {
    let (stage, authority) = with("shared").await;
    let mut watching = stage.hub.events().watch(ADA, None);
    let (query, proof) = led_away(&stage.hub, &authority, None).await;
    // From now on the server rejects every request.
    let spoiled = json!({ "headers": { "Origin": "http://stranger.example" } });
    stage.hub.update_server(person(ADA), "guarded", spoiled).await.unwrap();
    let back = stage.hub.return_from_sign_in(&query, &proof).await.unwrap();
    assert_eq!(back.progress, Progress::Done);
    let error = back.sync_error.unwrap();
    assert!(error.starts_with("`guarded`"), "{error}");
    let server = stage.hub.server(person(ADA), "guarded").await.unwrap();
    assert_eq!(server.error, Some(error.clone()));
    let told = async {
        loop {
            let event = watching.next().await.unwrap();
            if event.kind == "sign_in" {
                return event;
            }
        }
    };
    let event = tokio::time::timeout(LONG, told).await.unwrap();
    assert_eq!((&event.body["status"], &event.body["sync_error"]), (&json!("done"), &json!(error)));
    stage.hub.update_server(person(ADA), "guarded", json!({ "headers": {} })).await.unwrap();
    stage.hub.sync_server(person(ADA), "guarded", None).await.unwrap();
    assert_eq!(greet(&stage, person(ADA)).await.status, Status::Success);
}

#[tokio::test]
async fn a_grant_that_was_revoked_is_tried_once_and_others_go_on() {
    let (stage, authority) = with("per-agent").await;
    let (one, two) = (agent(&stage, "One").await, agent(&stage, "Two").await);
    assert_eq!(sign_in(&stage, &authority, Some(agent_of(one))).await, Progress::Done);
    assert_eq!(greet(&stage, one).await.status, Status::Success);
    authority.revoke();
    assert_eq!(sign_in(&stage, &authority, Some(agent_of(two))).await, Progress::Done);
    let says = "the sign-in to `guarded` has expired or was revoked: sign in again with `linchpin server sign-in guarded \
                --agent \"One\"`";
    let mut calls = JoinSet::new();
    for _ in 0..8 {
        let hub = stage.hub.clone();
        calls.spawn(async move { call(&hub, one, "greet").await });
    }
    for failed in calls.join_all().await {
        assert_eq!(failed.status, Status::Error);
        assert!(failed.error.as_ref().unwrap().contains(says), "{failed:?}");
    }
    let before = asked(&authority);
    assert_eq!(before.0, 1, "a refresh token is used once");
    for _ in 0..5 {
        assert_eq!(greet(&stage, one).await.status, Status::Error);
    }
    assert_eq!(asked(&authority), before, "no further requests");
    assert_eq!(greet(&stage, two).await.status, Status::Success);
    let standing = stage.hub.standing(person(ADA), "guarded", Some(agent_of(one))).await.unwrap();
    assert_eq!((standing.signed_in, standing.advice.as_deref()), (SignedIn::Again, Some(says)));
    let standing = stage.hub.standing(person(ADA), "guarded", Some(agent_of(two))).await.unwrap();
    assert_eq!(standing.signed_in, SignedIn::Yes);
    assert_eq!(sign_in(&stage, &authority, Some(agent_of(one))).await, Progress::Done);
    for agent in [one, two] {
        assert_eq!(greet(&stage, agent).await.status, Status::Success);
    }
}

#[tokio::test]
async fn a_server_that_takes_not_even_a_fresh_token_is_left_alone() {
    let (stage, authority) = with("shared").await;
    assert_eq!(sign_in(&stage, &authority, None).await, Progress::Done);
    authority.behave(Authority::honest().with(Switch::UnauthorizedForever));
    for _ in 0..5 {
        let failed = greet(&stage, person(ADA)).await;
        assert!(
            failed.error.as_ref().unwrap().contains("sign in again with `linchpin server sign-in guarded`")
        );
    }
    assert_eq!(asked(&authority).0, 1);
    // A restarted hub knows it, too.
    let other = crate::fixture::another(&stage.place, stage.clock.clone(), stage.store.clone());
    let before = asked(&authority);
    assert_eq!(call(&other, person(ADA), "greet").await.status, Status::Error);
    assert_eq!(asked(&authority), before);
    authority.behave(Authority::honest());
    assert_eq!(sign_in(&stage, &authority, None).await, Progress::Done);
    assert_eq!(greet(&stage, person(ADA)).await.status, Status::Success);
}

#[tokio::test]
async fn an_authority_that_is_down_costs_nobody_the_sign_in() {
    let (stage, authority) = with("shared").await;
    assert_eq!(sign_in(&stage, &authority, None).await, Progress::Done);
    authority.behave(Authority::honest().with(Switch::TokenHtmlError));
    authority.expire_tokens();
    assert_eq!(greet(&stage, person(ADA)).await.status, Status::Error);
    let standing = stage.hub.standing(person(ADA), "guarded", None).await.unwrap();
    assert_eq!(standing.signed_in, SignedIn::Yes, "{standing:?}");
    authority.behave(Authority::honest());
    stage.clock.turn(2); // the backoff has elapsed
    assert_eq!(greet(&stage, person(ADA)).await.status, Status::Success);
}

#[tokio::test]
async fn more_is_asked_for_when_somebody_signs_in_again() {
    let (stage, authority) = with("shared").await;
    assert_eq!(sign_in(&stage, &authority, None).await, Progress::Done);
    let first = used(&authority);
    for _ in 0..5 {
        let failed = call(&stage.hub, person(ADA), "write").await;
        assert_eq!(failed.status, Status::Error);
        let error = failed.error.unwrap();
        let says =
            "`guarded` requires the scope `write`: sign in again with `linchpin server sign-in guarded`";
        assert!(error.contains(says), "{error}");
        assert_eq!(greet(&stage, person(ADA)).await.status, Status::Success, "the rest works");
    }
    assert_eq!((asked(&authority).0, authority.seen().authorizations), (0, 1));
    let standing = stage.hub.standing(person(ADA), "guarded", None).await.unwrap();
    assert_eq!((standing.signed_in, &*standing.wanted), (SignedIn::Yes, &["write".to_owned()][..]));

    // An abandoned or denied sign-in does not affect the grant.
    let (query, proof) = led_away(&stage.hub, &authority, None).await;
    let brought = query.split('&').find(|pair| pair.starts_with("state=")).unwrap();
    let iss = query.split('&').find(|pair| pair.starts_with("iss=")).unwrap();
    let no = format!("error=access_denied&{brought}&{iss}");
    let denied = stage.hub.return_from_sign_in(&no, &proof).await.unwrap();
    assert!(matches!(denied.progress, Progress::Failed { .. }), "{denied:?}");
    assert_eq!(greet(&stage, person(ADA)).await.status, Status::Success);
    assert_eq!(used(&authority), first, "the same grant");

    let begun = stage.hub.begin_sign_in(person(ADA), "guarded", None).await.unwrap();
    let (url, proof) = stage.hub.leave_to_sign_in(person(ADA), &begun.id).await.unwrap();
    let scope = url.split('&').find_map(|pair| pair.strip_prefix("scope=")).unwrap();
    assert!(scope.contains("read") && scope.contains("write"), "{scope}");
    let back = authority.approve(&url).await.unwrap();
    let query = back.url.split_once('?').unwrap().1;
    assert_eq!(stage.hub.return_from_sign_in(query, &proof).await.unwrap().progress, Progress::Done);
    for tool in ["greet", "write"] {
        assert_eq!(call(&stage.hub, person(ADA), tool).await.status, Status::Success);
    }
    let standing = stage.hub.standing(person(ADA), "guarded", None).await.unwrap();
    assert_eq!((standing.advice, standing.wanted.len()), (None, 0));
}

#[tokio::test]
async fn too_few_scopes_are_no_refusal() {
    let silent = Authority::honest().with(Switch::ChallengeMissing);
    let (stage, authority) = with_behaviour("shared", silent).await;
    let form = json!({ "authentication": { "type": "oauth", "scopes": ["write"] } });
    stage.hub.update_server(person(ADA), "guarded", form).await.unwrap();
    let (query, proof) = led_away(&stage.hub, &authority, None).await;
    authority.behave(Authority::honest());
    let back = stage.hub.return_from_sign_in(&query, &proof).await.unwrap();
    assert_eq!(back.progress, Progress::Done);
    let standing = stage.hub.standing(person(ADA), "guarded", None).await.unwrap();
    assert_eq!((standing.signed_in, &*standing.wanted), (SignedIn::Yes, &["read".to_owned()][..]));
    assert_eq!(sign_in(&stage, &authority, None).await, Progress::Done);
    for tool in ["greet", "write"] {
        assert_eq!(call(&stage.hub, person(ADA), tool).await.status, Status::Success);
    }
}

#[tokio::test]
async fn a_scope_that_cannot_be_had_is_not_asked_for_again() {
    let (stage, authority) = with("shared").await;
    assert_eq!(sign_in(&stage, &authority, None).await, Progress::Done);
    assert_eq!(call(&stage.hub, person(ADA), "write").await.status, Status::Error);
    let (query, proof) = led_away(&stage.hub, &authority, None).await;
    let brought = query.split('&').filter(|pair| pair.starts_with("state=") || pair.starts_with("iss="));
    let no = brought.fold("error=invalid_scope".to_owned(), |no, pair| format!("{no}&{pair}"));
    let back = stage.hub.return_from_sign_in(&no, &proof).await.unwrap();
    let Progress::Failed { error } = back.progress else { panic!("{back:?}") };
    assert!(error.contains("`invalid_scope`") && error.contains("are not requested any more"), "{error}");
    let standing = stage.hub.standing(person(ADA), "guarded", None).await.unwrap();
    assert_eq!((standing.signed_in, standing.wanted.len()), (SignedIn::Yes, 0));
}
