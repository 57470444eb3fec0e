//! Configured servers.

use linchpin::auth::Secret;
use linchpin_hub_core::hub::{LOCAL_USER, ServerFilter, ServerView};
use linchpin_hub_core::server::ConfiguredServer;
use linchpin_hub_core::store::{Batch, DocumentKind, PageRequest, StoreChange};
use linchpin_hub_core::{Actor, Result, Subject};
use serde_json::{Value, json};

use crate::faulty_store::{Effect, FaultyStore, stores};
use crate::fixture::{ADA, BOB, Stage, another_hub, local_user, open};

fn server(slug: &str, form: Value) -> ConfiguredServer {
    ConfiguredServer::read(slug, form).unwrap()
}

async fn transports(stage: &Stage) -> Vec<(String, &'static str)> {
    let servers = stage.hub.registry().servers(local_user(ADA), &ServerFilter::default()).await.unwrap();
    // Servers that were added at the same time have no fixed order.
    let mut all: Vec<_> = servers.into_iter().map(|server| (server.slug, server.transport)).collect();
    all.sort_unstable();
    all
}

#[tokio::test]
async fn a_program_becomes_a_server_on_the_network_and_back() {
    let stage = Stage::new().await;
    let program = || server("a", json!({"command": "true", "enabled": false}));
    let remote = || server("a", json!({"url": stage.upstream.url, "enabled": false}));
    for (operated, transport) in [(program(), "stdio"), (remote(), "http"), (program(), "stdio")] {
        assert!(stage.hub.registry().apply_config(ADA, vec![operated]).await.unwrap().is_empty());
        assert_eq!(transports(&stage).await, [("a".to_owned(), transport), ("up".to_owned(), "http")]);
    }
    let other = server("a", json!({"command": "false", "enabled": false}));
    stage.hub.registry().apply_config(ADA, vec![other]).await.unwrap();
    let view = stage.hub.registry().server(local_user(ADA), "a").await.unwrap();
    assert_eq!((view.command.unwrap(), view.version), (vec!["false".to_owned()], 4));
}

#[tokio::test]
async fn a_program_that_nobody_knows_how_to_start_hides_no_other() {
    let mut stage = Stage::new().await;
    let program = || server("a", json!({"command": "true", "enabled": false}));
    stage.hub.registry().apply_config(ADA, vec![program()]).await.unwrap();
    // Another hub has not read the file yet.
    (stage.hub, stage.store) = open(&stage.folder, stage.clock.clone());
    assert_eq!(transports(&stage).await, [("up".to_owned(), "http")]);
    let error = stage.hub.registry().server(local_user(ADA), "a").await.unwrap_err();
    assert_eq!(error.code(), "server_not_in_file");
    stage.hub.registry().apply_config(ADA, vec![program()]).await.unwrap();
    assert_eq!(transports(&stage).await.len(), 2);
    assert_eq!(
        stage.hub.registry().server(local_user(ADA), "a").await.unwrap().version,
        1,
        "nothing has changed"
    );
}

fn with_secret(command: &str, more: &Value) -> ConfiguredServer {
    let mut form = json!({"command": command, "secrets": ["A_TOKEN"], "retry_attempts": 0});
    form.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    server("a", form)
}

/// Returns the error code of an attempt to start the server.
async fn start_error(stage: &Stage) -> &'static str {
    stage.hub.upstream().test_server(local_user(ADA), "a").await.unwrap_err().code()
}

async fn set_secret(stage: &Stage, variable: &str) -> Result<Vec<String>> {
    let secret = Secret::new("canary-1");
    Ok(stage.hub.registry().set_env_secret(local_user(ADA), "a", variable, &secret).await?.missing_secrets)
}

async fn stored_secrets(stage: &Stage) -> usize {
    let paging = PageRequest { after: None, limit: 100 };
    stage.store.documents(ADA, DocumentKind::Secret, None, &paging).await.unwrap().items.len()
}

#[tokio::test]
async fn a_program_is_not_started_without_its_secret() {
    let stage = Stage::new().await;
    stage.hub.registry().apply_config(ADA, vec![with_secret("true", &json!({}))]).await.unwrap();
    let error = stage.hub.upstream().test_server(local_user(ADA), "a").await.unwrap_err();
    assert_eq!(error.code(), "secret_missing");
    assert!(error.message().contains("`linchpin server secret set a A_TOKEN`"), "{error}");
    assert_eq!(stage.hub.registry().server(local_user(ADA), "a").await.unwrap().missing_secrets, ["A_TOKEN"]);
    assert_eq!(set_secret(&stage, "A_TOKEN").await.unwrap(), [""; 0]);
    assert_eq!(start_error(&stage).await, "server_unavailable", "the process starts but is not a server");
    assert_eq!(set_secret(&stage, "OTHER").await.unwrap_err().field(), Some("variable"));
    let up = stage
        .hub
        .registry()
        .set_env_secret(local_user(ADA), "up", "A_TOKEN", &Secret::new("x"))
        .await
        .unwrap_err();
    assert_eq!(up.field(), Some("server"));
    for wrong in ["", "a\0b", &"x".repeat(40_000)] {
        let error = stage
            .hub
            .registry()
            .set_env_secret(local_user(ADA), "a", "A_TOKEN", &Secret::new(wrong))
            .await
            .unwrap_err();
        assert_eq!(error.field(), Some("secret"));
    }
    let agent = stage.agent("One", "auto", &[]).await;
    let error =
        stage.hub.registry().set_env_secret(agent, "a", "A_TOKEN", &Secret::new("x")).await.unwrap_err();
    assert_eq!(error.code(), "user_required");
    let stranger = Actor::new(BOB, Subject::User(LOCAL_USER));
    assert!(stage.hub.registry().set_env_secret(stranger, "a", "A_TOKEN", &Secret::new("x")).await.is_err());
    assert!(stage.actions().await.contains(&"env_secret.set".to_owned()));
}

#[tokio::test]
async fn a_secret_is_for_one_command_alone() {
    let mut stage = Stage::new().await;
    stage.hub.registry().apply_config(ADA, vec![with_secret("true", &json!({}))]).await.unwrap();
    set_secret(&stage, "A_TOKEN").await.unwrap();
    stage
        .hub
        .registry()
        .apply_config(ADA, vec![with_secret("true", &json!({"timeout_ms": 5_000}))])
        .await
        .unwrap();
    assert_eq!(
        (start_error(&stage).await, stored_secrets(&stage).await),
        ("server_unavailable", 1),
        "the same command"
    );
    stage.hub.registry().apply_config(ADA, vec![with_secret("true", &json!({"args": ["x"]}))]).await.unwrap();
    assert_eq!((start_error(&stage).await, stored_secrets(&stage).await), ("secret_missing", 1));
    stage.hub.registry().apply_config(ADA, vec![with_secret("true", &json!({}))]).await.unwrap();
    assert_eq!(start_error(&stage).await, "server_unavailable", "the secret still exists for its command");
    // The file was changed while no hub ran.
    (stage.hub, stage.store) = open(&stage.folder, stage.clock.clone());
    stage.hub.registry().apply_config(ADA, vec![with_secret("false", &json!({}))]).await.unwrap();
    assert_eq!(start_error(&stage).await, "secret_missing");
    assert_eq!(stage.hub.registry().server(local_user(ADA), "a").await.unwrap().missing_secrets, ["A_TOKEN"]);
    stage.hub.registry().apply_config(ADA, vec![]).await.unwrap();
    stage.hub.registry().remove_server(local_user(ADA), "a").await.unwrap();
    assert_eq!(stored_secrets(&stage).await, 0, "it is deleted with the server");
}

async fn view(stage: &Stage, slug: &str) -> ServerView {
    stage.hub.registry().server(local_user(ADA), slug).await.unwrap()
}

/// Configured servers with a secret and a credential, on a hub that has applied them.
async fn with_credentials(stage: &Stage) -> Vec<ConfiguredServer> {
    let remote =
        json!({"url": stage.upstream.url, "authentication": {"type": "bearer"}, "retry_attempts": 0});
    let servers = vec![with_secret("true", &json!({})), server("b", remote)];
    stage.hub.registry().apply_config(ADA, servers.clone()).await.unwrap();
    set_secret(stage, "A_TOKEN").await.unwrap();
    stage.hub.upstream().set_credential(local_user(ADA), "b", None, &Secret::new("canary-2")).await.unwrap();
    assert_eq!(stored_secrets(stage).await, 2);
    servers
}

#[tokio::test]
async fn a_server_that_leaves_the_file_is_disabled_and_comes_back_as_it_was() {
    let mut stage = Stage::new().await;
    let servers = with_credentials(&stage).await;
    let ids = [view(&stage, "a").await.id, view(&stage, "b").await.id];
    stage.hub.registry().apply_config(ADA, vec![]).await.unwrap();
    // The same after a restart, with the same file.
    for _ in 0..2 {
        for (slug, id) in ["a", "b"].into_iter().zip(ids) {
            let left = view(&stage, slug).await;
            assert_eq!((left.id, left.enabled, left.is_undeclared), (id, false, true));
            let error = left.error.unwrap();
            assert!(
                error.starts_with("not in the configuration file any more") && left.command.is_none(),
                "{error}"
            );
            let hub = &stage.hub;
            let refused = [
                hub.upstream().test_server(local_user(ADA), slug).await.unwrap_err(),
                hub.registry().connect_server(local_user(ADA), slug).await.unwrap_err(),
                hub.registry().enable_server(local_user(ADA), slug, true).await.unwrap_err(),
            ];
            for error in refused {
                assert_eq!(error.code(), "server_not_in_file");
                assert!(error.message().contains(&format!("`linchpin server remove {slug}`")), "{error}");
            }
        }
        assert_eq!((transports(&stage).await.len(), stored_secrets(&stage).await), (3, 2));
        (stage.hub, stage.store) = open(&stage.folder, stage.clock.clone());
        stage.hub.registry().apply_config(ADA, vec![]).await.unwrap();
    }
    stage.hub.registry().apply_config(ADA, servers).await.unwrap();
    for (slug, id) in ["a", "b"].into_iter().zip(ids) {
        let back = view(&stage, slug).await;
        assert_eq!((back.id, back.enabled, back.is_undeclared), (id, true, false));
        assert!(back.missing_secrets.is_empty());
    }
    assert_eq!(start_error(&stage).await, "server_unavailable", "it is started with its secret");
    stage.hub.upstream().test_server(local_user(ADA), "b").await.unwrap();
    assert!(stage.upstream.tokens.lock().unwrap().contains(&"Bearer canary-2".to_owned()));
}

#[tokio::test]
async fn a_server_that_left_the_file_is_removed_by_command_with_everything() {
    let stage = Stage::new().await;
    let servers = with_credentials(&stage).await;
    let error = stage.hub.registry().remove_server(local_user(ADA), "a").await.unwrap_err();
    assert_eq!(error.code(), "server_is_configured");
    stage.hub.registry().apply_config(ADA, vec![servers[1].clone()]).await.unwrap();
    stage.hub.registry().remove_server(local_user(ADA), "a").await.unwrap();
    assert_eq!(stored_secrets(&stage).await, 1);
    // A command changed the file while no hub was running.
    stage.hub.registry().delete_configured(ADA, "b").await.unwrap();
    stage.hub.registry().delete_configured(ADA, "up").await.unwrap();
    assert_eq!(
        (transports(&stage).await, stored_secrets(&stage).await),
        (vec![("up".to_owned(), "http")], 0)
    );
    assert_eq!(stage.actions().await.iter().filter(|action| *action == "server.removed").count(), 2);
}

#[tokio::test]
async fn a_hub_that_starts_beside_another_disables_no_server_of_the_other_file() {
    let mut stage = Stage::new().await;
    let program = |slug: &str, command: &str| server(slug, json!({"command": command, "enabled": false}));
    stage.hub.registry().apply_config(ADA, vec![program("a", "true"), program("b", "true")]).await.unwrap();
    let version = view(&stage, "b").await.version;
    let store = FaultyStore::shared_by_hubs(stage.store.clone());
    stage.hub = another_hub(&stage.folder, stage.clock.clone(), store.clone());
    // The other hub changes the same server at this moment.
    store.once(stores(DocumentKind::Server), Effect::Conflict);
    let changed = server("a", json!({"command": "true", "enabled": false, "timeout_ms": 5_000}));
    stage.hub.registry().apply_config(ADA, vec![changed]).await.unwrap();
    let other = stage.store.document_by_name(ADA, DocumentKind::Server, "b").await.unwrap().unwrap();
    assert_eq!((other.version, &other.document.body["has_left_file"]), (version, &json!(false)));
}

#[tokio::test]
async fn another_authentication_in_the_file_deletes_no_credential() {
    let stage = Stage::new().await;
    let servers = with_credentials(&stage).await;
    let url = &stage.upstream.url;
    let with = |authentication: Value| {
        let form = json!({"url": url, "authentication": authentication, "retry_attempts": 0});
        vec![servers[0].clone(), server("b", form)]
    };
    stage
        .hub
        .registry()
        .apply_config(ADA, with(json!({"type": "api-key", "header": "x-key"})))
        .await
        .unwrap();
    assert_eq!(stored_secrets(&stage).await, 2);
    let error = stage.hub.upstream().test_server(local_user(ADA), "b").await.unwrap_err();
    assert_eq!(error.code(), "credential_origin_mismatch");
    assert!(error.message().contains("`linchpin server credential set b`"), "{error}");
    stage.upstream.tokens.lock().unwrap().clear();
    stage.hub.registry().apply_config(ADA, servers.clone()).await.unwrap();
    stage.hub.upstream().test_server(local_user(ADA), "b").await.unwrap();
    assert!(stage.upstream.tokens.lock().unwrap().contains(&"Bearer canary-2".to_owned()));
}

#[tokio::test]
async fn a_configured_server_of_an_earlier_version_has_not_left_the_file() {
    let stage = Stage::new().await;
    let program = || server("a", json!({"command": "true", "enabled": false}));
    stage.hub.registry().apply_config(ADA, vec![program()]).await.unwrap();
    let stored = stage.store.document_by_name(ADA, DocumentKind::Server, "a").await.unwrap().unwrap();
    let (mut document, version) = (stored.document, stored.version);
    assert!(document.body.as_object_mut().unwrap().remove("has_left_file").is_some());
    document.code = None;
    stage.store.commit(ADA, Batch::new().change(StoreChange::Put { document, version })).await.unwrap();
    let view = view(&stage, "a").await;
    assert!(view.is_configured && !view.is_undeclared);
}
