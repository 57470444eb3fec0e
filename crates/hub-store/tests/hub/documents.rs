//! Codes of documents: a hub refuses a document that another program has added or changed in the database, and `audit
//! verify` names it.

use linchpin_hub_core::audit::Damage;
use linchpin_hub_core::hub::Hub;
use linchpin_hub_core::hub::agents::AgentFilter;
use linchpin_hub_core::store::{DOCUMENT_TAMPERED, PageRequest};
use linchpin_hub_core::{ErrorKind, Result};

use crate::fixture::{ADA, local_user};
use crate::stopped_hub::StoppedHub;

/// Returns the names of the agents, which the hub reads from the database.
async fn agents(hub: &Hub) -> Result<Vec<String>> {
    let page = PageRequest { after: None, limit: 500 };
    let page = hub.identity().agents(local_user(ADA), &AgentFilter::default(), &page).await?;
    Ok(page.items.into_iter().map(|agent| agent.name).collect())
}

/// Returns the description of the damage, which must be a changed document.
async fn changed_document(ended: &StoppedHub) -> String {
    let found = ended.verified().await;
    assert_eq!((found.kind, found.first_bad_entry), (Some(Damage::DocumentChanged), None), "{found:?}");
    found.error.unwrap()
}

#[tokio::test]
async fn a_changed_approval_mode_is_refused_until_it_is_accepted() {
    let ended = StoppedHub::new().await;
    let found = ended.verified().await;
    assert!(found.intact && found.documents >= 6, "{found:?}"); // five agents and the user
    let hub = ended.hub();
    let name = agents(&hub).await.unwrap().remove(0);
    drop(hub);
    ended.sql(&format!(
        "UPDATE documents SET body = json_set(body, '$.approval', 'auto') WHERE name = '{name}'"
    ));
    assert!(changed_document(&ended).await.starts_with(&format!("the agent `{name}` was added or changed")));

    let hub = ended.hub();
    hub.unlock().await.unwrap();
    let error = agents(&hub).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Unavailable, DOCUMENT_TAMPERED), "{error}");
    drop(hub);
    ended.hub().audit().accept().await.unwrap();
    assert_eq!(ended.damage().await, None);
    assert!(agents(&ended.hub()).await.unwrap().contains(&name));
}

#[tokio::test]
async fn a_planted_document_without_a_code_is_refused() {
    let ended = StoppedHub::new().await;
    ended.sql(
        "INSERT INTO documents SELECT tenant, kind, 'planted', 'planted', parent, version, body, NULL
         FROM documents WHERE kind = 'agent' LIMIT 1",
    );
    assert_eq!(
        changed_document(&ended).await,
        "the agent `planted` was added or changed in the database by another program"
    );
    let hub = ended.hub();
    hub.unlock().await.unwrap();
    let error = agents(&hub).await.unwrap_err();
    assert!(error.message().starts_with("the agent `planted` was changed in the database"), "{error}");
    // The code of another document does not fit.
    ended.sql("UPDATE documents SET code = (SELECT max(code) FROM documents) WHERE id = 'planted'");
    assert!(changed_document(&ended).await.starts_with("the agent `planted`"));
}

#[tokio::test]
async fn a_revoked_token_that_is_put_back_is_found() {
    let ended = StoppedHub::new().await;
    let (hub, owner) = (ended.hub(), local_user(ADA).subject());
    hub.unlock().await.unwrap();
    let (_, token) = hub.identity().issue_token(local_user(ADA), owner, "ci", None).await.unwrap();
    ended.sql("CREATE TABLE copies AS SELECT * FROM documents WHERE kind = 'token'");
    hub.identity().revoke_token(local_user(ADA), owner, token.id).await.unwrap();
    hub.shutdown().await;
    assert_eq!(ended.damage().await, None);
    ended.sql("INSERT INTO documents SELECT * FROM copies");
    let problem = changed_document(&ended).await;
    assert!(
        problem.starts_with("the token `") && problem.contains("was put back in the database"),
        "{problem}"
    );
}

#[tokio::test]
async fn documents_of_an_earlier_version_get_codes_once() {
    let ended = StoppedHub::new().await;
    // As an earlier version has left it: no codes, and a head that does not require them.
    ended.sql("UPDATE documents SET code = NULL");
    std::fs::remove_file(ended.path().join("heads")).unwrap();
    let found = ended.verified().await;
    assert!(found.intact && found.documents == 0, "{found:?}");
    assert!(found.note.unwrap().contains("were stored by an earlier version"));
    ended.run(1).await;
    let found = ended.verified().await;
    assert!(found.intact && found.documents >= 7 && found.note.is_none(), "{found:?}");
    let rows = ended.store().audit_entries(ADA, 0, 500).await.unwrap();
    let recorded: Vec<_> = rows.iter().filter(|row| row.action == "documents.authenticated").collect();
    assert_eq!(recorded.len(), 1);
    // From then on, a document without a code is refused.
    ended.sql("UPDATE documents SET code = NULL WHERE kind = 'agent'");
    changed_document(&ended).await;
    let hub = ended.hub();
    hub.unlock().await.unwrap();
    let error = agents(&hub).await.unwrap_err();
    assert_eq!(error.code(), DOCUMENT_TAMPERED, "{error}");
}
