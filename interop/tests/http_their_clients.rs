//! Clients on the official SDKs against a Linchpin server over HTTP, in all their connection modes. Each must report
//! the same as with a server of its own SDK, and every message of ours is validated against the schema. In the last
//! test, clients of three eras use one server at one URL concurrently.

use std::thread;

use interop_tests::client::{tour, tour_notifications, with_handlers, with_notification_log};
use interop_tests::expected_report::{
    BATCHES, FORMS, NEWEST_SESSION, OLDEST, STATELESS, expected, expected_notifications, expected_of_client,
    join,
};
use interop_tests::http_log::conversations;
use interop_tests::peer::{RunningServer, peer, run};
use interop_tests::recording_proxy::Proxy;
use interop_tests::schema_check::{OwnSide, schema_violations_over_http};
use linchpin::{Client, Revision};
use serde_json::{Value, json};

fn serve() -> (RunningServer, Proxy) {
    let server = RunningServer::start(&[env!("CARGO_BIN_EXE_tour-server").to_owned(), "http".to_owned()]);
    let proxy = Proxy::start(server.address());
    (server, proxy)
}

/// Runs the tour with a client and returns its report.
fn report(client: &str, mode: Option<&str>, way: &str, url: &str) -> Value {
    let mut command = peer(client);
    command.extend(mode.into_iter().flat_map(|mode| ["--mode".to_owned(), mode.to_owned()]));
    command.extend([way.to_owned(), url.to_owned()]);
    run(&command)
}

/// Returns the expected report of a client in a revision.
fn expected_report(client: &str, agreed: Revision, report: &Value) -> Value {
    let mut wanted = expected_of_client(client, agreed, report);
    if client == "client.mjs" && agreed == BATCHES {
        wanted["batch"] = json!({
            "batch-1": {},
            "batch-2": { "content": [{ "type": "text", "text": "one of two" }], "isError": false },
        });
    }
    wanted
}

/// Validates all messages of our server against the schemas.
fn check_messages(proxy: &Proxy) {
    assert_eq!(schema_violations_over_http(&proxy.entries(), OwnSide::Server), Vec::<String>::new());
}

fn check(client: &str, mode: Option<&str>, way: &str, path: &str, agreed: Revision) {
    let (_server, proxy) = serve();
    let report = report(client, mode, way, &proxy.url(path));
    assert_eq!(report, expected_report(client, agreed, &report), "{report:#}");
    check_messages(&proxy);
}

macro_rules! pairs {
    ($( $name:ident: $client:literal, $mode:expr, $way:literal, $path:literal => $agreed:expr; )*) => {$(
        #[test]
        fn $name() {
            check($client, $mode, $way, $path, $agreed);
        }
    )*};
}

pairs! {
    typescript_1: "client.mjs", None, "--url", "/mcp" => NEWEST_SESSION;
    typescript_1_sse: "client.mjs", None, "--sse", "/sse" => NEWEST_SESSION;
    typescript_of_batches: "client.mjs", Some(BATCHES.as_str()), "--url", "/mcp" => BATCHES;
    typescript_of_the_beginning: "client.mjs", Some(OLDEST.as_str()), "--sse", "/sse" => OLDEST;
    typescript_of_the_beginning_at_the_same_path: "client.mjs", Some(OLDEST.as_str()), "--sse", "/mcp" => OLDEST;
    typescript_2_automatic: "client-modern.mjs", Some("auto"), "--url", "/mcp" => STATELESS;
    typescript_2_stateless: "client-modern.mjs", Some(STATELESS.as_str()), "--url", "/mcp" => STATELESS;
    typescript_2_legacy: "client-modern.mjs", Some("legacy"), "--url", "/mcp" => NEWEST_SESSION;
    typescript_2_forms: "client-modern.mjs", Some(FORMS.as_str()), "--url", "/mcp" => FORMS;
    typescript_2_batches: "client-modern.mjs", Some(BATCHES.as_str()), "--url", "/mcp" => BATCHES;
    typescript_2_oldest_sse: "client-modern.mjs", Some(OLDEST.as_str()), "--sse", "/sse" => OLDEST;
    python_2_automatic: "client.py", Some("auto"), "--url", "/mcp" => STATELESS;
    python_2_stateless: "client.py", Some(STATELESS.as_str()), "--url", "/mcp" => STATELESS;
    python_2_legacy: "client.py", Some("legacy"), "--url", "/mcp" => NEWEST_SESSION;
    python_2_sse: "client.py", Some("legacy"), "--sse", "/sse" => NEWEST_SESSION;
    python_1: "client-1.py", None, "--url", "/mcp" => NEWEST_SESSION;
    python_1_sse: "client-1.py", None, "--sse", "/sse" => NEWEST_SESSION;
    rmcp_stateless: "rmcp client", None, "--url", "/mcp" => STATELESS;
    rmcp_session: "rmcp client", Some("legacy"), "--url", "/mcp" => NEWEST_SESSION;
}

#[test]
fn clients_get_the_rest_of_a_stream_that_was_cut() {
    for (client, mode) in [
        ("client.mjs", None),
        ("client-modern.mjs", Some("legacy")),
        ("client.py", Some("legacy")),
        ("client-1.py", None),
        ("rmcp client", Some("legacy")),
    ] {
        for cut in [Proxy::cut_before, Proxy::cut_after] {
            let (_server, proxy) = serve();
            cut(&proxy, "step 2");
            let report = report(client, mode, "--url", &proxy.url("/mcp"));
            assert_eq!(report, expected_report(client, NEWEST_SESSION, &report), "{client}: {report:#}");
            assert_eq!(proxy.resumptions(), 1, "{client}");
            check_messages(&proxy);
        }
    }
}

/// One process, one URL: clients of three eras and ours, concurrently.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn clients_of_all_eras_at_the_same_time() {
    let (_server, proxy) = serve();
    proxy.gather("tools/list", 5); // the first request of each client
    let url = proxy.url("/mcp");
    let theirs = [
        ("client.mjs", Some(OLDEST.as_str()), "--sse", OLDEST),
        ("client.mjs", None, "--url", NEWEST_SESSION),
        ("client-modern.mjs", Some(STATELESS.as_str()), "--url", STATELESS),
    ];
    let running = theirs.map(|(client, mode, way, agreed)| {
        let url = url.clone();
        thread::spawn(move || {
            let report = report(client, mode, way, &url);
            assert_eq!(report, expected_report(client, agreed, &report), "{report:#}");
        })
    });
    let ours = async |revision: Revision| {
        let (client, mut heard) = with_notification_log(with_handlers(Client::http(&url)));
        let client = client.revisions([revision]).connect().await.unwrap();
        let mut report = tour(&client).await;
        join(&mut report, tour_notifications(&client, &mut heard).await);
        client.close().await;
        let mut wanted = expected(revision);
        join(&mut wanted, expected_notifications());
        assert_eq!(report, wanted, "{report:#}");
    };
    tokio::join!(ours(NEWEST_SESSION), ours(FORMS));
    for client in running {
        client.join().unwrap();
    }
    let said = conversations(&proxy.entries());
    assert_eq!(said.len(), 5, "four sessions, and the messages without one");
    check_messages(&proxy);
}
