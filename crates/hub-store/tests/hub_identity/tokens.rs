//! API tokens of agents and users.

use linchpin_hub_core::digest::Digest;

use super::*;

#[tokio::test]
async fn a_token_speaks_for_its_owner() {
    let stage = Stage::open().await;
    let agent = stage.agent(ADA, "helper").await;
    let mut events = stage.hub.events().subscribe(LOCAL, None);
    let (of_agent, view) =
        stage.hub.identity().issue_token(ADA, Subject::Agent(agent), " laptop ", None).await.unwrap();
    assert_eq!(next(&mut events).await.kind, "token");
    let (own, _) =
        stage.hub.identity().issue_token(ADA, Subject::User(LOCAL_USER), "script", Some(1)).await.unwrap();
    assert_eq!((&*view.name, view.owner), ("laptop", format!("agent:{agent}")));
    assert_eq!(view.expires.duration_since(view.created).as_hours(), 90 * 24);
    let as_agent = Actor::new(LOCAL, Subject::Agent(agent));
    assert_eq!(stage.hub.identity().authenticate(of_agent.expose()).await, Ok(as_agent));
    assert_eq!(stage.hub.identity().authenticate(own.expose()).await, Ok(ADA));
    let names = async |owner| {
        let all = stage.hub.identity().tokens(ADA, owner).await.unwrap();
        all.into_iter().map(|token| token.name).collect::<Vec<_>>()
    };
    assert_eq!(names(Subject::Agent(agent)).await, ["laptop"]);
    assert_eq!(names(ADA.subject()).await, ["script"]);
    assert_eq!(stage.actions(LOCAL).await, ["user.added", "agent.added", "token.issued", "token.issued"]);
    let stage = stage.restart().await;
    assert_eq!(stage.hub.identity().authenticate(of_agent.expose()).await, Ok(as_agent));
}

#[tokio::test]
async fn every_field_out_of_range() {
    let stage = Stage::open().await;
    let agent = Subject::Agent(stage.agent(ADA, "helper").await);
    for (name, days, expected) in [
        ("", None, "name"),
        (" ", None, "name"),
        (&*"n".repeat(101), None, "name"),
        ("a\tb", None, "name"),
        ("a", Some(0), "days"),
        ("a", Some(3_651), "days"),
    ] {
        let issued = stage.hub.identity().issue_token(ADA, agent, name, days).await;
        assert_eq!(field(issued).as_deref(), Some(expected), "{name} {days:?}");
    }
    for (name, days) in [("a", 1), (&*"n".repeat(100), 3_650)] {
        assert_eq!(code(stage.hub.identity().issue_token(ADA, agent, name, Some(days)).await), "done");
    }
    assert_eq!(
        field(stage.hub.identity().issue_token(ADA, Subject::Hub, "a", None).await).as_deref(),
        Some("owner")
    );
    let missing = Subject::Agent(AgentId::from_u128(9));
    assert_eq!(code(stage.hub.identity().issue_token(ADA, missing, "a", None).await), "not_found");
    assert_eq!(code(stage.hub.identity().tokens(ADA, missing).await), "not_found");
    let carol = stage.hub.identity().add_user(ADA, "carol").await.unwrap().id;
    let of_carol = stage.hub.identity().issue_token(ADA, Subject::User(carol), "a", None).await;
    assert_eq!(code(of_carol), "forbidden", "no user acts as another");
}

/// Forges a token of valid form.
fn forge_token(id: impl std::fmt::Display) -> String {
    let body = format!("lp_{id}_{}", "0".repeat(64));
    let check = Digest::of("linchpin token check").part(&body).finish().to_string();
    format!("{body}_{}", &check[..8])
}

#[tokio::test]
async fn whatever_is_wrong_with_a_token_the_answer_is_the_same() {
    let stage = Stage::open().await;
    let (kept, off, gone) =
        (stage.agent(ADA, "kept").await, stage.agent(ADA, "off").await, stage.agent(ADA, "gone").await);
    let issue = async |agent, days| {
        let (secret, view) =
            stage.hub.identity().issue_token(ADA, Subject::Agent(agent), "a", days).await.unwrap();
        (secret.expose().to_owned(), view.id)
    };
    let ((short, _), (good, id), (revoked, revoked_id)) =
        (issue(kept, Some(1)).await, issue(kept, Some(2)).await, issue(kept, None).await);
    let ((of_off, _), (of_gone, _)) = (issue(off, None).await, issue(gone, None).await);
    stage.advance(24 * 60 * 60 - 1);
    for text in [&short, &good, &revoked, &of_off, &of_gone] {
        assert_eq!(code(stage.hub.identity().authenticate(text).await), "done");
    }
    let process = stage.hub.identity().process_token();
    let process_id = process.expose().split('_').nth(1).unwrap();
    stage.advance(1);
    let mut events = stage.hub.events().subscribe(LOCAL, None);
    for other in [Subject::Agent(gone), ADA.subject()] {
        assert_eq!(
            code(stage.hub.identity().revoke_token(ADA, other, revoked_id).await),
            "not_found",
            "the token belongs to another user"
        );
    }
    stage.hub.identity().revoke_token(ADA, Subject::Agent(kept), revoked_id).await.unwrap();
    let event = next(&mut events).await;
    assert_eq!((&*event.kind, &event.body["token"]), ("token", &json!(revoked_id)));
    stage.hub.identity().update_agent(ADA, off, json!({"enabled": false})).await.unwrap();
    stage.hub.identity().remove_agent(ADA, gone).await.unwrap();
    let mut errors = Vec::new();
    let shorter = &good[..good.len() - 1];
    let nothing = [
        "",
        "lp_",
        "Bearer x",
        "\u{0}",
        shorter,
        &forge_token("x"),
        &forge_token("00000000-0000-0000-0000-000000000009"),
    ];
    let (guessed, guessed_process) = (forge_token(id), forge_token(process_id));
    for text in [&short, &revoked, &of_off, &of_gone, &guessed, &guessed_process]
        .into_iter()
        .map(|text| &**text)
        .chain(nothing)
    {
        errors.push(stage.hub.identity().authenticate(text).await.expect_err(text));
    }
    assert_eq!(
        (errors[0].kind(), errors[0].code()),
        (linchpin_hub_core::ErrorKind::Unauthenticated, "unauthorized")
    );
    errors.dedup();
    assert_eq!(errors.len(), 1);
    assert_eq!(stage.hub.identity().authenticate(&good).await, Ok(Actor::new(LOCAL, Subject::Agent(kept))));
    // An agent that is enabled again has its tokens.
    stage.hub.identity().update_agent(ADA, off, json!({"enabled": true})).await.unwrap();
    assert_eq!(code(stage.hub.identity().authenticate(&of_off).await), "done");
    assert_eq!(
        code(stage.hub.identity().revoke_token(ADA, Subject::Agent(kept), revoked_id).await),
        "not_found"
    );
}

#[tokio::test]
async fn the_token_of_the_process_ends_with_it_and_is_kept_nowhere() {
    let stage = Stage::open().await;
    let before = stage.documents(LOCAL).await;
    let token = stage.hub.identity().process_token();
    assert_eq!(stage.hub.identity().authenticate(token.expose()).await, Ok(ADA));
    assert_eq!(stage.hub.identity().tokens(ADA, ADA.subject()).await.unwrap(), []);
    assert_eq!(stage.documents(LOCAL).await, before);
    let stage = stage.restart().await;
    assert_eq!(code(stage.hub.identity().authenticate(token.expose()).await), "unauthorized");
    assert_ne!(stage.hub.identity().process_token(), token);
}
