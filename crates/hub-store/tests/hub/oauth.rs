//! Servers with OAuth: a user signs in, for all agents or for one, and the tokens reach no other server.

use linchpin_hub_core::hub::oauth::SignInStatus;
use linchpin_hub_core::id::AgentId;
use linchpin_hub_core::store::CallStatus;
use linchpin_hub_core::{Actor, ErrorKind, Subject};
use serde_json::json;

use crate::fixture::{ADA, BOB, agent_of, local_user};
use crate::oauth_fixture::{agent, greet, oauth_stage, sign_in, used_tokens};

#[tokio::test]
async fn each_agent_signs_in_for_itself_and_one_leaves_without_the_other() {
    let (stage, authority) = oauth_stage("per-agent").await;
    let (one, two) = (agent(&stage, "One").await, agent(&stage, "Two").await);
    assert_eq!(sign_in(&stage, &authority, Some(agent_of(one))).await, SignInStatus::Done);
    stage.hub.registry().sync_server(local_user(ADA), "guarded", None).await.unwrap();
    assert_eq!(greet(&stage, one).await.status, CallStatus::Success);
    let first = used_tokens(&authority);
    let missing = greet(&stage, two).await;
    assert_eq!(missing.status, CallStatus::Error);
    assert!(missing.error.as_ref().unwrap().contains("linchpin server sign-in guarded"), "{missing:?}");
    assert_eq!(sign_in(&stage, &authority, Some(agent_of(two))).await, SignInStatus::Done);
    assert_eq!(greet(&stage, two).await.status, CallStatus::Success);
    assert_eq!((first.len(), used_tokens(&authority).len()), (1, 2), "each has its own token");

    let hops = stage.hub.upstream().trace(local_user(ADA), "guarded", Some(agent_of(two))).await.unwrap();
    let whats: Vec<_> = hops.iter().map(|hop| &*hop.purpose).collect();
    assert!(
        whats.contains(&"protected resource metadata")
            && whats.contains(&"sign-in of the user in the browser"),
        "{whats:?}"
    );
    let text = serde_json::to_string(&hops).unwrap();
    for token in used_tokens(&authority) {
        assert!(!text.contains(token.trim_start_matches("Bearer ")));
    }

    assert!(
        stage
            .hub
            .upstream()
            .sign_out_of_server(local_user(ADA), "guarded", Some(agent_of(one)))
            .await
            .unwrap()
    );
    assert_eq!(greet(&stage, one).await.status, CallStatus::Error);
    assert_eq!(greet(&stage, two).await.status, CallStatus::Success);
    let actions = stage.actions().await;
    for action in ["sign_in.finished", "grant.created", "grant.deleted"] {
        assert!(actions.iter().any(|known| known == action), "{action}: {actions:?}");
    }
    // The database contains no token in plain text.
    let kept = std::fs::read(stage.folder.path().join("hub.db")).unwrap();
    let journal = std::fs::read(stage.folder.path().join("hub.db-wal")).unwrap_or_default();
    for token in used_tokens(&authority) {
        let token = token.trim_start_matches("Bearer ").as_bytes();
        assert!(![&kept, &journal].iter().any(|bytes| bytes.windows(token.len()).any(|part| part == token)));
    }
}

#[tokio::test]
async fn one_sign_in_for_all_is_found_again_after_a_restart() {
    let (mut stage, authority) = oauth_stage("shared").await;
    assert_eq!(sign_in(&stage, &authority, None).await, SignInStatus::Done);
    stage.hub.registry().sync_server(local_user(ADA), "guarded", None).await.unwrap();
    let agent = agent(&stage, "Any").await;
    for actor in [local_user(ADA), agent] {
        assert_eq!(greet(&stage, actor).await.status, CallStatus::Success);
    }
    assert_eq!(used_tokens(&authority).len(), 1);
    (stage.hub, stage.store) = crate::fixture::open(&stage.folder, stage.clock.clone());
    assert_eq!(greet(&stage, agent).await.status, CallStatus::Success);
    assert_eq!(used_tokens(&authority).len(), 1, "no second sign-in was necessary");
    // A change of the URL deletes the grant.
    stage
        .hub
        .registry()
        .update_server(local_user(ADA), "guarded", json!({ "url": stage.upstream.url }))
        .await
        .unwrap();
    stage
        .hub
        .registry()
        .update_server(local_user(ADA), "guarded", json!({ "url": authority.mcp_url() }))
        .await
        .unwrap();
    assert_eq!(greet(&stage, agent).await.status, CallStatus::Error);
}

#[tokio::test]
async fn only_whoever_left_comes_back() {
    let (stage, authority) = oauth_stage("shared").await;
    let begun = stage.hub.upstream().start_sign_in(local_user(ADA), "guarded", None).await.unwrap();
    assert_eq!(begun.progress, SignInStatus::Waiting);
    for other in
        [local_user(BOB), Actor::new(ADA, Subject::User(linchpin_hub_core::id::UserId::from_u128(9)))]
    {
        assert_eq!(
            stage.hub.upstream().sign_in_redirect(other, &begun.id).await.unwrap_err().kind(),
            ErrorKind::NotFound
        );
        assert_eq!(
            stage.hub.upstream().sign_in_view(other, &begun.id).await.unwrap_err().kind(),
            ErrorKind::NotFound
        );
    }
    let (url, proof) = stage.hub.upstream().sign_in_redirect(local_user(ADA), &begun.id).await.unwrap();
    let back = authority.approve(&url).await.unwrap();
    let query = back.url.split_once('?').unwrap().1;
    for (query, proof) in
        [(query, ""), (query, "0"), ("", &*proof), ("state=&code=x", &proof), ("state=x", &proof)]
    {
        let error = stage.hub.complete_sign_in(query, proof).await.unwrap_err();
        assert_eq!(error.code(), "unknown_sign_in", "{query}");
    }
    assert_eq!(stage.hub.complete_sign_in(query, &proof).await.unwrap().progress, SignInStatus::Done);
    assert_eq!(stage.hub.complete_sign_in(query, &proof).await.unwrap_err().code(), "unknown_sign_in");
    assert_eq!(
        stage.hub.upstream().sign_in_redirect(local_user(ADA), &begun.id).await.unwrap_err().code(),
        "sign_in_finished"
    );
}

#[tokio::test]
async fn whose_it_is_must_fit() {
    let (stage, _authority) = oauth_stage("per-agent").await;
    let hub = &stage.hub;
    assert_eq!(
        hub.upstream().start_sign_in(local_user(ADA), "guarded", None).await.unwrap_err().field(),
        Some("agent")
    );
    let unknown_agent = Some(AgentId::from_u128(9));
    assert_eq!(
        hub.upstream().start_sign_in(local_user(ADA), "guarded", unknown_agent).await.unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert_eq!(
        hub.upstream().start_sign_in(local_user(ADA), "up", None).await.unwrap_err().code(),
        "not_oauth"
    );
    let agent = agent(&stage, "One").await;
    assert_eq!(
        hub.upstream().start_sign_in(agent, "guarded", None).await.unwrap_err().code(),
        "user_required"
    );
}
