//! Access of other tenants and of agents is denied.

use linchpin_hub_core::events::Told;
use linchpin_hub_core::hub::agents::AgentFilter;

use super::*;

/// Tries all operations on a user and an agent, and returns the codes.
async fn everything(stage: &Stage, scope: Scope, user: UserId, agent: AgentId) -> Vec<&'static str> {
    let (hub, owner) = (&stage.hub, Subject::Agent(agent));
    let token = hub.tokens(ADA, owner).await.unwrap()[0].id;
    vec![
        code(hub.set_password(scope, user, &PASSWORD.into(), ChangedBy::Operator).await),
        code(hub.remove_user(scope, user).await),
        code(hub.tokens(scope, Subject::User(user)).await),
        code(hub.tokens(scope, owner).await),
        code(hub.issue_token(scope, owner, "mine", None).await),
        code(hub.revoke_token(scope, owner, token).await),
        code(hub.agent(scope, agent).await),
        code(hub.update_agent(scope, agent, json!({"enabled": false})).await),
        code(hub.remove_agent(scope, agent).await),
    ]
}

#[tokio::test]
async fn another_tenant_sees_changes_and_removes_nothing() {
    let stage = Stage::open().await;
    let carol = stage.person(ADA, "carol", PASSWORD).await;
    let agent = stage.agent(ADA, "helper").await;
    stage.hub.issue_token(ADA, Subject::Agent(agent), "a", None).await.unwrap();
    let own = stage.hub.sign_in(LOCAL, "carol", &PASSWORD.into(), &here()).await.unwrap();
    let before = (stage.documents(LOCAL).await, stage.actions(LOCAL).await);
    let events = stage.hub.events();
    let mut of_ada = events.watch(LOCAL, None);
    for user in [carol, LOCAL_USER] {
        assert_eq!(everything(&stage, BOB, user, agent).await, ["not_found"; 9]);
    }
    // The same user id in another tenant is another user.
    assert_eq!(everything(&stage, scope(OTHER, carol), carol, agent).await, ["not_found"; 9]);
    let users = stage.hub.users(BOB).await.unwrap();
    assert_eq!(users.iter().map(|user| &*user.name).collect::<Vec<_>>(), ["bob"]);
    let page = Paging { after: None, limit: 100 };
    assert_eq!(stage.hub.agents(BOB, &AgentFilter::default(), &page).await.unwrap().items, []);
    // A password change ends nothing of another tenant.
    stage.hub.set_password(BOB, UserId::fixed(7), &PASSWORD.into(), ChangedBy::Operator).await.unwrap();
    assert_eq!((stage.documents(LOCAL).await, stage.actions(LOCAL).await), before);
    events.publish(LOCAL, Told::new("last", json!({})));
    assert_eq!(next(&mut of_ada).await.kind, "last", "nothing happened to the tenant");
    assert_eq!(stage.who(&own.cookie).await, Some(own.scope));
}

#[tokio::test]
async fn what_proves_who_asks_proves_it_for_one_tenant() {
    let stage = Stage::open().await;
    stage.person(ADA, "same", PASSWORD).await;
    stage.person(BOB, "same", "another password").await;
    let mut seen = Vec::new();
    for (scope, password) in [(ADA, PASSWORD), (BOB, "another password")] {
        let tenant = scope.tenant();
        let signed_in = stage.hub.sign_in(tenant, "same", &password.into(), &here()).await.unwrap();
        assert_eq!(stage.who(&signed_in.cookie).await.unwrap().tenant(), tenant);
        let agent = stage.agent(scope, "same").await;
        for owner in [Subject::Agent(agent), scope.subject()] {
            let (token, _) = stage.hub.issue_token(scope, owner, "same", None).await.unwrap();
            let found = stage.hub.authenticate(token.expose()).await.unwrap();
            assert_eq!(found, Scope::new(tenant, owner));
            seen.push(found);
        }
        let wrong = if scope == ADA { "another password" } else { PASSWORD };
        assert_eq!(code(stage.hub.sign_in(tenant, "same", &wrong.into(), &here()).await), "unauthorized");
    }
    assert_eq!(seen.len(), 4);
    // The backoff of one tenant does not affect the other.
    for _ in 0..5 {
        let _ = stage.hub.sign_in(OTHER, "same", &PASSWORD.into(), &here()).await;
    }
    assert_eq!(
        code(stage.hub.sign_in(OTHER, "same", &"another password".into(), &here()).await),
        "too_many_tries"
    );
    assert_eq!(code(stage.hub.sign_in(LOCAL, "same", &PASSWORD.into(), &here()).await), "done");
}

#[tokio::test]
async fn only_a_person_does_any_of_it() {
    let stage = Stage::open().await;
    let agent = stage.agent(ADA, "helper").await;
    stage.hub.issue_token(ADA, Subject::Agent(agent), "a", None).await.unwrap();
    let before = (stage.documents(LOCAL).await, stage.actions(LOCAL).await);
    for subject in [Subject::Agent(agent), Subject::Hub] {
        let scope = Scope::new(LOCAL, subject);
        assert_eq!(everything(&stage, scope, LOCAL_USER, agent).await, ["person_needed"; 9]);
        assert_eq!(code(stage.hub.users(scope).await), "person_needed");
        assert_eq!(code(stage.hub.add_user(scope, "carol").await), "person_needed");
        assert_eq!(code(stage.hub.add_agent(scope, json!({"name": "other"})).await), "person_needed");
        let page = Paging { after: None, limit: 100 };
        assert_eq!(code(stage.hub.agents(scope, &AgentFilter::default(), &page).await), "person_needed");
    }
    assert_eq!((stage.documents(LOCAL).await, stage.actions(LOCAL).await), before);
}
