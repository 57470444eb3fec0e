//! The servers of the operator's file.

use linchpin::auth::Secret;
use linchpin_hub_core::hub::{LOCAL_USER, ServerFilter};
use linchpin_hub_core::server::Operated;
use linchpin_hub_core::store::{Kind, Paging};
use linchpin_hub_core::{Result, Scope, Subject};
use serde_json::{Value, json};

use crate::stage::{ADA, BOB, Stage, open, person};

fn server(slug: &str, form: Value) -> Operated {
    Operated::read(slug, form).unwrap()
}

async fn transports(stage: &Stage) -> Vec<(String, &'static str)> {
    let servers = stage.hub.servers(person(ADA), &ServerFilter::default()).await.unwrap();
    // Those that were added in the same moment come in any order.
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
        assert!(stage.hub.operate(ADA, vec![operated]).await.unwrap().is_empty());
        assert_eq!(transports(&stage).await, [("a".to_owned(), transport), ("up".to_owned(), "http")]);
    }
    let other = server("a", json!({"command": "false", "enabled": false}));
    stage.hub.operate(ADA, vec![other]).await.unwrap();
    let view = stage.hub.server(person(ADA), "a").await.unwrap();
    assert_eq!((view.command.unwrap(), view.version), (vec!["false".to_owned()], 4));
}

#[tokio::test]
async fn a_program_that_nobody_knows_how_to_start_hides_no_other() {
    let mut stage = Stage::new().await;
    let program = || server("a", json!({"command": "true", "enabled": false}));
    stage.hub.operate(ADA, vec![program()]).await.unwrap();
    // Another hub has not read the file yet.
    (stage.hub, stage.store) = open(&stage.place, stage.clock.clone());
    assert_eq!(transports(&stage).await, [("up".to_owned(), "http")]);
    let error = stage.hub.server(person(ADA), "a").await.unwrap_err();
    assert_eq!(error.code(), "server_not_in_file");
    stage.hub.operate(ADA, vec![program()]).await.unwrap();
    assert_eq!(transports(&stage).await.len(), 2);
    assert_eq!(stage.hub.server(person(ADA), "a").await.unwrap().version, 1, "nothing has changed");
}

fn with_secret(command: &str, more: &Value) -> Operated {
    let mut form = json!({"command": command, "secrets": ["A_TOKEN"], "retry_attempts": 0});
    form.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    server("a", form)
}

/// Why the program cannot be started.
async fn refused(stage: &Stage) -> &'static str {
    stage.hub.test_server(person(ADA), "a").await.unwrap_err().code()
}

async fn set(stage: &Stage, variable: &str) -> Result<Vec<String>> {
    let secret = Secret::new("canary-1");
    Ok(stage.hub.set_secret(person(ADA), "a", variable, &secret).await?.missing_secrets)
}

async fn kept(stage: &Stage) -> usize {
    let paging = Paging { after: None, limit: 100 };
    stage.store.documents(ADA, Kind::Secret, None, &paging).await.unwrap().items.len()
}

#[tokio::test]
async fn a_program_is_not_started_without_its_secret() {
    let stage = Stage::new().await;
    stage.hub.operate(ADA, vec![with_secret("true", &json!({}))]).await.unwrap();
    let error = stage.hub.test_server(person(ADA), "a").await.unwrap_err();
    assert_eq!(error.code(), "secret_missing");
    assert!(error.message().contains("`linchpin server secret set a A_TOKEN`"), "{error}");
    assert_eq!(stage.hub.server(person(ADA), "a").await.unwrap().missing_secrets, ["A_TOKEN"]);
    assert_eq!(set(&stage, "A_TOKEN").await.unwrap(), [""; 0]);
    assert_eq!(refused(&stage).await, "server_unavailable", "it is started, and is no server");
    assert_eq!(set(&stage, "OTHER").await.unwrap_err().field(), Some("variable"));
    let up = stage.hub.set_secret(person(ADA), "up", "A_TOKEN", &Secret::new("x")).await.unwrap_err();
    assert_eq!(up.field(), Some("server"));
    for wrong in ["", "a\0b", &"x".repeat(40_000)] {
        let error = stage.hub.set_secret(person(ADA), "a", "A_TOKEN", &Secret::new(wrong)).await.unwrap_err();
        assert_eq!(error.field(), Some("secret"));
    }
    let agent = stage.agent("One", "auto", &[]).await;
    let error = stage.hub.set_secret(agent, "a", "A_TOKEN", &Secret::new("x")).await.unwrap_err();
    assert_eq!(error.code(), "person_needed");
    let stranger = Scope::new(BOB, Subject::User(LOCAL_USER));
    assert!(stage.hub.set_secret(stranger, "a", "A_TOKEN", &Secret::new("x")).await.is_err());
    assert!(stage.actions().await.contains(&"secret.set".to_owned()));
}

#[tokio::test]
async fn a_secret_is_for_one_command_alone() {
    let mut stage = Stage::new().await;
    stage.hub.operate(ADA, vec![with_secret("true", &json!({}))]).await.unwrap();
    set(&stage, "A_TOKEN").await.unwrap();
    stage.hub.operate(ADA, vec![with_secret("true", &json!({"timeout_ms": 5_000}))]).await.unwrap();
    assert_eq!(
        (refused(&stage).await, kept(&stage).await),
        ("server_unavailable", 1),
        "it is the same program"
    );
    stage.hub.operate(ADA, vec![with_secret("true", &json!({"args": ["x"]}))]).await.unwrap();
    assert_eq!((refused(&stage).await, kept(&stage).await), ("secret_missing", 0));
    set(&stage, "A_TOKEN").await.unwrap();
    // The file was changed while no hub ran.
    (stage.hub, stage.store) = open(&stage.place, stage.clock.clone());
    stage.hub.operate(ADA, vec![with_secret("false", &json!({}))]).await.unwrap();
    assert_eq!(refused(&stage).await, "secret_missing");
    assert_eq!(stage.hub.server(person(ADA), "a").await.unwrap().missing_secrets, ["A_TOKEN"]);
    stage.hub.operate(ADA, vec![]).await.unwrap();
    assert_eq!(kept(&stage).await, 0, "it goes with the server");
}
