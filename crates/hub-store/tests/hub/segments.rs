//! Audit segments: old entries move from the store into sealed files, and damage to the files is detected.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use linchpin_hub_core::hub::{AuditVerification, Retention};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::fixture::{ADA, Stage, local_user, open};

const DAY: i64 = 24 * 60 * 60;
const RETENTION: Retention =
    Retention { history: Duration::from_hours(30 * 24), audit: Some(Duration::from_hours(10 * 24)) };

/// A hub with calls on each of `days` days.
async fn stage(days: usize) -> Stage {
    let stage = Stage::new().await;
    for day in 0..days {
        for number in 0..5 {
            let message = json!({ "message": format!("{day} {number}") });
            stage.call(local_user(ADA), "echo", message).await.unwrap();
        }
        stage.clock.advance(DAY);
    }
    stage
}

/// Advances the clock by a day, and seals old entries.
async fn seal_next_day(stage: &Stage) {
    stage.clock.advance(DAY);
    stage.hub.audit().archive(ADA).await.unwrap();
}

async fn verified(stage: &Stage) -> AuditVerification {
    let (hub, _) = open(&stage.folder, stage.clock.clone());
    hub.audit().verify(local_user(ADA)).await.unwrap()
}

fn files(stage: &Stage) -> Vec<PathBuf> {
    let found = fs::read_dir(stage.folder.path().join("audit")).into_iter().flatten();
    let mut files: Vec<_> = found.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

/// Counts the occurrences of each entry in files and store.
async fn entry_counts(stage: &Stage) -> BTreeMap<u64, usize> {
    let mut numbers = BTreeMap::new();
    for file in files(stage) {
        let text = fs::read_to_string(file).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        for number in lines.filter_map(|line| line["number"].as_u64()) {
            *numbers.entry(number).or_default() += 1;
        }
    }
    let mut after = 0;
    loop {
        let rows = stage.store.audit_entries(ADA, after, 500).await.unwrap();
        let Some(last) = rows.last() else { return numbers };
        after = last.number;
        for row in rows {
            *numbers.entry(row.number).or_default() += 1;
        }
    }
}

async fn assert_each_entry_once(stage: &Stage) {
    let (numbers, head) = (entry_counts(stage).await, stage.store.audit_head(ADA).await.unwrap().number);
    assert!(numbers.keys().copied().eq(1..=head) && numbers.values().all(|count| *count == 1), "{numbers:?}");
    let found = verified(stage).await;
    assert!(found.intact && found.entries == head && found.note.is_none(), "{found:?}");
}

#[tokio::test]
async fn what_is_old_is_in_files_and_the_chain_goes_on() {
    let stage = stage(12).await;
    stage.hub.audit().archive(ADA).await.unwrap();
    assert!(files(&stage).is_empty(), "by default the audit is retained without limit");
    let before = entry_counts(&stage).await.len();
    stage.hub.audit().set_retention(RETENTION).await.unwrap();
    assert_eq!(files(&stage).len(), 1);
    let kept = stage.store.audit_entries(ADA, 0, 500).await.unwrap();
    assert!(kept[0].number > 1 && kept.last().unwrap().action == "audit.segment_sealed");
    assert_eq!(entry_counts(&stage).await.len(), before + 1);
    assert_each_entry_once(&stage).await;
    stage.hub.audit().archive(ADA).await.unwrap();
    assert_eq!(files(&stage).len(), 1, "no further old entries");
    seal_next_day(&stage).await;
    seal_next_day(&stage).await;
    assert_eq!((files(&stage).len(), verified(&stage).await.segments), (3, 3));
    assert_each_entry_once(&stage).await;
    // The last entry always stays in the store, so that the next one can follow it.
    stage.clock.advance(100 * DAY);
    stage.hub.audit().archive(ADA).await.unwrap();
    assert!(!stage.store.audit_entries(ADA, 0, 500).await.unwrap().is_empty());
    stage.call(local_user(ADA), "echo", json!({"message": "on"})).await.unwrap();
    stage.hub.shutdown().await;
    assert_each_entry_once(&stage).await;
}

#[tokio::test]
async fn whoever_is_interrupted_loses_nothing_and_doubles_nothing() {
    let stage = stage(12).await;
    let db = Connection::open(stage.folder.path().join("hub.db")).unwrap();
    // The file cannot be written: all entries stay in the store.
    fs::write(stage.folder.path().join("audit"), "no folder").unwrap();
    let error = stage.hub.audit().set_retention(RETENTION).await.unwrap_err();
    assert_eq!(error.code(), "segment_unwritable");
    fs::remove_file(stage.folder.path().join("audit")).unwrap();
    assert_each_entry_once(&stage).await;
    // The file is written, but the entries are still in the store.
    for table in ["audit", "documents"] {
        let when = if table == "audit" { "BEFORE DELETE" } else { "BEFORE INSERT" };
        let end = format!("CREATE TRIGGER ends {when} ON {table} BEGIN SELECT RAISE(ABORT, 'cut'); END");
        db.execute_batch(&end).unwrap();
        stage.hub.audit().archive(ADA).await.unwrap_err();
        assert_eq!(files(&stage).len(), 1);
        db.execute_batch("DROP TRIGGER ends").unwrap();
        let found = verified(&stage).await;
        assert!(found.intact && found.segments == 0, "{found:?}");
    }
    // Days later more entries are old. The unfinished segment is completed unchanged.
    let begun = (files(&stage), fs::read(&files(&stage)[0]).unwrap());
    stage.clock.advance(2 * DAY);
    stage.hub.audit().archive(ADA).await.unwrap();
    assert_eq!((files(&stage)[..1].to_vec(), fs::read(&files(&stage)[0]).unwrap()), begun);
    assert_eq!(files(&stage).len(), 2);
    assert_each_entry_once(&stage).await;
    // Another hub seals concurrently: no entry is lost, and no file is left over.
    let (other, _) = open(&stage.folder, stage.clock.clone());
    stage.clock.advance(DAY);
    let (one, two) = tokio::join!(other.audit().set_retention(RETENTION), stage.hub.audit().archive(ADA));
    assert!(one.is_ok() || two.is_ok());
    assert_each_entry_once(&stage).await;
}

#[tokio::test]
async fn whatever_is_done_to_a_segment_is_found() {
    let stage = stage(12).await;
    stage.hub.audit().set_retention(RETENTION).await.unwrap();
    seal_next_day(&stage).await;
    seal_next_day(&stage).await;
    stage.hub.shutdown().await;
    assert_each_entry_once(&stage).await;
    let files = files(&stage);
    let whole: Vec<_> = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let lines: Vec<_> = whole[1].lines().collect();
    let first: Value = serde_json::from_str(lines[0]).unwrap();
    let first = first["number"].as_u64().unwrap();
    let without = |left_out: usize| {
        let kept = lines.iter().enumerate().filter(|(index, _)| *index != left_out);
        kept.flat_map(|(_, line)| [*line, "\n"]).collect::<String>()
    };
    let last = lines.len() - 1;
    for (text, number, what) in [
        (whole[1].replacen("user:", "User:", 1), first, "was changed"),
        (whole[1].replacen("\"at\":\"2027", "\"at\":\"2028", 1), first, "was changed"),
        (without(0), first, "missing"),
        (without(3), first + 3, "missing"),
        (without(last), first + last as u64, "cut off"),
        (whole[1][..whole[1].len() / 2].to_owned(), 0, "cut off"),
        (whole[1].trim_end().to_owned(), first + last as u64, "cut off"),
        (whole[1].replace("\"segment\":2", "\"segment\":3"), first, "differs from the file that was sealed"),
        (format!("{}{{}}\n", whole[1]), first + last as u64 - 1, "has data after its last line"),
        (whole[1].replacen('{', "", 1), first, "not an audit entry"),
        (whole[0].clone(), first, "missing or out of order"),
        (whole[2].clone(), first, "missing or out of order"),
        (String::new(), first, "cut off"),
    ] {
        fs::write(&files[1], &text).unwrap();
        let found = verified(&stage).await;
        let problem = found.error.unwrap();
        assert!(!found.intact && problem.starts_with("segment 2: entry "), "{problem}");
        assert!(
            problem.contains(what) && (number == 0 || found.first_bad_entry == Some(number)),
            "{number} {what}: {problem}"
        );
    }
    fs::write(&files[1], &whole[1]).unwrap();
    assert_each_entry_once(&stage).await;

    // Missing files are noted, but are no damage: they may be archived elsewhere.
    for (gone, note) in [
        (0, "the file of segment 1 is not"),
        (1, "the files of segments 1-2 are"),
        (2, "the files of segments 1-3 are not"),
    ] {
        fs::remove_file(&files[gone]).unwrap();
        let found = verified(&stage).await;
        assert!(found.intact && found.note.as_ref().unwrap().starts_with(note), "{found:?}");
    }
    // The segment records in the store are signed, and cannot be removed unnoticed.
    let db = Connection::open(stage.folder.path().join("hub.db")).unwrap();
    db.execute_batch("CREATE TABLE before AS SELECT * FROM documents").unwrap();
    for (change, what) in [
        (
            "UPDATE documents SET body = replace(body, '\"first\":1,', '\"first\":2,') WHERE kind = 'segment'",
            "not signed with the key of this hub",
        ),
        ("DELETE FROM documents WHERE kind = 'segment' AND id LIKE '%01'", "segment 1: "),
        (
            "DELETE FROM documents WHERE id = (SELECT max(id) FROM documents WHERE kind = 'segment')",
            "is missing",
        ),
        ("DELETE FROM documents WHERE kind = 'segment'", "entry 1 of the audit"),
    ] {
        db.execute_batch(change).unwrap();
        let found = verified(&stage).await;
        let problem = found.error.unwrap();
        assert!(!found.intact && problem.contains(what), "{what}: {problem}");
        db.execute_batch("DELETE FROM documents; INSERT INTO documents SELECT * FROM before").unwrap();
    }
}
