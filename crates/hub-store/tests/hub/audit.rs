//! Audit verification: every later modification is detected.

use std::path::Path;

use linchpin_hub_core::ErrorKind;
use linchpin_hub_core::audit::Damage;
use linchpin_hub_core::hub::{AuditQuery, AuditVerification};
use rusqlite::Connection;
use serde_json::json;

use crate::fixture::{ADA, Stage, local_user, open};

const CALLS: usize = 60;
/// Number of an audit entry, in SQL.
const NUMBER: &str = "position & 0xffffffffff";

/// A hub with some audit entries and a checkpoint.
async fn stage() -> Stage {
    let stage = Stage::new().await;
    for number in 0..CALLS {
        stage.call(local_user(ADA), "echo", json!({"message": number.to_string()})).await.unwrap();
    }
    stage.hub.shutdown().await;
    stage
}

async fn verified(stage: &Stage) -> AuditVerification {
    let (hub, _) = open(&stage.folder, stage.clock.clone());
    hub.audit().verify(local_user(ADA)).await.unwrap()
}

fn change(place: &Path, sql: &str) {
    let db = Connection::open(place.join("hub.db")).unwrap();
    db.execute_batch(sql).unwrap();
}

#[tokio::test]
async fn every_change_of_a_row_is_found_where_it_is() {
    let stage = stage().await;
    let whole = verified(&stage).await;
    assert!(whole.intact && whole.checkpoint == Some(whole.entries), "{whole:?}");
    let entries = whole.entries;
    assert!(entries > 2 * CALLS as u64);
    let db = Connection::open(stage.folder.path().join("hub.db")).unwrap();
    db.execute_batch("CREATE TABLE kept AS SELECT * FROM audit").unwrap();
    let restore = "DELETE FROM audit; INSERT INTO audit SELECT * FROM kept";
    for number in [1, 2, 7, entries / 2, entries - 1, entries] {
        for column in [
            "at = at + 1",
            "actor = actor || 'x'",
            "action = 'call.none'",
            "fields = '[]'",
            "fields = fields || ' '",
            "fields = replace(fields, '{', '{\"call\":1,')",
            "hash = zeroblob(32)",
        ] {
            db.execute_batch(&format!("UPDATE audit SET {column} WHERE {NUMBER} = {number}")).unwrap();
            let found = verified(&stage).await;
            assert_eq!((found.intact, found.first_bad_entry), (false, Some(number)), "{column} of {number}");
            db.execute_batch(restore).unwrap();
        }
        db.execute_batch(&format!("DELETE FROM audit WHERE {NUMBER} = {number}")).unwrap();
        let found = verified(&stage).await;
        assert_eq!((found.intact, found.first_bad_entry), (false, Some(number)), "without {number}");
        db.execute_batch(restore).unwrap();
    }
    // Two rows are swapped.
    for (one, other) in [(3, 4), (5, entries), (entries - 1, entries)] {
        let swap = format!(
            "UPDATE audit SET position = position - {one} + 1000000 WHERE {NUMBER} = {one};
             UPDATE audit SET position = position - {other} + {one} WHERE {NUMBER} = {other};
             UPDATE audit SET position = position - 1000000 + {other} WHERE {NUMBER} = 1000000;"
        );
        db.execute_batch(&swap).unwrap();
        let found = verified(&stage).await;
        assert_eq!((found.intact, found.first_bad_entry), (false, Some(one)));
        db.execute_batch(restore).unwrap();
    }
    assert!(verified(&stage).await.intact);
}

#[tokio::test]
async fn an_end_that_is_cut_off_is_missed() {
    let stage = stage().await;
    let entries = verified(&stage).await.entries;
    // With the checkpoint in the database, and without it: the one in the file is enough.
    for also in ["", "DELETE FROM checkpoints;"] {
        change(stage.folder.path(), &format!("DELETE FROM audit WHERE {NUMBER} > {}; {also}", entries - 3));
        let found = verified(&stage).await;
        assert_eq!((found.intact, found.first_bad_entry), (false, Some(entries - 2)));
        assert!(found.error.unwrap().contains("the end of the audit was cut off"));
    }
    // A checkpoint that is not signed with this key is ignored, and reported.
    let file = stage.folder.path().join("checkpoints");
    let mut text = std::fs::read_to_string(&file).unwrap();
    let forged = text.replace(&format!("\"number\":{entries}"), &format!("\"number\":{}", entries - 3));
    text.push_str(&forged);
    std::fs::write(&file, text).unwrap();
    let found = verified(&stage).await;
    assert_eq!((found.kind, found.first_bad_entry), (Some(Damage::EndMissing), Some(entries - 2)));
}

#[tokio::test]
async fn hostile_texts_stay_on_one_line() {
    let stage = Stage::new().await;
    let name = "evil\n{\"action\":\"call.finished\"}\u{1b}[2J\u{202e}\u{2028}";
    let _ = stage.hub.calls().read_resource(local_user(ADA), "up", name).await;
    let rows = stage.hub.audit().entries(local_user(ADA), 0, 500).await.unwrap();
    let row = rows.iter().find(|row| row.action == "resource.read").unwrap();
    let line = serde_json::to_string(row).unwrap();
    assert!(!line.contains(['\n', '\u{1b}', '\u{202e}', '\u{2028}']), "{line}");
    assert!(row.fields["uri"].as_str().unwrap().starts_with("evil\\n{"));
}

#[tokio::test]
async fn a_checkpoint_that_was_cut_off_hides_no_other() {
    let stage = stage().await;
    let file = stage.folder.path().join("checkpoints");
    let mut text = std::fs::read_to_string(&file).unwrap();
    // The disk was full in the middle of a line, and had free space again later.
    let half = text.trim()[..40].to_owned();
    text.push_str(&half);
    std::fs::write(&file, &text).unwrap();
    let (hub, _) = open(&stage.folder, stage.clock.clone());
    hub.calls().read_resource(local_user(ADA), "up", "memory://a").await.unwrap();
    hub.shutdown().await;
    let found = verified(&stage).await;
    assert!(found.intact && found.checkpoint == Some(found.entries), "{found:?}");
    change(
        stage.folder.path(),
        &format!("DELETE FROM checkpoints; DELETE FROM audit WHERE {NUMBER} = {}", found.entries),
    );
    assert_eq!(verified(&stage).await.first_bad_entry, Some(found.entries));
}

#[tokio::test]
async fn entries_are_found_by_actor_action_and_time() {
    let stage = Stage::new().await;
    let user = local_user(ADA);
    stage.hub.identity().ensure_local_user().await.unwrap();
    let agent = stage.agent("Reader", "auto", &[]).await;
    stage.call(user, "echo", json!({"message": "a"})).await.unwrap();
    stage.clock.advance(60);
    let later = stage.hub.registry().server(user, "up").await.unwrap();
    let since = linchpin_hub_core::Platform::now(&*stage.clock);
    stage.call(agent, "echo", json!({"message": "b"})).await.unwrap();
    let find = async |query: AuditQuery, after, limit| {
        stage.hub.audit().find(user, query, after, limit).await.unwrap()
    };
    let actions = |page: &linchpin_hub_core::store::Page<linchpin_hub_core::hub::AuditView>| {
        page.items.iter().map(|entry| entry.action.clone()).collect::<Vec<_>>()
    };
    let of = |actor: &str| AuditQuery { actor: Some(actor.to_owned()), ..AuditQuery::default() };
    for actor in ["Reader".to_owned(), agent.subject().to_string()] {
        let page = find(of(&actor), 0, 50).await;
        assert_eq!(actions(&page), ["call.intent", "call.finished"]);
        let [intent, _] = &page.items[..] else { panic!("{page:?}") };
        assert_eq!(intent.actor_name.as_deref(), Some("Reader"));
        assert_eq!((&*intent.names["server"], page.next), (&*later.slug, None));
    }
    let calls = AuditQuery { action: Some("call.".to_owned()), ..AuditQuery::default() };
    assert_eq!(find(calls.clone(), 0, 50).await.items.len(), 4);
    let page = find(calls.clone(), 0, 3).await;
    let rest = find(calls.clone(), page.next.unwrap().parse().unwrap(), 3).await;
    assert_eq!((page.items.len(), actions(&rest), rest.next), (3, vec!["call.finished".to_owned()], None));
    let group = AuditQuery { action: Some("call".to_owned()), ..AuditQuery::default() };
    assert!(find(group, 0, 50).await.items.is_empty(), "without `.` it is the name of an action");
    for (query, count) in [
        (AuditQuery { since: Some(since), ..calls.clone() }, 2),
        (AuditQuery { until: Some(since), ..calls.clone() }, 2),
        (AuditQuery { since: Some(since), until: Some(since), ..calls }, 0),
    ] {
        assert_eq!(find(query, 0, 50).await.items.len(), count);
    }
    assert!(!find(of("hub"), 0, 50).await.items.is_empty());
    let error = stage.hub.audit().find(user, of("Writer"), 0, 50).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::Invalid, Some("actor")));
    assert!(
        stage.hub.audit().find(agent, AuditQuery::default(), 0, 50).await.is_err(),
        "agents read no audit"
    );
}
