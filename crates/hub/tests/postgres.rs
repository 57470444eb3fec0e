//! The hub with a PostgreSQL database.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/hub.rs"]
mod hub;
mod support;

use std::fs;

use hub::Home;
use rustix::process::Signal;
use test_postgres::{Server, server};

#[test]
fn everything_is_in_the_database_and_what_opens_it_is_not() {
    let database = server().create_database();
    let home = Home::with_database(server().url(&database));
    let hub = home.start();
    home.ok(&["server", "connect", "demo"]);
    let call = ["tool", "call", "mcp_demo__echo", "--args", r#"{"message": "hi"}"#];
    home.ok(&call);
    assert!(hub.end().0.success());
    assert!(!home.data().join("hub.db").exists());
    assert_eq!(server().sql(&database, "SELECT status FROM calls"), "success");
    let hub = home.start();
    assert_eq!(home.json(&["calls"])[0]["status"], "success");
    hub.signal(Signal::KILL);
    drop(hub);
    assert_eq!(home.json(&["audit", "verify"])["intact"], true);
    assert!(home.ok(&["audit", "export"]).lines().count() > 2);
    // The same with an option, and with a key file of another hub.
    let url = server().url(&database);
    let other = Home::new();
    fs::create_dir_all(other.file("elsewhere")).unwrap();
    let nowhere = other.file("elsewhere/hub.keys");
    let options = ["--database", &url, "--key-file", nowhere.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    other.run(&options).expect_output(
        1,
        &["elsewhere/hub.keys` is missing", "in the database is encrypted with", "--key-file"],
    );
    assert!(!nowhere.exists(), "no new keys are created");
    // A manipulation is detected.
    server().sql(&database, "DELETE FROM audit WHERE number = 2");
    home.run(&["audit", "verify"]).expect_output(1, &[]);
}

#[test]
fn a_database_that_cannot_be_used_is_told_without_its_password() {
    for (url, text) in [
        (
            "postgres://hub:hunter2@127.0.0.1:1/hub?sslmode=verify-full&sslrootcert=%2Fno%2Fsuch.pem",
            "the sslrootcert `/no/such.pem` of the database URL",
        ),
        ("postgres://hub:hunter2@%2Fno%2Fsuch%2Ffolder/hub", "the database is unreachable"),
        ("mysql://hub:hunter2@localhost/hub", "invalid database URL"),
    ] {
        let home = Home::with_database(url.to_owned());
        for arguments in
            [&["--listen", "127.0.0.1:0"][..], &["audit", "export"], &["--json", "audit", "export"]]
        {
            let said = home.run(arguments);
            let all = format!("{}{}", said.stdout, said.stderr);
            assert!(all.contains(text) && !all.contains("hunter2"), "{all}");
            assert_eq!(said.code, Some(1), "{all}");
        }
    }
}

#[test]
fn a_hub_works_on_when_its_database_is_back() {
    let server = Server::start();
    let home = Home::with_database(server.url(&server.create_database()));
    let hub = home.start();
    home.ok(&["server", "connect", "demo"]);
    let call = ["tool", "call", "mcp_demo__echo", "--args", r#"{"message": "hi"}"#];
    home.ok(&call);
    server.stop();
    home.run(&call).expect_output(1, &["the database is unreachable"]);
    server.restart();
    // The hub reconnects with a backoff of a few seconds at most.
    assert!((0..200).any(|_| home.run(&call).code == Some(0)), "the hub does not reconnect");
    assert!(hub.end().0.success());
    assert_eq!(home.json(&["audit", "verify"])["intact"], true);
}
