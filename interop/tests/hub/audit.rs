//! F4: the audit is complete, and changes to it are detected.

use std::process::Command;

use interop_tests::hub::{HubDirectory, everything_config};
use serde_json::{Value, json};

use crate::text;

/// Number of an audit entry, in SQL.
const NUMBER: &str = "position & 0xffffffffff";

/// Runs an SQL statement on the database of a stopped hub.
fn sql(home: &HubDirectory, statement: &str) {
    let script =
        "import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1])\ndb.executescript(sys.argv[2])\ndb.commit()";
    let mut command = Command::new("python3");
    let status = command.args(["-c", script]).arg(home.data().join("hub.db")).arg(statement).status();
    assert!(status.unwrap().success(), "{statement}");
}

#[test]
fn f4_the_audit_has_every_decision_and_shows_every_change() {
    let home = HubDirectory::new();
    home.write(&everything_config());
    let hub = home.start();
    hub.post("/servers/everything/connect", Value::Null);
    let (_, agent) = hub.agent("Ada", "always-ask", &json!({ "everything": {} }));
    let asked = agent.call_async("mcp_everything__echo", json!({ "message": "a" }));
    hub.post(
        &format!("/approvals/{}/deny", text(&asked["approval"])),
        json!({ "reason": "no\n{\"number\":1}" }),
    );
    hub.call("mcp_everything__echo", json!({ "message": "b" }));
    let exported = home.ok(&["audit", "export"]);
    let mut rows: Vec<Value> = exported.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(rows.pop().is_some_and(|last| last["signature"].is_string()), "the last line is signed");
    let numbers: Vec<_> = rows.iter().map(|row| row["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=rows.len() as u64).collect::<Vec<_>>());
    let actions: Vec<_> = rows.iter().map(|row| text(&row["action"])).collect();
    for action in [
        "server.added",
        "server.synced",
        "agent.added",
        "approval.requested",
        "approval.denied",
        "call.intent",
        "call.finished",
    ] {
        assert!(actions.contains(&action), "{action} is missing in {actions:?}");
    }
    assert_eq!(without_names(hub.list("/audit?limit=500")), rows);
    assert_eq!(without_names(hub.list("/audit?limit=2&after=3")), rows[3..5]);
    assert_eq!(hub.get("/audit/verify")["intact"], true);
    assert_eq!(agent.send("GET", "/audit/export", None).status, 403);
    hub.end();

    let whole = home.json(&["audit", "verify"]);
    let count = whole["entries"].as_u64().unwrap();
    assert!(whole["intact"] == true && count >= rows.len() as u64, "{whole}");
    let copy = std::fs::read(home.data().join("hub.db")).unwrap();
    let middle = count / 2;
    for (statement, broken) in [
        (format!("UPDATE audit SET actor = 'user:nobody' WHERE {NUMBER} = {middle}"), middle),
        (format!("DELETE FROM audit WHERE {NUMBER} = {middle}"), middle),
        (
            format!(
                "UPDATE audit SET position = position - {middle} WHERE {NUMBER} = {middle}; \
                 UPDATE audit SET position = position - 1 WHERE {NUMBER} = {middle} + 1; \
                 UPDATE audit SET position = position + {middle} + 1 WHERE {NUMBER} = 0"
            ),
            middle,
        ),
        (format!("DELETE FROM audit WHERE {NUMBER} = {count}"), count),
    ] {
        sql(&home, &statement);
        let run = home.run(&["--json", "audit", "verify"]);
        let found: Value = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!(
            (run.code, &found["intact"], &found["first_bad_entry"]),
            (Some(1), &false.into(), &broken.into()),
            "{statement}: {found}"
        );
        let shown = home.run(&["audit", "verify"]);
        assert_eq!(shown.code, Some(1));
        assert!(
            shown.stdout.contains("first damaged entry") && shown.stdout.contains(text(&found["error"])),
            "{}",
            shown.stdout
        );
        std::fs::write(home.data().join("hub.db"), &copy).unwrap();
    }
    assert_eq!(home.json(&["audit", "verify"])["intact"], true);
    let hub = home.start();
    assert_eq!(without_names(hub.list("/audit?limit=500"))[..rows.len()], rows);
}

/// Removes what the list adds to the stored entries: the current names of the ids.
fn without_names(mut entries: Vec<Value>) -> Vec<Value> {
    for entry in entries.iter_mut().filter_map(Value::as_object_mut) {
        assert!(entry.remove("actor_name").is_none_or(|name| name.is_string()));
        entry.remove("names");
    }
    entries
}
