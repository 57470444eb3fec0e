//! Access of other tenants and of agents is denied.

use linchpin_hub_core::events::NewEvent;
use linchpin_hub_core::hub::agents::AgentFilter;

use super::*;

/// Tries all operations on a user and an agent, and returns the codes.
async fn try_all_operations(stage: &Stage, actor: Actor, user: UserId, agent: AgentId) -> Vec<&'static str> {
    let (hub, owner) = (&stage.hub, Subject::Agent(agent));
    let token = hub.identity().tokens(ADA, owner).await.unwrap()[0].id;
    vec![
        code(hub.identity().set_password(actor, user, &PASSWORD.into(), ChangedBy::Operator).await),
        code(hub.identity().remove_user(actor, user).await),
        code(hub.identity().tokens(actor, Subject::User(user)).await),
        code(hub.identity().tokens(actor, owner).await),
        code(hub.identity().issue_token(actor, owner, "mine", None).await),
        code(hub.identity().revoke_token(actor, owner, token).await),
        code(hub.identity().agent(actor, agent).await),
        code(hub.identity().update_agent(actor, agent, json!({"enabled": false})).await),
        code(hub.identity().remove_agent(actor, agent).await),
    ]
}

#[tokio::test]
async fn another_tenant_sees_changes_and_removes_nothing() {
    let stage = Stage::open().await;
    let carol = stage.add_user(ADA, "carol", PASSWORD).await;
    let agent = stage.agent(ADA, "helper").await;
    stage.hub.identity().issue_token(ADA, Subject::Agent(agent), "a", None).await.unwrap();
    let own = stage.hub.identity().log_in(LOCAL, "carol", &PASSWORD.into(), &local_browser()).await.unwrap();
    let before = (stage.documents(LOCAL).await, stage.actions(LOCAL).await);
    let events = stage.hub.events();
    let mut of_ada = events.subscribe(LOCAL, None);
    for user in [carol, LOCAL_USER] {
        assert_eq!(try_all_operations(&stage, BOB, user, agent).await, ["not_found"; 9]);
    }
    // The same user id in another tenant is another user.
    assert_eq!(try_all_operations(&stage, scope(OTHER, carol), carol, agent).await, ["not_found"; 9]);
    let users = stage.hub.identity().users(BOB).await.unwrap();
    assert_eq!(users.iter().map(|user| &*user.name).collect::<Vec<_>>(), ["bob"]);
    let page = PageRequest { after: None, limit: 100 };
    assert_eq!(stage.hub.identity().agents(BOB, &AgentFilter::default(), &page).await.unwrap().items, []);
    // A password change ends nothing of another tenant.
    stage
        .hub
        .identity()
        .set_password(BOB, UserId::from_u128(7), &PASSWORD.into(), ChangedBy::Operator)
        .await
        .unwrap();
    assert_eq!((stage.documents(LOCAL).await, stage.actions(LOCAL).await), before);
    events.publish(LOCAL, NewEvent::new("last", json!({})));
    assert_eq!(next(&mut of_ada).await.kind, "last", "nothing happened to the tenant");
    assert_eq!(stage.session_scope(&own.cookie).await, Some(own.actor));
}

#[tokio::test]
async fn what_proves_who_asks_proves_it_for_one_tenant() {
    let stage = Stage::open().await;
    stage.add_user(ADA, "same", PASSWORD).await;
    stage.add_user(BOB, "same", "another password").await;
    let mut seen = Vec::new();
    for (actor, password) in [(ADA, PASSWORD), (BOB, "another password")] {
        let tenant = actor.tenant();
        let signed_in =
            stage.hub.identity().log_in(tenant, "same", &password.into(), &local_browser()).await.unwrap();
        assert_eq!(stage.session_scope(&signed_in.cookie).await.unwrap().tenant(), tenant);
        let agent = stage.agent(actor, "same").await;
        for owner in [Subject::Agent(agent), actor.subject()] {
            let (token, _) = stage.hub.identity().issue_token(actor, owner, "same", None).await.unwrap();
            let found = stage.hub.identity().authenticate(token.expose()).await.unwrap();
            assert_eq!(found, Actor::new(tenant, owner));
            seen.push(found);
        }
        let wrong = if actor == ADA { "another password" } else { PASSWORD };
        assert_eq!(
            code(stage.hub.identity().log_in(tenant, "same", &wrong.into(), &local_browser()).await),
            "unauthorized"
        );
    }
    assert_eq!(seen.len(), 4);
    // The backoff of one tenant does not affect the other.
    for _ in 0..5 {
        let _ = stage.hub.identity().log_in(OTHER, "same", &PASSWORD.into(), &local_browser()).await;
    }
    assert_eq!(
        code(stage.hub.identity().log_in(OTHER, "same", &"another password".into(), &local_browser()).await),
        "too_many_login_attempts"
    );
    assert_eq!(
        code(stage.hub.identity().log_in(LOCAL, "same", &PASSWORD.into(), &local_browser()).await),
        "done"
    );
}

#[tokio::test]
async fn only_a_person_does_any_of_it() {
    let stage = Stage::open().await;
    let agent = stage.agent(ADA, "helper").await;
    stage.hub.identity().issue_token(ADA, Subject::Agent(agent), "a", None).await.unwrap();
    let before = (stage.documents(LOCAL).await, stage.actions(LOCAL).await);
    for subject in [Subject::Agent(agent), Subject::Hub] {
        let actor = Actor::new(LOCAL, subject);
        assert_eq!(try_all_operations(&stage, actor, LOCAL_USER, agent).await, ["user_required"; 9]);
        assert_eq!(code(stage.hub.identity().users(actor).await), "user_required");
        assert_eq!(code(stage.hub.identity().add_user(actor, "carol").await), "user_required");
        assert_eq!(
            code(stage.hub.identity().add_agent(actor, json!({"name": "other"})).await),
            "user_required"
        );
        let page = PageRequest { after: None, limit: 100 };
        assert_eq!(
            code(stage.hub.identity().agents(actor, &AgentFilter::default(), &page).await),
            "user_required"
        );
    }
    assert_eq!((stage.documents(LOCAL).await, stage.actions(LOCAL).await), before);
}
