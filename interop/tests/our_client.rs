//! Linchpin's client against stdio servers on the official SDKs, in all their revisions. It uses all features listed in
//! `README.md`, and every message of the client is validated against the schema.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Mutex;

use interop_tests::client::{client, text, tour};
use interop_tests::expected_report::{BATCHES, FORMS, NEWEST_SESSION, OLDEST, STATELESS, expected};
use interop_tests::peer::peer;
use interop_tests::schema_check::schema_violations;
use interop_tests::stdio_recording::{StdioRecording, recorded};
use linchpin::Revision;
use linchpin::model::ElicitResult;

/// Runs the tour with a client limited to the revisions `spoken`, and expects the revision `agreed`.
async fn check(server: &str, spoken: impl IntoIterator<Item = Revision>, agreed: Revision) {
    let log = StdioRecording::new(env!("CARGO_TARGET_TMPDIR"));
    let client = client(&recorded(&log, &peer(server))).revisions(spoken).connect().await.unwrap();
    let report = tour(&client).await;
    client.close().await;
    let mut wanted = expected(agreed);
    if agreed < FORMS {
        // The revision has no form elicitation. All other messages these servers send as in a newer revision, and
        // the client accepts them.
        wanted["ask"] = report["ask"].clone();
        assert!(!report["ask"].to_string().contains("Ada"), "{report:#}");
    }
    assert_eq!(report, wanted, "{report:#}");
    let said = log.take();
    assert_eq!(said.len(), 1, "one process is started");
    for (client, server) in said {
        assert_eq!(schema_violations(&client, &server), Vec::<String>::new());
    }
}

macro_rules! pairs {
    ($( $name:ident: $server:literal, $spoken:expr => $agreed:expr; )*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            check($server, $spoken, $agreed).await;
        }
    )*};
}

pairs! {
    typescript_1_automatic: "server.mjs", Revision::ALL => NEWEST_SESSION;
    typescript_1_newest_session: "server.mjs", [NEWEST_SESSION] => NEWEST_SESSION;
    typescript_1_forms: "server.mjs", [FORMS] => FORMS;
    typescript_1_batches: "server.mjs", [BATCHES] => BATCHES;
    typescript_1_oldest: "server.mjs", [OLDEST] => OLDEST;
    typescript_2_automatic: "server-modern.mjs", Revision::ALL => STATELESS;
    typescript_2_stateless: "server-modern.mjs", [STATELESS] => STATELESS;
    typescript_2_newest_session: "server-modern.mjs", [NEWEST_SESSION] => NEWEST_SESSION;
    typescript_2_forms: "server-modern.mjs", [FORMS] => FORMS;
    typescript_2_batches: "server-modern.mjs", [BATCHES] => BATCHES;
    typescript_2_oldest: "server-modern.mjs", [OLDEST] => OLDEST;
    python_automatic: "server.py", Revision::ALL => STATELESS;
    python_stateless: "server.py", [STATELESS] => STATELESS;
    python_newest_session: "server.py", [NEWEST_SESSION] => NEWEST_SESSION;
    python_forms: "server.py", [FORMS] => FORMS;
    python_batches: "server.py", [BATCHES] => BATCHES;
    python_oldest: "server.py", [OLDEST] => OLDEST;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_may_decline_or_close_the_question() {
    for (server, spoken) in [("server-modern.mjs", STATELESS), ("server.mjs", NEWEST_SESSION)] {
        let answers = Mutex::new(vec![ElicitResult::cancel(), ElicitResult::decline()]);
        let client = client(&peer(server)).revisions([spoken]).on_elicit(move |_| {
            let answer = answers.lock().unwrap().pop();
            async move { answer.ok_or_else(|| linchpin::Error::tool("too many elicitations")) }
        });
        let client = client.connect().await.unwrap();
        assert_eq!(text(client.call("ask", ()).await), "the user said decline");
        assert_eq!(text(client.call("ask", ()).await), "the user said cancel");
        client.close().await;
    }
}

#[test]
fn the_check_of_messages_finds_faults() {
    let wrong = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#;
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25"}}"#;
    assert_eq!(schema_violations(wrong, answer).len(), spec_check::Schemas::find().into_iter().count());
}
