//! Data directory written before documents had codes: the hub gives them codes once, and refuses changed ones from then
//! on.
//!
//! `fixtures/without_codes` has the database, the checkpoints, the key file and the signed heads of a hub with these
//! contents: the server `demo` with 5 tools, the agent `Helper` with 2 tokens, the user `local` and 9 audit entries.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/hub.rs"]
mod hub;
mod support;

use hub::Home;
use linchpin_hub_core::platform::SystemPlatform;
use linchpin_hub_core::private_file;
use serde_json::{Value, json};

/// Number of documents with codes after the start: those of the fixture without the tenant key.
const DOCUMENTS: u64 = 12;

fn home() -> Home {
    let home = Home::new();
    private_file::create_private_folder(&home.data()).unwrap();
    let heads = home.file("data.keys.head");
    for (path, contents) in [
        (home.data().join("hub.db"), &include_bytes!("fixtures/without_codes/hub.db")[..]),
        (home.data().join("checkpoints"), include_bytes!("fixtures/without_codes/checkpoints")),
        (home.keys(), include_bytes!("fixtures/without_codes/hub.keys")),
        (heads, include_bytes!("fixtures/without_codes/hub.keys.head")),
    ] {
        private_file::write(&path, contents, &SystemPlatform).unwrap();
    }
    home
}

fn verified(home: &Home) -> Value {
    home.run(&["--json", "audit", "verify"]).json()
}

#[test]
fn documents_of_an_earlier_version_get_codes() {
    let home = home();
    let found = verified(&home);
    assert_eq!(
        (&found["intact"], &found["entries"], &found["documents"]),
        (&json!(true), &json!(9), &json!(0))
    );
    let note = "12 documents were stored by an earlier version and could not be verified: start the hub once";
    assert_eq!(found["note"], note, "{found}");
    let hub = home.start();
    let entries = home.json(&["audit", "list", "--action", "documents.authenticated"]);
    assert_eq!(
        (entries.as_array().unwrap().len(), &entries[0]["fields"]["documents"]),
        (1, &json!(DOCUMENTS))
    );
    assert_eq!(home.json(&["agent", "show", "Helper"])["approval"], "auto");
    assert_eq!(home.json(&["token", "list"]).as_array().unwrap().len(), 2);
    hub.end();
    let found = verified(&home);
    assert_eq!((&found["intact"], &found["note"]), (&json!(true), &Value::Null), "{found}");
    assert!(found["documents"].as_u64() >= Some(DOCUMENTS), "{found}");
    // The codes are set once.
    home.start().end();
    let exported = home.ok(&["audit", "export"]);
    assert_eq!(exported.matches("documents.authenticated").count(), 1, "{exported}");
}

#[test]
fn a_document_that_another_program_has_changed_is_refused() {
    let home = home();
    home.start().end();
    home.sql("UPDATE documents SET body = json_set(body, '$.approval', 'always-ask') WHERE kind = 'agent'");
    let found = verified(&home);
    assert_eq!((&found["intact"], &found["kind"]), (&json!(false), &json!("document_changed")), "{found}");
    assert_eq!(found["error"], "the agent `Helper` was added or changed in the database by another program");
    let hub = home.start();
    home.run(&["agent", "show", "Helper"]).expect_output(
        1,
        &["the agent `Helper` was changed in the database by another program", "linchpin audit accept"],
    );
    hub.end();
    home.ok(&["audit", "accept"]);
    assert_eq!(verified(&home)["intact"], true);
    let _hub = home.start();
    assert_eq!(home.json(&["agent", "show", "Helper"])["approval"], "always-ask");
}
