//! Signed head beside the keys: `audit verify` finds and names changes by a user with write access to the data
//! directory.

use std::fs;
use std::path::Path;

use linchpin_hub_core::audit::{AuditEntry, ChainHead, Damage};
use rusqlite::{Connection, params};

use crate::fixture::{ADA, local_user};
use crate::stopped_hub::StoppedHub;

/// Copies the data directory; the keys and the heads are elsewhere.
fn copy(from: &Path, to: &Path) {
    for name in ["hub.db", "checkpoints"] {
        fs::copy(from.join(name), to.join(name)).unwrap();
    }
}

/// Changes the actor of an entry, and computes the chain again from there.
async fn rewrite(ended: &StoppedHub, number: u64) {
    let rows = ended.store().audit_entries(ADA, 0, 500).await.unwrap();
    let db = Connection::open(ended.path().join("hub.db")).unwrap();
    let mut head = ChainHead::start(ADA);
    for row in rows {
        let actor = if row.number == number { "nobody" } else { &*row.actor };
        let mut entry = AuditEntry::new(row.at, actor, String::leak(row.action));
        entry.fields = serde_json::from_str(&row.fields).unwrap();
        let new = head.append(entry);
        let values = params![new.actor, new.fields, new.hash.bytes(), new.number];
        db.execute(
            "UPDATE audit SET actor = ?1, fields = ?2, hash = ?3 WHERE position & 0xffffffffff = ?4",
            values,
        )
        .unwrap();
    }
}

#[tokio::test]
async fn a_chain_that_was_computed_again_is_not_the_signed_one() {
    let ended = StoppedHub::new().await;
    let found = ended.verified().await;
    assert!(found.intact && found.head == Some(found.entries) && found.note.is_none(), "{found:?}");
    rewrite(&ended, 4).await;
    assert_eq!(ended.damage().await, Some(Damage::Rewritten), "a checkpoint remains");
    assert_eq!(ended.verified().await.first_bad_entry, Some(4), "its code names it");
    ended.sql("DELETE FROM checkpoints");
    fs::write(ended.path().join("checkpoints"), "").unwrap();
    assert_eq!(ended.damage().await, Some(Damage::Rewritten), "the signed head is sufficient");
    // A hub that starts on it neither signs it nor continues it.
    ended.run_in_vain().await;
    assert_eq!(ended.damage().await, Some(Damage::Rewritten));
    // Without codes, the chain is still not the signed one.
    ended.sql("UPDATE audit SET code = NULL");
    assert_eq!(ended.damage().await, Some(Damage::Rewritten));
    ended.hub().audit().accept().await.unwrap();
    assert_eq!(ended.damage().await, None);
}

/// Adds an entry with a correct hash to the end of the audit. `code` is an SQL expression.
async fn append(ended: &StoppedHub, code: &str) -> u64 {
    let last = ended.store().audit_entries(ADA, 0, 500).await.unwrap().pop().unwrap();
    let mut head = ChainHead { number: last.number, hash: last.hash };
    let new = head.append(AuditEntry::new(last.at, "hub", "agent.removed"));
    let sql = format!(
        "INSERT INTO audit SELECT position + 1, at, ?1, ?2, ?3, ?4, {code} FROM audit ORDER BY position DESC LIMIT 1"
    );
    let db = Connection::open(ended.path().join("hub.db")).unwrap();
    db.execute(&sql, params![new.actor, new.action, new.fields, new.hash.bytes()]).unwrap();
    new.number
}

#[tokio::test]
async fn an_entry_that_was_added_while_no_hub_runs_is_found() {
    for code in ["NULL", "code"] {
        let ended = StoppedHub::new().await;
        let number = append(&ended, code).await;
        let found = ended.verified().await;
        assert_eq!((found.kind, found.first_bad_entry), (Some(Damage::LateEntry), Some(number)), "{found:?}");
        let head = found.head;
        // A hub that starts on it neither signs it nor continues it.
        ended.run_in_vain().await;
        let found = ended.verified().await;
        assert_eq!((found.kind, found.head), (Some(Damage::LateEntry), head), "{found:?}");
        ended.hub().audit().accept().await.unwrap();
        assert_eq!(ended.damage().await, None);
        ended.run(1).await;
        assert_eq!(ended.damage().await, None);
    }
}

#[tokio::test]
async fn entries_that_are_gone_are_missed() {
    let ended = StoppedHub::new().await;
    let entries = ended.verified().await.entries;
    ended.sql("DELETE FROM checkpoints");
    assert_eq!(ended.damage().await, None, "the file has a checkpoint");
    fs::remove_file(ended.path().join("checkpoints")).unwrap();
    assert_eq!(ended.damage().await, Some(Damage::NoCheckpoint));
    ended.sql(&format!("DELETE FROM audit WHERE position & 0xffffffffff = {entries}"));
    assert_eq!(ended.damage().await, Some(Damage::OlderCopy));
    ended.sql("DELETE FROM audit");
    assert_eq!(ended.damage().await, Some(Damage::AllRemoved));
    ended.sql("DELETE FROM documents");
    assert_eq!(ended.damage().await, Some(Damage::AllRemoved));
    // The hub restarts with a new database.
    fs::remove_file(ended.path().join("hub.db")).unwrap();
    ended.run(20).await;
    assert_eq!(ended.damage().await, Some(Damage::OtherStore));
}

#[tokio::test]
async fn a_hub_appends_nothing_to_an_entry_of_another_program() {
    for code in ["NULL", "code"] {
        let ended = StoppedHub::new().await;
        let hub = ended.hub();
        hub.unlock().await.unwrap();
        hub.audit().sign().await.unwrap();
        let number = append(&ended, code).await;
        let error = hub.identity().add_user(local_user(ADA), "eve").await.unwrap_err();
        assert_eq!(error.code(), "audit_tampered", "{error}");
        assert!(error.message().contains(&format!("entry {number} of the audit")), "{error}");
        // The signed head is not moved to the entry.
        hub.audit().sign().await.unwrap();
        hub.shutdown().await;
        let found = ended.verified().await;
        assert_eq!((found.kind, found.first_bad_entry), (Some(Damage::LateEntry), Some(number)), "{found:?}");
    }
}

#[tokio::test]
async fn an_older_copy_is_found_and_is_accepted_by_command_alone() {
    let (ended, older) = (StoppedHub::new().await, tempfile::tempdir().unwrap());
    copy(ended.path(), older.path());
    ended.run(3).await;
    assert_eq!(ended.damage().await, None);
    let newest = tempfile::tempdir().unwrap();
    copy(ended.path(), newest.path());
    copy(older.path(), ended.path());
    assert_eq!(ended.damage().await, Some(Damage::OlderCopy));
    // Entries that a hub adds afterwards make it another history.
    ended.run(1).await;
    assert_eq!(ended.damage().await, Some(Damage::OlderCopy));
    ended.run(5).await;
    assert_eq!(ended.damage().await, Some(Damage::Forked));
    let before = ended.verified().await.head;
    ended.hub().audit().accept().await.unwrap();
    let found = ended.verified().await;
    assert!(found.intact && found.head == Some(found.entries), "{found:?}");
    let rows = ended.store().audit_entries(ADA, found.entries - 1, 1).await.unwrap();
    assert_eq!(rows[0].action, "audit.accepted");
    assert!(rows[0].fields.contains(&format!("\"signed_head\":{}", before.unwrap())), "{}", rows[0].fields);
    ended.run(2).await;
    assert_eq!(ended.damage().await, None);
    // Now the former data directory is another history.
    copy(newest.path(), ended.path());
    assert!(ended.damage().await.is_some());
}

#[tokio::test]
async fn another_database_in_its_place_is_found() {
    let (ended, other) = (StoppedHub::new().await, StoppedHub::new().await);
    let keys = fs::read(ended.path().join("keys")).unwrap();
    fs::write(other.path().join("keys"), keys).unwrap();
    fs::remove_file(other.path().join("heads")).unwrap();
    fs::remove_file(other.path().join("checkpoints")).unwrap();
    other.sql(
        "DELETE FROM documents WHERE kind <> 'store_id'; DELETE FROM audit; DELETE FROM checkpoints;
         UPDATE documents SET code = NULL",
    );
    other.run(20).await;
    copy(other.path(), ended.path());
    assert_eq!(ended.damage().await, Some(Damage::OtherStore));
    ended.run(3).await;
    assert_eq!(ended.damage().await, Some(Damage::OtherStore), "the hub does not sign it");
}

#[tokio::test]
async fn a_store_from_before_gets_its_first_head_when_a_hub_starts() {
    let ended = StoppedHub::new().await;
    fs::remove_file(ended.path().join("heads")).unwrap();
    ended.sql("DELETE FROM documents WHERE kind = 'store_id'");
    let found = ended.verified().await;
    assert!(found.intact && found.head.is_none(), "{found:?}");
    assert!(found.note.unwrap().starts_with("there is no signed head yet"));
    ended.run(0).await;
    let found = ended.verified().await;
    assert!(found.intact && found.head == Some(found.entries) && found.note.is_none(), "{found:?}");
}

#[tokio::test]
async fn a_checkpoint_without_a_signature_is_reported_and_ignored() {
    let ended = StoppedHub::new().await;
    let file = ended.path().join("checkpoints");
    let text = fs::read_to_string(&file).unwrap();
    let entries = ended.verified().await.entries;
    let forged = text.replace(&format!("\"number\":{entries}"), "\"number\":1000");
    fs::write(&file, format!("{text}{forged}")).unwrap();
    ended.sql("INSERT INTO checkpoints SELECT tenant, 999, at, hash, signature FROM checkpoints LIMIT 1");
    let found = ended.verified().await;
    assert!(found.intact && found.checkpoint == Some(entries), "{found:?}");
    assert_eq!(
        found.note.as_deref(),
        Some("2 checkpoints are not signed with the key of this hub and were ignored")
    );
    // The hub continues to write its own checkpoints.
    ended.run(1).await;
    let found = ended.verified().await;
    assert!(found.intact && found.checkpoint == Some(found.entries), "{found:?}");
}
