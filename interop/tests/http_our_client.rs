//! Linchpin's client against servers on the official SDKs over HTTP, in all their revisions and transports. It uses all
//! features listed in `README.md`, and every message of the client is validated against the schema.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use interop_tests::client::{
    check_unknown_items, text, tour, tour_notifications, with_handlers, with_notification_log,
};
use interop_tests::expected_report::{
    BATCHES, FORMS, NEWEST_SESSION, OLDEST, STATELESS, expected, expected_notifications, join,
};
use interop_tests::http_log::ExchangePart;
use interop_tests::peer::{RunningServer, peer};
use interop_tests::recording_proxy::Proxy;
use interop_tests::schema_check::{OwnSide, schema_violations_over_http};
use linchpin::transport::http::HttpTransport;
use linchpin::{Client, ClientBuilder, Revision};
use serde_json::json;

fn serve(server: &str) -> (RunningServer, Proxy) {
    let (name, options) = if server.starts_with("rmcp") {
        (server, "")
    } else {
        server.split_once(' ').unwrap_or((server, ""))
    };
    let mut command = peer(name);
    command.extend(options.split_whitespace().map(str::to_owned));
    let server = RunningServer::start(&command);
    let proxy = Proxy::start(server.address());
    (server, proxy)
}

/// Validates all messages of the client against the schemas.
fn check_messages(proxy: &Proxy) {
    assert_eq!(schema_violations_over_http(&proxy.entries(), OwnSide::Client), Vec::<String>::new());
}

/// Runs the tour at `path` with a client limited to the revisions `spoken`, and expects the revision `agreed`.
async fn check(server: &str, path: &str, spoken: impl IntoIterator<Item = Revision>, agreed: Revision) {
    let (_server, proxy) = serve(server);
    let (client, mut heard) = with_notification_log(with_handlers(Client::http(proxy.url(path))));
    let client = client.revisions(spoken).connect().await.unwrap();
    if agreed < STATELESS {
        proxy.wait_for_stream();
    }
    let mut report = tour(&client).await;
    join(&mut report, tour_notifications(&client, &mut heard).await);
    check_unknown_items(&client).await;
    client.close().await;
    let mut wanted = expected(agreed);
    join(&mut wanted, expected_notifications());
    if agreed < FORMS {
        // The revision has no form elicitation. All other messages these servers send as in a newer revision, and
        // the client accepts them.
        wanted["ask"] = report["ask"].clone();
        assert!(!report["ask"].to_string().contains("Ada"), "{report:#}");
    }
    assert_eq!(report, wanted, "{report:#}");
    check_messages(&proxy);
}

macro_rules! pairs {
    ($( $name:ident: $server:literal, $path:literal, $spoken:expr => $agreed:expr; )*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            check($server, $path, $spoken, $agreed).await;
        }
    )*};
}

pairs! {
    typescript_1_automatic: "server.mjs http", "/mcp", Revision::ALL => NEWEST_SESSION;
    typescript_1_forms: "server.mjs http", "/mcp", [FORMS] => FORMS;
    typescript_1_batches: "server.mjs http", "/mcp", [BATCHES] => BATCHES;
    typescript_1_sse_automatic: "server.mjs http", "/sse", Revision::ALL => NEWEST_SESSION;
    typescript_1_sse_oldest: "server.mjs http", "/sse", [OLDEST] => OLDEST;
    typescript_2_automatic: "server-modern.mjs http", "/mcp", Revision::ALL => STATELESS;
    typescript_2_newest_session: "server-modern.mjs http", "/mcp", [NEWEST_SESSION] => NEWEST_SESSION;
    typescript_2_forms: "server-modern.mjs http", "/mcp", [FORMS] => FORMS;
    typescript_2_batches: "server-modern.mjs http", "/mcp", [BATCHES] => BATCHES;
    python_2_automatic: "server.py http", "/mcp", Revision::ALL => STATELESS;
    python_2_newest_session: "server.py http", "/mcp", [NEWEST_SESSION] => NEWEST_SESSION;
    python_2_batches: "server.py http", "/mcp", [BATCHES] => BATCHES;
    python_2_sse_automatic: "server.py http", "/sse", Revision::ALL => NEWEST_SESSION;
    python_2_sse_oldest: "server.py http", "/sse", [OLDEST] => OLDEST;
    python_1_automatic: "server-1.py", "/mcp", Revision::ALL => NEWEST_SESSION;
    python_1_forms: "server-1.py", "/mcp", [FORMS] => FORMS;
    python_1_batches: "server-1.py", "/mcp", [BATCHES] => BATCHES;
    python_1_sse_automatic: "server-1.py", "/sse", Revision::ALL => NEWEST_SESSION;
    python_1_sse_oldest: "server-1.py", "/sse", [OLDEST] => OLDEST;
    rmcp_automatic: "rmcp server", "/mcp", Revision::ALL => STATELESS;
    rmcp_newest_session: "rmcp server", "/mcp", [NEWEST_SESSION] => NEWEST_SESSION;
    rmcp_batches: "rmcp server", "/mcp", [BATCHES] => BATCHES;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_sessions_and_streams() {
    let (_server, proxy) = serve("server.mjs http --json");
    let client = with_handlers(Client::http(proxy.url("/mcp"))).connect().await.unwrap();
    assert_eq!(client.revision(), NEWEST_SESSION);
    assert_eq!(client.tools().all().await.unwrap().len(), 12);
    let sum = client.call("add", json!({ "a": 2, "b": 0.5 })).await.unwrap();
    assert_eq!(sum.structured_content.unwrap().json.get(), r#"{"sum":2.5}"#);
    assert_eq!(text(client.call("slow", ()).await), "done");
    assert_eq!(client.call("fail", ()).await.unwrap().is_error, Some(true));
    check_unknown_items(&client).await;
    client.close().await;
    let entries = proxy.entries();
    let streams = entries.iter().filter(|entry| matches!(entry.part, ExchangePart::Event(_)));
    assert_eq!(streams.count(), 0, "every response is a single JSON message");
    check_messages(&proxy);
}

fn resuming(proxy: &Proxy) -> ClientBuilder<HttpTransport> {
    with_handlers(Client::http(proxy.url("/mcp"))).revisions([NEWEST_SESSION])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_goes_on_after_its_stream_was_cut() {
    // Not the Python SDK: it loses a response stored between the replay of a stream and its continuation.
    for server in ["server.mjs http", "server-modern.mjs http"] {
        let (_server, proxy) = serve(server);
        let client = resuming(&proxy).connect().await.unwrap();
        proxy.wait_for_stream();
        for text in ["step 1", "step 2", "step 3"] {
            // The last event was sent but not received.
            if text == "step 3" {
                proxy.cut_before(text);
            } else {
                proxy.cut_after(text);
            }
            let before = proxy.resumptions();
            let report = tour(&client).await;
            assert_eq!(report, expected(NEWEST_SESSION), "{server}, cut after {text}: {report:#}");
            assert_eq!(proxy.resumptions(), before + 1, "{server}");
        }
        client.close().await;
        check_messages(&proxy);
    }
}
