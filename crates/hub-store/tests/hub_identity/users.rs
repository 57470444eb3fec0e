//! Users.

use super::*;

#[tokio::test]
async fn somebody_is_there_from_the_beginning_once() {
    let stage = Stage::open().await.restart().await;
    stage.hub.identity().ensure_local_user().await.unwrap();
    let users = stage.hub.identity().users(ADA).await.unwrap();
    assert_eq!(users.len(), 1);
    assert_eq!((users[0].id, &*users[0].name, users[0].has_password), (LOCAL_USER, "local", false));
    assert_eq!(stage.actions(LOCAL).await, ["user.added"]);
    assert_eq!(stage.hub.identity().has_password().await, Ok(false));
}

#[tokio::test]
async fn a_name_is_checked_and_taken_once_in_a_tenant() {
    let stage = Stage::open().await;
    let hidden = ["a\u{200b}", "ad\u{202e}a", "\u{3164}", "\u{2800}", "a\u{e0041}", "a\u{feff}b"];
    for name in ["", "  ", "a\nb", "a\0", &"n".repeat(101)].into_iter().chain(hidden) {
        assert_eq!(
            field(stage.hub.identity().add_user(ADA, name).await).as_deref(),
            Some("name"),
            "{name:?}"
        );
    }
    for name in ["a", &"日".repeat(100)] {
        assert_eq!(stage.hub.identity().add_user(ADA, name).await.unwrap().name, name);
    }
    assert_eq!(stage.hub.identity().add_user(ADA, " carol ").await.unwrap().name, "carol");
    assert_eq!(code(stage.hub.identity().add_user(ADA, "carol").await), "name_taken");
    assert_eq!(code(stage.hub.identity().add_user(BOB, "carol").await), "done");
    let names = |users: Vec<linchpin_hub_core::hub::users::UserView>| {
        users.into_iter().map(|user| user.name).collect::<Vec<_>>()
    };
    assert_eq!(names(stage.hub.identity().users(BOB).await.unwrap()), ["bob", "carol"]);
    assert_eq!(names(stage.hub.identity().users(ADA).await.unwrap()).len(), 4);
}

#[tokio::test]
async fn a_password_is_checked() {
    let stage = Stage::open().await;
    for password in ["", "1234567", &"p".repeat(1_025)] {
        let set =
            stage.hub.identity().set_password(ADA, LOCAL_USER, &password.into(), ChangedBy::Operator).await;
        assert_eq!(field(set).as_deref(), Some("password"));
    }
    assert_eq!(stage.hub.identity().has_password().await, Ok(false));
    let unknown_user = stage
        .hub
        .identity()
        .set_password(ADA, UserId::from_u128(9), &PASSWORD.into(), ChangedBy::Operator)
        .await;
    assert_eq!(code(unknown_user), "not_found");
    assert!(
        stage
            .hub
            .identity()
            .set_password(ADA, LOCAL_USER, &PASSWORD.into(), ChangedBy::Operator)
            .await
            .unwrap()
            .user
            .has_password
    );
    assert_eq!(stage.hub.identity().has_password().await, Ok(true));
    assert_eq!(stage.actions(LOCAL).await, ["user.added", "user.password_set"]);
}

#[tokio::test]
async fn who_is_removed_is_gone_with_sessions_and_tokens() {
    let stage = Stage::open().await;
    let carol = stage.add_user(ADA, "carol", PASSWORD).await;
    let as_carol = scope(LOCAL, carol);
    let signed_in =
        stage.hub.identity().log_in(LOCAL, "carol", &PASSWORD.into(), &local_browser()).await.unwrap();
    let (token, _) =
        stage.hub.identity().issue_token(as_carol, Subject::User(carol), "script", None).await.unwrap();
    assert_eq!(stage.session_scope(&signed_in.cookie).await, Some(as_carol));
    assert_eq!(stage.hub.identity().authenticate(token.expose()).await, Ok(as_carol));
    let mut events = stage.hub.events().subscribe(LOCAL, None);
    stage.hub.identity().remove_user(ADA, carol).await.unwrap();
    for kind in ["session", "token", "user"] {
        assert_eq!(next(&mut events).await.kind, kind);
    }
    assert_eq!(stage.session_scope(&signed_in.cookie).await, None);
    assert_eq!(code(stage.hub.identity().authenticate(token.expose()).await), "unauthorized");
    assert_eq!(stage.documents(LOCAL).await.len(), 1, "all data of the user are deleted");
    assert_eq!(code(stage.hub.identity().remove_user(ADA, carol).await), "not_found");
    assert_eq!(
        code(stage.hub.identity().log_in(LOCAL, "carol", &PASSWORD.into(), &local_browser()).await),
        "unauthorized"
    );
    assert_eq!(stage.hub.identity().has_password().await, Ok(false));
}

#[tokio::test]
async fn somebody_always_stays() {
    let stage = Stage::open().await;
    assert_eq!(code(stage.hub.identity().remove_user(ADA, LOCAL_USER).await), "last_user");
    assert_eq!(code(stage.hub.identity().remove_user(BOB, UserId::from_u128(7)).await), "last_user");
    let carol = stage.hub.identity().add_user(ADA, "carol").await.unwrap().id;
    assert_eq!(code(stage.hub.identity().remove_user(scope(LOCAL, carol), LOCAL_USER).await), "last_user");
    stage.hub.identity().add_user(BOB, "dora").await.unwrap();
    assert_eq!(code(stage.hub.identity().remove_user(BOB, UserId::from_u128(7)).await), "done");
}
