//! Clients on the official SDKs against a Linchpin server on stdio, in all their connection modes. Each must report the
//! same as with a server of its own SDK, and every message of ours is validated against the schema.

use interop_tests::expected_report::{BATCHES, FORMS, NEWEST_SESSION, OLDEST, STATELESS, expected};
use interop_tests::peer::{peer, run};
use interop_tests::schema_check::schema_violations;
use interop_tests::stdio_recording::{StdioRecording, recorded};
use linchpin::Revision;
use serde_json::json;

fn check(client: &str, mode: Option<&str>, agreed: Revision) {
    let log = StdioRecording::new(env!("CARGO_TARGET_TMPDIR"));
    let mut command = peer(client);
    command.extend(mode.into_iter().flat_map(|mode| ["--mode".to_owned(), mode.to_owned()]));
    command.extend(recorded(&log, &[env!("CARGO_BIN_EXE_tour-server").to_owned()]));
    let report = run(&command);
    let mut wanted = expected(agreed);
    if agreed < FORMS {
        wanted["add"] = r#"{"sum":2.5}"#.into();
        wanted["ask"] = report["ask"].clone(); // the revision has no form elicitation
        assert!(report["ask"].to_string().contains("cannot send elicitation/create"), "{report:#}");
    }
    if agreed == OLDEST {
        let steps = [1, 2, 3].map(|step| json!({ "progress": step, "total": 3 }));
        wanted["progress"] = steps.to_vec().into();
    }
    assert_eq!(report, wanted, "{report:#}");
    let said = log.take();
    assert!(!said.is_empty());
    for (client, server) in said {
        assert_eq!(schema_violations(&server, &client), Vec::<String>::new());
    }
}

macro_rules! pairs {
    ($( $name:ident: $client:literal, $mode:expr => $agreed:expr; )*) => {$(
        #[test]
        fn $name() {
            check($client, $mode, $agreed);
        }
    )*};
}

pairs! {
    typescript_1: "client.mjs", None => NEWEST_SESSION;
    typescript_2_automatic: "client-modern.mjs", Some("auto") => STATELESS;
    typescript_2_legacy: "client-modern.mjs", Some("legacy") => NEWEST_SESSION;
    typescript_2_stateless: "client-modern.mjs", Some(STATELESS.as_str()) => STATELESS;
    typescript_2_newest_session: "client-modern.mjs", Some(NEWEST_SESSION.as_str()) => NEWEST_SESSION;
    typescript_2_forms: "client-modern.mjs", Some(FORMS.as_str()) => FORMS;
    typescript_2_batches: "client-modern.mjs", Some(BATCHES.as_str()) => BATCHES;
    typescript_2_oldest: "client-modern.mjs", Some(OLDEST.as_str()) => OLDEST;
    python_automatic: "client.py", Some("auto") => STATELESS;
    python_legacy: "client.py", Some("legacy") => NEWEST_SESSION;
    python_stateless: "client.py", Some(STATELESS.as_str()) => STATELESS;
}
