//! Signing in and out.

use super::*;

#[tokio::test]
async fn whatever_is_wrong_the_answer_is_the_same() {
    let stage = Stage::open().await;
    let carol = stage.person(ADA, "carol", PASSWORD).await;
    let signed_in = stage.hub.sign_in(LOCAL, " carol ", &PASSWORD.into()).await.unwrap();
    assert_eq!((signed_in.scope, signed_in.user.id), (scope(LOCAL, carol), carol));
    let again = stage.hub.sign_in(LOCAL, "carol", &PASSWORD.into()).await.unwrap();
    assert_ne!(again.cookie, signed_in.cookie, "each sign-in is another session");
    assert_eq!(stage.who(&signed_in.cookie).await, stage.who(&again.cookie).await);
    let mut errors = Vec::new();
    for (tenant, name, password) in [
        (LOCAL, "carol", "canary-password-of-adb"),
        (LOCAL, "carol", ""),
        (LOCAL, "local", PASSWORD),
        (LOCAL, "local", ""),
        (LOCAL, "nobody", PASSWORD),
        (LOCAL, "", PASSWORD),
        (OTHER, "carol", PASSWORD),
        (OTHER, "bob", PASSWORD),
    ] {
        errors.push(stage.hub.sign_in(tenant, name, &password.into()).await.unwrap_err());
    }
    assert_eq!((errors[0].kind(), errors[0].code()), (linchpin_hub_core::Kind::Unauthorized, "unauthorized"));
    errors.dedup();
    assert_eq!(errors.len(), 1);
}

#[tokio::test]
async fn who_fails_again_and_again_waits_whether_there_is_such_a_person_or_not() {
    let stage = Arc::new(Stage::open().await);
    stage.person(ADA, "carol", PASSWORD).await;
    for name in ["carol", "nobody"] {
        // All at once: what is under way counts.
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..12 {
            let stage = stage.clone();
            all.spawn(async move { code(stage.hub.sign_in(LOCAL, name, &"wrong password".into()).await) });
        }
        let mut codes = all.join_all().await;
        codes.sort_unstable();
        assert_eq!(codes, [["too_many_tries"; 7].as_slice(), &["unauthorized"; 5]].concat(), "{name}");
    }
    let error = stage.hub.sign_in(LOCAL, "carol", &PASSWORD.into()).await.unwrap_err();
    assert_eq!((error.code(), error.kind()), ("too_many_tries", linchpin_hub_core::Kind::Exhausted));
    assert_eq!(error.retry_after(), Some(Duration::from_secs(1)));
    assert!(error.message().ends_with("wait 1 s"), "{error}");
    stage.pass(1);
    assert_eq!(code(stage.hub.sign_in(LOCAL, "carol", &PASSWORD.into()).await), "done");
    assert_eq!(code(stage.hub.sign_in(LOCAL, "carol", &"wrong password".into()).await), "unauthorized");
    assert_eq!(code(stage.hub.sign_in(LOCAL, "nobody", &PASSWORD.into()).await), "unauthorized");
    assert_eq!(code(stage.hub.sign_in(LOCAL, "nobody", &PASSWORD.into()).await), "too_many_tries");
}

#[tokio::test]
async fn a_session_ends_unused_and_in_the_end() {
    let stage = Stage::open().await;
    stage.person(ADA, "carol", PASSWORD).await;
    let idle = stage.hub.sign_in(LOCAL, "carol", &PASSWORD.into()).await.unwrap().cookie;
    stage.pass(30 * 60 - 1);
    assert!(stage.who(&idle).await.is_some());
    // What goes on by itself is no use.
    stage.pass(20 * 60);
    assert!(stage.hub.session_of(&idle).await.unwrap().is_some());
    stage.pass(10 * 60);
    assert_eq!((stage.hub.session_of(&idle).await.unwrap(), stage.who(&idle).await), (None, None));
    let busy = stage.hub.sign_in(LOCAL, "carol", &PASSWORD.into()).await.unwrap().cookie;
    let sessions =
        stage.documents(LOCAL).await.into_iter().filter(|text| text.contains("kind: Session")).count();
    assert_eq!(sessions, 1, "what is over is forgotten");
    for _ in 0..35 {
        stage.pass(20 * 60);
        assert!(stage.who(&busy).await.is_some());
    }
    stage.pass(20 * 60 - 1);
    assert!(stage.who(&busy).await.is_some());
    stage.pass(1);
    assert_eq!(stage.who(&busy).await, None, "12 hours are the most");
}

#[tokio::test]
async fn use_is_noted_once_a_minute_and_survives_a_restart() {
    let stage = Stage::open().await;
    let link = stage.hub.one_time().await.unwrap().unwrap();
    let cookie = stage.hub.sign_in_once(&link).await.unwrap().cookie;
    let versions = async |stage: &Stage| {
        let page = stage
            .store
            .documents(LOCAL, Kind::Session, None, &Paging { after: None, limit: 9 })
            .await
            .unwrap();
        page.items.iter().map(|item| item.version).collect::<Vec<_>>()
    };
    for seconds in [0, 30, 29] {
        stage.pass(seconds);
        assert_eq!(stage.who(&cookie).await, Some(ADA));
    }
    assert_eq!(versions(&stage).await, [1]);
    stage.pass(1);
    for _ in 0..3 {
        assert_eq!(stage.who(&cookie).await, Some(ADA));
    }
    assert_eq!(versions(&stage).await, [2]);
    let stage = stage.restart().await;
    assert_eq!(stage.who(&cookie).await, Some(ADA));
}

#[tokio::test]
async fn signing_out_ends_one_session() {
    let stage = Stage::open().await;
    stage.person(ADA, "carol", PASSWORD).await;
    let one = stage.hub.sign_in(LOCAL, "carol", &PASSWORD.into()).await.unwrap();
    let other = stage.hub.sign_in(LOCAL, "carol", &PASSWORD.into()).await.unwrap();
    stage.hub.sign_out(&one.cookie).await.unwrap();
    stage.hub.sign_out(&one.cookie).await.unwrap();
    stage.hub.sign_out(&"nothing".into()).await.unwrap();
    assert_eq!(stage.who(&one.cookie).await, None);
    assert_eq!(stage.who(&other.cookie).await, Some(other.scope));
    assert_eq!(stage.who(&other.csrf).await, None, "one secret is not the other");
    let ended = stage.actions(LOCAL).await.into_iter().filter(|action| action == "session.ended").count();
    assert_eq!(ended, 1);
}

#[tokio::test]
async fn another_password_ends_the_other_sessions() {
    let stage = Stage::open().await;
    let carol = stage.person(ADA, "carol", PASSWORD).await;
    stage.person(ADA, "dora", PASSWORD).await;
    let sign_in = async |name: &str| stage.hub.sign_in(LOCAL, name, &PASSWORD.into()).await.unwrap();
    let (kept, other, of_dora) = (sign_in("carol").await, sign_in("carol").await, sign_in("dora").await);
    let new: Secret = "another password".into();
    stage.hub.set_password(kept.scope, carol, &new, Some(&kept.cookie)).await.unwrap();
    assert_eq!(stage.who(&kept.cookie).await, Some(kept.scope));
    assert_eq!(stage.who(&other.cookie).await, None);
    assert_eq!(stage.who(&of_dora.cookie).await, Some(of_dora.scope));
    assert_eq!(code(stage.hub.sign_in(LOCAL, "carol", &PASSWORD.into()).await), "unauthorized");
    let third = stage.hub.sign_in(LOCAL, "carol", &new).await.unwrap();
    // The cookie of somebody else keeps nothing.
    stage.hub.set_password(of_dora.scope, carol, &PASSWORD.into(), Some(&of_dora.cookie)).await.unwrap();
    assert_eq!((stage.who(&kept.cookie).await, stage.who(&third.cookie).await), (None, None));
    assert_eq!(stage.who(&of_dora.cookie).await, Some(of_dora.scope));
}
