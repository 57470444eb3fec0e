//! Login and logout.

use linchpin_hub_core::digest::Digest;

use super::*;

#[tokio::test]
async fn whatever_is_wrong_the_answer_is_the_same() {
    let stage = Stage::open().await;
    let carol = stage.add_user(ADA, "carol", PASSWORD).await;
    let signed_in =
        stage.hub.identity().log_in(LOCAL, " carol ", &PASSWORD.into(), &local_browser()).await.unwrap();
    assert_eq!((signed_in.actor, signed_in.user.id), (scope(LOCAL, carol), carol));
    let again =
        stage.hub.identity().log_in(LOCAL, "carol", &PASSWORD.into(), &local_browser()).await.unwrap();
    assert_ne!(again.cookie, signed_in.cookie, "each login creates a session");
    assert_eq!(stage.session_scope(&signed_in.cookie).await, stage.session_scope(&again.cookie).await);
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
        errors.push(
            stage.hub.identity().log_in(tenant, name, &password.into(), &local_browser()).await.unwrap_err(),
        );
    }
    assert_eq!(
        (errors[0].kind(), errors[0].code()),
        (linchpin_hub_core::ErrorKind::Unauthenticated, "unauthorized")
    );
    errors.dedup();
    assert_eq!(errors.len(), 1);
}

#[tokio::test]
async fn who_fails_again_and_again_waits_whether_there_is_such_a_person_or_not() {
    let stage = Arc::new(Stage::open().await);
    stage.add_user(ADA, "carol", PASSWORD).await;
    for name in ["carol", "nobody"] {
        // Concurrent attempts: running ones count, too.
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..12 {
            let stage = stage.clone();
            all.spawn(async move {
                code(
                    stage
                        .hub
                        .identity()
                        .log_in(LOCAL, name, &"wrong password".into(), &local_browser())
                        .await,
                )
            });
        }
        let mut codes = all.join_all().await;
        codes.sort_unstable();
        assert_eq!(
            codes,
            [["too_many_login_attempts"; 7].as_slice(), &["unauthorized"; 5]].concat(),
            "{name}"
        );
    }
    let error =
        stage.hub.identity().log_in(LOCAL, "carol", &PASSWORD.into(), &local_browser()).await.unwrap_err();
    assert_eq!(
        (error.code(), error.kind()),
        ("too_many_login_attempts", linchpin_hub_core::ErrorKind::LimitExceeded)
    );
    assert_eq!(error.retry_after(), Some(Duration::from_secs(1)));
    assert!(error.message().ends_with("try again in 1 s"), "{error}");
    stage.advance(1);
    assert_eq!(
        code(stage.hub.identity().log_in(LOCAL, "carol", &PASSWORD.into(), &local_browser()).await),
        "done"
    );
    assert_eq!(
        code(stage.hub.identity().log_in(LOCAL, "carol", &"wrong password".into(), &local_browser()).await),
        "unauthorized"
    );
    assert_eq!(
        code(stage.hub.identity().log_in(LOCAL, "nobody", &PASSWORD.into(), &local_browser()).await),
        "unauthorized"
    );
    assert_eq!(
        code(stage.hub.identity().log_in(LOCAL, "nobody", &PASSWORD.into(), &local_browser()).await),
        "too_many_login_attempts"
    );
}

#[tokio::test]
async fn a_session_ends_unused_and_in_the_end() {
    let stage = Stage::open().await;
    stage.add_user(ADA, "carol", PASSWORD).await;
    let idle =
        stage.hub.identity().log_in(LOCAL, "carol", &PASSWORD.into(), &local_browser()).await.unwrap().cookie;
    stage.advance(30 * 60 - 1);
    assert!(stage.session_scope(&idle).await.is_some());
    // Automatic requests do not extend the session.
    stage.advance(20 * 60);
    assert!(stage.hub.identity().peek_session(&idle, HOST).await.unwrap().is_some());
    stage.advance(10 * 60);
    assert_eq!(
        (stage.hub.identity().peek_session(&idle, HOST).await.unwrap(), stage.session_scope(&idle).await),
        (None, None)
    );
    let busy =
        stage.hub.identity().log_in(LOCAL, "carol", &PASSWORD.into(), &local_browser()).await.unwrap().cookie;
    let sessions =
        stage.documents(LOCAL).await.into_iter().filter(|text| text.contains("kind: Session")).count();
    assert_eq!(sessions, 1, "expired sessions are deleted");
    for _ in 0..35 {
        stage.advance(20 * 60);
        assert!(stage.session_scope(&busy).await.is_some());
    }
    stage.advance(20 * 60 - 1);
    assert!(stage.session_scope(&busy).await.is_some());
    stage.advance(1);
    assert_eq!(stage.session_scope(&busy).await, None, "maximum lifetime: 12 hours");
}

#[tokio::test]
async fn use_is_noted_once_a_minute_and_survives_a_restart() {
    let stage = Stage::open().await;
    let link = stage.hub.identity().create_login_link().await.unwrap().unwrap();
    let cookie = stage.hub.identity().redeem_login_link(&link, &local_browser()).await.unwrap().cookie;
    let versions = async |stage: &Stage| {
        let page = stage
            .store
            .documents(LOCAL, DocumentKind::Session, None, &PageRequest { after: None, limit: 9 })
            .await
            .unwrap();
        page.items.iter().map(|item| item.version).collect::<Vec<_>>()
    };
    for seconds in [0, 30, 29] {
        stage.advance(seconds);
        assert_eq!(stage.session_scope(&cookie).await, Some(ADA));
    }
    assert_eq!(versions(&stage).await, [1]);
    stage.advance(1);
    for _ in 0..3 {
        assert_eq!(stage.session_scope(&cookie).await, Some(ADA));
    }
    assert_eq!(versions(&stage).await, [2]);
    let stage = stage.restart().await;
    assert_eq!(stage.session_scope(&cookie).await, Some(ADA));
}

#[tokio::test]
async fn signing_out_ends_one_session() {
    let stage = Stage::open().await;
    stage.add_user(ADA, "carol", PASSWORD).await;
    let one = stage.hub.identity().log_in(LOCAL, "carol", &PASSWORD.into(), &local_browser()).await.unwrap();
    let other =
        stage.hub.identity().log_in(LOCAL, "carol", &PASSWORD.into(), &local_browser()).await.unwrap();
    stage.hub.identity().log_out(&one.cookie).await.unwrap();
    stage.hub.identity().log_out(&one.cookie).await.unwrap();
    stage.hub.identity().log_out(&"nothing".into()).await.unwrap();
    assert_eq!(stage.session_scope(&one.cookie).await, None);
    assert_eq!(stage.session_scope(&other.cookie).await, Some(other.actor));
    assert_eq!(stage.session_scope(&other.csrf).await, None, "the CSRF token is not a cookie");
    let ended = stage.actions(LOCAL).await.into_iter().filter(|action| action == "session.ended").count();
    assert_eq!(ended, 1);
}

#[tokio::test]
async fn a_password_change_ends_sessions_and_tokens_of_that_user_alone() {
    let stage = Stage::open().await;
    let carol = stage.add_user(ADA, "carol", PASSWORD).await;
    stage.add_user(ADA, "dora", PASSWORD).await;
    let sign_in = async |name: &str| {
        stage.hub.identity().log_in(LOCAL, name, &PASSWORD.into(), &local_browser()).await.unwrap()
    };
    let (own, other, of_dora) = (sign_in("carol").await, sign_in("carol").await, sign_in("dora").await);
    let issue = async |actor: Actor| {
        stage.hub.identity().issue_token(actor, actor.subject(), "script", None).await.unwrap().0
    };
    let (token, token_of_dora) = (issue(own.actor).await, issue(of_dora.actor).await);
    let (new, old): (Secret, Secret) = ("another password".into(), PASSWORD.into());
    let by = ChangedBy::User { old_password: Some(&old), session: Some(&local_browser()) };
    let foreign = stage.hub.identity().set_password(of_dora.actor, carol, &new, by).await;
    assert_eq!(code(foreign), "forbidden", "the old password is not sufficient for another user");
    let mut events = stage.hub.events().subscribe(LOCAL, None);
    let set = stage.hub.identity().set_password(own.actor, carol, &new, by).await.unwrap();
    for kind in ["session", "token", "user"] {
        assert_eq!(next(&mut events).await.kind, kind, "open streams recheck their session");
    }
    let renewed = set.session.unwrap();
    assert_eq!(stage.session_scope(&renewed.cookie).await, Some(own.actor));
    assert_eq!(
        (stage.session_scope(&own.cookie).await, stage.session_scope(&other.cookie).await),
        (None, None)
    );
    assert_eq!(code(stage.hub.identity().authenticate(token.expose()).await), "unauthorized");
    assert_eq!(stage.session_scope(&of_dora.cookie).await, Some(of_dora.actor));
    assert_eq!(stage.hub.identity().authenticate(token_of_dora.expose()).await, Ok(of_dora.actor));
    assert_eq!(
        code(stage.hub.identity().log_in(LOCAL, "carol", &old, &local_browser()).await),
        "unauthorized"
    );
    assert_eq!(code(stage.hub.identity().log_in(LOCAL, "carol", &new, &local_browser()).await), "done");
}

#[tokio::test]
async fn a_lock_is_of_one_source_until_many_sources_try() {
    let stage = Stage::open().await;
    let carol = stage.add_user(ADA, "carol", PASSWORD).await;
    let from = |number: u8| RequestClient { address: Some([10, 0, 0, number].into()), ..local_browser() };
    let wrong = async |number| {
        code(stage.hub.identity().log_in(LOCAL, "carol", &"wrong password".into(), &from(number)).await)
    };
    for number in 0..20 {
        for _ in 0..5 {
            assert_eq!(wrong(number).await, "unauthorized");
        }
        assert_eq!(wrong(number).await, "too_many_login_attempts");
    }
    assert_eq!(wrong(20).await, "too_many_login_attempts", "100 attempts in total");
    // A client that is logged in as this user is not locked out, but its attempts are limited, too.
    let known = RequestClient { user: Some(carol), ..from(20) };
    assert_eq!(code(stage.hub.identity().log_in(LOCAL, "carol", &PASSWORD.into(), &known).await), "done");
    for expected in ["unauthorized"; 5].into_iter().chain(["too_many_login_attempts"]) {
        assert_eq!(
            code(stage.hub.identity().log_in(LOCAL, "carol", &"wrong password".into(), &known).await),
            expected
        );
    }
    let other = RequestClient { user: Some(LOCAL_USER), ..from(20) };
    assert_eq!(
        code(stage.hub.identity().log_in(LOCAL, "carol", &PASSWORD.into(), &other).await),
        "too_many_login_attempts"
    );
}

#[tokio::test]
async fn a_session_is_valid_for_the_host_that_it_was_made_for() {
    let stage = Stage::open().await;
    stage.add_user(ADA, "carol", PASSWORD).await;
    let cookie =
        stage.hub.identity().log_in(LOCAL, "carol", &PASSWORD.into(), &local_browser()).await.unwrap().cookie;
    for (host, is_valid) in [(HOST, true), ("127.0.0.1:7421", false), ("localhost:7420", false), ("", false)]
    {
        assert_eq!(stage.hub.identity().session(&cookie, host).await.unwrap().is_some(), is_valid, "{host}");
        assert_eq!(
            stage.hub.identity().peek_session(&cookie, host).await.unwrap().is_some(),
            is_valid,
            "{host}"
        );
    }
}

#[tokio::test]
async fn a_session_of_an_earlier_version_has_ended() {
    let stage = Stage::open().await;
    let carol = stage.add_user(ADA, "carol", PASSWORD).await;
    let cookie: Secret = "a cookie of before".into();
    let id = Digest::of("linchpin session").part(cookie.expose()).finish().to_string();
    let now = stage.clock.now();
    let session = json!({"id": id, "user": carol, "passwords": 1, "created": now, "used": now});
    stage.put(LOCAL, DocumentKind::Session, &id, None, session).await;
    for host in [HOST, ""] {
        assert_eq!(stage.hub.identity().session(&cookie, host).await, Ok(None), "{host}");
    }
    assert_eq!(
        code(stage.hub.identity().log_in(LOCAL, "carol", &PASSWORD.into(), &local_browser()).await),
        "done"
    );
}
