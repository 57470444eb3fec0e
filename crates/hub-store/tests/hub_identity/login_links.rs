//! Login links: each one logs in once, at any hub.

use linchpin_hub_store::{Durability, Postgres};
use tokio::task::JoinSet;

use super::*;

async fn link(hub: &Hub) -> Secret {
    hub.identity().create_login_link().await.unwrap().unwrap()
}

async fn stored_links(stage: &Stage) -> usize {
    stage.documents(LOCAL).await.into_iter().filter(|text| text.contains("kind: Link")).count()
}

#[tokio::test]
async fn a_link_signs_in_once_and_ends_all_others() {
    let stage = Stage::open().await;
    let (first, link, last) = (link(&stage.hub).await, link(&stage.hub).await, link(&stage.hub).await);
    assert_eq!(link.expose().len(), 64);
    for wrong in ["".into(), "0".repeat(64).into()] {
        assert_eq!(
            code(stage.hub.identity().redeem_login_link(&wrong, &local_browser()).await),
            "unauthorized"
        );
    }
    let signed_in = stage.hub.identity().redeem_login_link(&link, &local_browser()).await.unwrap();
    assert_eq!((signed_in.actor, &*signed_in.user.name), (ADA, "local"));
    assert_eq!(
        stage.hub.identity().session(&signed_in.cookie, HOST).await.unwrap(),
        Some((ADA, signed_in.csrf))
    );
    for used in [link, first, last] {
        assert_eq!(
            code(stage.hub.identity().redeem_login_link(&used, &local_browser()).await),
            "unauthorized"
        );
    }
    assert_eq!(stage.actions(LOCAL).await, ["user.added", "session.started"]);
    assert_eq!(stored_links(&stage).await, 0);
}

/// Uses one link 100 times concurrently, at these hubs in turn. Returns the codes.
async fn use_concurrently(hubs: &[Arc<Hub>], link: &Secret) -> Vec<&'static str> {
    let mut all = JoinSet::new();
    for number in 0..100 {
        let (hub, link) = (hubs[number % hubs.len()].clone(), link.clone());
        all.spawn(async move { code(hub.identity().redeem_login_link(&link, &local_browser()).await) });
    }
    let mut codes = tokio::time::timeout(Duration::from_mins(1), all.join_all()).await.unwrap();
    codes.sort_unstable();
    codes
}

#[tokio::test]
async fn of_many_with_one_link_one_gets_in() {
    let stage = Stage::open().await;
    let hubs = [Arc::new(stage.another_hub()), Arc::new(stage.another_hub())];
    let link = link(&stage.hub).await;
    assert_eq!(use_concurrently(&hubs, &link).await, [["done"].as_slice(), &["unauthorized"; 99]].concat());
}

#[tokio::test]
async fn a_link_of_one_hub_signs_in_at_another_on_the_same_database() {
    let (place, clock, server) = (tempfile::tempdir().unwrap(), Arc::default(), test_postgres::server());
    let url = server.url(&server.create_database());
    let mut hubs = Vec::new();
    for _ in 0..2 {
        let store = Postgres::join(&url, Durability::default(), Arc::new(SystemPlatform)).await.unwrap();
        let store: Arc<dyn Store> = Arc::new(store);
        hubs.push(Arc::new(hub(&place, &store, &clock)));
    }
    let [one, other] = [&hubs[0], &hubs[1]];
    one.identity().ensure_local_user().await.unwrap();
    let (used, unused) = (link(one).await, link(other).await);
    let cookie = other.identity().redeem_login_link(&used, &local_browser()).await.unwrap().cookie;
    assert_eq!(one.identity().peek_session(&cookie, HOST).await.unwrap(), Some(ADA));
    for hub in &hubs {
        for link in [&used, &unused] {
            let refused = hub.identity().redeem_login_link(link, &local_browser()).await.unwrap_err();
            assert_eq!(refused.code(), "unauthorized");
            assert!(refused.message().starts_with("this login link is not valid any more"), "{refused}");
        }
    }
    // Of concurrent uses exactly one succeeds, even with different links.
    let link_of_one = link(one).await;
    assert_eq!(
        use_concurrently(&hubs, &link_of_one).await,
        [["done"].as_slice(), &["unauthorized"; 99]].concat()
    );
    for _ in 0..10 {
        let (first, second) = (link(one).await, link(other).await);
        let here = local_browser();
        let both = tokio::join!(
            one.identity().redeem_login_link(&first, &here),
            other.identity().redeem_login_link(&second, &here)
        );
        let mut codes = [code(both.0), code(both.1)];
        codes.sort_unstable();
        assert_eq!(codes, ["done", "unauthorized"]);
    }
}

#[tokio::test]
async fn a_link_ends_with_time_and_with_the_first_password() {
    let stage = Stage::open().await;
    let over = link(&stage.hub).await;
    stage.advance(15 * 60);
    assert_eq!(code(stage.hub.identity().redeem_login_link(&over, &local_browser()).await), "unauthorized");
    let last = link(&stage.hub).await;
    stage.advance(15 * 60 - 1);
    let carol = stage.add_user(ADA, "carol", PASSWORD).await;
    assert!(stage.hub.identity().create_login_link().await.unwrap().is_none());
    assert_eq!(stored_links(&stage).await, 0);
    // The link stays invalid after the user with the password is removed.
    stage.hub.identity().remove_user(ADA, carol).await.unwrap();
    assert_eq!(code(stage.hub.identity().redeem_login_link(&last, &local_browser()).await), "unauthorized");
    // The password may be set at another hub.
    let last = link(&stage.hub).await;
    let other = stage.another_hub();
    other.identity().set_password(ADA, LOCAL_USER, &PASSWORD.into(), ChangedBy::Operator).await.unwrap();
    assert_eq!(code(stage.hub.identity().redeem_login_link(&last, &local_browser()).await), "unauthorized");
}

#[tokio::test]
async fn a_link_lasts_15_minutes_also_when_the_hub_is_started_again() {
    let stage = Stage::open().await;
    let link = link(&stage.hub).await;
    stage.advance(15 * 60 - 1);
    let stage = stage.restart().await;
    assert_eq!(code(stage.hub.identity().redeem_login_link(&link, &local_browser()).await), "done");
}

#[tokio::test]
async fn there_are_16_links_at_most_and_none_that_is_over() {
    let stage = Stage::open().await;
    let mut links = Vec::new();
    for _ in 0..20 {
        links.push(link(&stage.hub).await);
        stage.advance(1);
    }
    assert_eq!(stored_links(&stage).await, 16);
    assert_eq!(
        code(stage.hub.identity().redeem_login_link(&links[3], &local_browser()).await),
        "unauthorized"
    );
    assert_eq!(code(stage.hub.identity().redeem_login_link(&links[4], &local_browser()).await), "done");
    // Of links with the same time, the new one is not evicted.
    for _ in 0..40 {
        let before = stage.documents(LOCAL).await;
        link(&stage.hub).await;
        let after = stage.documents(LOCAL).await;
        assert_eq!(after.iter().filter(|one| !before.contains(one)).count(), 1);
        assert!(stored_links(&stage).await <= 16);
    }
    stage.advance(15 * 60);
    link(&stage.hub).await;
    assert_eq!(stored_links(&stage).await, 1);
}
