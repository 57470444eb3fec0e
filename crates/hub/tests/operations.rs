//! Operations on the data of a hub: retention, audit segments and verification.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/hub.rs"]
mod hub;
mod support;

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use hub::Home;
use jiff::{SignedDuration, Timestamp};
use linchpin::egress::Egress;
use linchpin_hub_core::hub::{Hub, HubOptions, LOCAL, Retention};
use linchpin_hub_core::platform::{Platform, SystemPlatform};
use linchpin_hub_core::vault::KeyFile;
use linchpin_hub_store::Sqlite;
use serde_json::Value;

/// The system clock, moved forward by a number of days.
struct FutureClock(i64);

impl Platform for FutureClock {
    fn now(&self) -> Timestamp {
        SystemPlatform.now() + SignedDuration::from_hours(24 * self.0)
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        SystemPlatform.fill_random(bytes);
    }
}

/// A stopped hub with this number of calls.
fn used(calls: usize) -> Home {
    let home = Home::new();
    let hub = home.start();
    home.ok(&["server", "connect", "demo"]);
    for number in 0..calls {
        let arguments = format!(r#"{{"message": "{number}"}}"#);
        home.ok(&["tool", "call", "mcp_demo__echo", "--args", &arguments]);
    }
    assert!(hub.end().0.success());
    home
}

/// Seals old audit entries with a retention of one day, after a number of days.
fn seal(home: &Home, days: i64) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Arc::new(Sqlite::open(&home.data().join("hub.db")).unwrap());
        let (keys, _) = KeyFile::open(&home.keys(), &SystemPlatform).unwrap();
        let audit = Some(Duration::from_hours(24));
        let retention = Retention { history: Duration::from_hours(24 * 10_000), audit };
        let segments = Some(home.data().join("audit"));
        let options = HubOptions { retention, segments, ..HubOptions::default() };
        let hub = Hub::new(Arc::new(FutureClock(days)), store, keys, Egress::default(), options);
        hub.audit().archive(LOCAL).await.unwrap();
    });
}

/// Returns the lines of an export without the signed last one, which must fit.
fn exported(home: &Home, arguments: &[&str]) -> Vec<Value> {
    let text = home.ok(&[&["audit", "export"], arguments].concat());
    let (file, lines) = (home.file("export.jsonl"), text.lines().count());
    fs::write(&file, &text).unwrap();
    home.ok(&["audit", "verify", "--file", file.to_str().unwrap()]);
    text.lines().take(lines - 1).map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn sealed_segments_are_checked_and_exported() {
    let home = used(3);
    let before = exported(&home, &[]);
    seal(&home, 3);
    let _hub = home.start();
    home.ok(&["tool", "call", "mcp_demo__echo", "--args", r#"{"message": "on"}"#]);
    let found = home.json(&["audit", "verify"]);
    assert_eq!(
        (&found["intact"], &found["segments"], &found["note"]),
        (&true.into(), &1.into(), &Value::Null)
    );
    let after = exported(&home, &[]);
    let file = after[0]["file"].as_str().unwrap();
    assert_eq!((&after[0]["segment"], &after[0]["is_available"]), (&1.into(), &true.into()));
    let last = after[0]["last"].as_u64().unwrap();
    assert_eq!(last, before.len() as u64 - 1);
    assert_eq!(after[1..=before.len()], before, "every entry is unchanged");
    assert_eq!(exported(&home, &["--after", "2"])[1]["number"], 3);
    let later = exported(&home, &["--after", &last.to_string()]);
    assert_eq!(later, after[usize::try_from(last).unwrap() + 1..], "no entry of the segment");

    fs::rename(file, home.file("elsewhere")).unwrap();
    let said = home.ok(&["audit", "verify"]);
    assert!(
        said.contains("the file of segment 1 is not available, so that its entries were not verified"),
        "{said}"
    );
    let away = exported(&home, &[]);
    assert_eq!((&away[0]["is_available"], &away[1]["number"]), (&false.into(), &(last + 1).into()));
    let text = fs::read_to_string(home.file("elsewhere")).unwrap();
    fs::write(file, text.replacen("user", "User", 1)).unwrap();
    let wrong = home.run(&["audit", "verify"]);
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.stdout.contains("segment 1: entry "), "{}", wrong.stdout);
}

#[test]
fn how_long_calls_are_kept_counts_at_once() {
    let home = used(1);
    let old = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); \
               db.execute(\"UPDATE calls SET completed = completed - 5 * 86400000, \
               id = CAST(x'000000000000' || substr(id, 7) AS BLOB)\"); db.commit()";
    let database = home.data().join("hub.db");
    assert!(Command::new("python3").args(["-c", old]).arg(&database).status().unwrap().success());
    home.write("[history]\ndays = 30\n");
    let mut hub = home.start();
    assert_eq!(home.json(&["calls"]).as_array().unwrap().len(), 1);
    home.write("[history]\ndays = 3\n");
    hub.wait_for("retention changed");
    let gone = || home.json(&["calls"]).as_array().unwrap().is_empty();
    assert!((0..100).any(|_| gone()), "calls are deleted at once");
}
