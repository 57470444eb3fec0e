//! Replay of the transcripts in `transcripts/`, recorded in the two oldest revisions with programs on the official SDKs
//! of that time. Their clients are replayed against our server and their servers against our client; every message of
//! ours is compared with the transcript and validated against the schemas.
//!
//! `WRITE_TRANSCRIPTS=1 cargo test -p interop-tests --test transcripts written` records them again.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::path::PathBuf;

use interop_tests::client::{
    check_unknown_items, tour, tour_notifications, with_handlers, with_notification_log,
};
use interop_tests::expected_report::{BATCHES, OLDEST, expected, expected_notifications, join};
use interop_tests::http_log::{Entry, ExchangePart};
use interop_tests::peer::{RunningServer, peer, run};
use interop_tests::recording_proxy::Proxy;
use interop_tests::replay_client::replay;
use interop_tests::replay_server::ReplayServer;
use interop_tests::schema_check::{OwnSide, schema_violations_over_http};
use interop_tests::transcript_text;
use linchpin::{Client, Revision};
use serde_json::{Value, json};

fn file(revision: Revision, other: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("transcripts");
    folder.join(format!("{revision}-their-{other}.txt"))
}

fn load(revision: Revision, other: &str) -> Vec<Entry> {
    let entries = transcript_text::read(&std::fs::read_to_string(file(revision, other)).unwrap());
    assert!(entries.len() > 50, "the transcript is incomplete");
    entries
}

fn our_server() -> RunningServer {
    RunningServer::start(&[env!("CARGO_BIN_EXE_tour-server").to_owned(), "http".to_owned()])
}

/// Returns the path of the endpoint, and the client option for its transport.
fn endpoint_and_option(revision: Revision) -> (&'static str, &'static str) {
    if revision == OLDEST { ("/sse", "--sse") } else { ("/mcp", "--url") }
}

/// Runs the tour of our client at a recorded server and returns the report.
async fn our_tour(url: String, revision: Revision, ready: impl FnOnce()) -> Value {
    let (client, mut heard) = with_notification_log(with_handlers(Client::http(url)));
    let client = client.revisions([revision]).connect().await.unwrap();
    ready();
    let mut report = tour(&client).await;
    join(&mut report, tour_notifications(&client, &mut heard).await);
    check_unknown_items(&client).await;
    client.close().await;
    report
}

/// Returns the expected report. The old servers have no form elicitation and no progress messages.
fn expected_report(revision: Revision, report: &Value) -> Value {
    let mut wanted = expected(revision);
    join(&mut wanted, expected_notifications());
    wanted["ask"] = report["ask"].clone();
    assert!(report["ask"]["error"].as_str().unwrap().contains("there is no tool ask"), "{report:#}");
    wanted["tools"].as_array_mut().unwrap().retain(|name| name != "ask");
    wanted["add"] = r#"{"sum":2.5}"#.into();
    wanted["progress"] = [1, 2, 3].map(|step| json!({ "progress": step, "total": 3 })).to_vec().into();
    wanted
}

fn check_our_server(revision: Revision) {
    let server = our_server();
    let (differences, heard) = replay(&load(revision, "client"), server.address());
    assert_eq!(differences, Vec::<String>::new(), "{}", differences.join("\n"));
    assert_eq!(schema_violations_over_http(&heard, OwnSide::Server), Vec::<String>::new());
}

async fn check_our_client(revision: Revision) {
    let player = ReplayServer::start(load(revision, "server"));
    let report = our_tour(player.url(endpoint_and_option(revision).0), revision, || {}).await;
    let (differences, heard) = player.finish();
    assert_eq!(differences, Vec::<String>::new(), "{}", differences.join("\n"));
    assert_eq!(report, expected_report(revision, &report), "{report:#}");
    assert_eq!(schema_violations_over_http(&heard, OwnSide::Client), Vec::<String>::new());
}

#[test]
fn our_server_and_a_client_of_the_beginning() {
    check_our_server(OLDEST);
}

#[test]
fn our_server_and_a_client_of_batches() {
    check_our_server(BATCHES);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_client_and_a_server_of_the_beginning() {
    check_our_client(OLDEST).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_client_and_a_server_of_batches() {
    check_our_client(BATCHES).await;
}

/// Replaces a text in the messages of one side.
fn change(entries: &mut [Entry], from: &str, to: &str, is: fn(&ExchangePart) -> bool) {
    let mut count = 0;
    for entry in entries.iter_mut().filter(|entry| is(&entry.part)) {
        let text = transcript_text::write("", std::slice::from_ref(entry));
        if text.contains(from) {
            *entry = transcript_text::read(&text.replace(from, to)).remove(0);
            count += 1;
        }
    }
    assert!(count > 0, "{from} does not occur");
}

#[test]
fn a_server_that_answers_otherwise_is_found_out() {
    for (from, to) in [("\"grüße\"", "\"grüsse\""), ("\"memo 7\"", "7"), ("text/event-stream", "text/plain")]
    {
        let mut entries = load(BATCHES, "client");
        change(&mut entries, from, to, |said| !matches!(said, ExchangePart::Request(_)));
        let (differences, _) = replay(&entries, our_server().address());
        assert_eq!(differences.len(), 1);
        assert!(differences[0].contains(from) && differences[0].contains(to), "{}", differences[0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_asks_otherwise_is_found_out() {
    let mut entries = load(BATCHES, "server");
    change(&mut entries, "\"initialize\"", "\"initialise\"", |said| matches!(said, ExchangePart::Request(_)));
    let player = ReplayServer::start(entries);
    let client = with_handlers(Client::http(player.url("/mcp"))).revisions([BATCHES]).connect().await;
    assert!(client.is_err());
    let (differences, _) = player.finish();
    assert!(differences[0].contains("\"initialize\""), "{}", differences[0]);
}

/// Records a run of their client with our server.
fn with_their_client(revision: Revision) -> Vec<Entry> {
    let (path, option) = endpoint_and_option(revision);
    let server = our_server();
    let proxy = Proxy::start(server.address());
    let mut command = peer("client.mjs");
    command.extend(["--mode", revision.as_str(), option].map(str::to_owned));
    command.push(proxy.url(path));
    assert_eq!(run(&command)["cancel"], "a call was cancelled");
    proxy.entries()
}

/// Records a run of our client with their server.
async fn with_their_server(revision: Revision) -> Vec<Entry> {
    let mut command = peer("server-old.mjs");
    command.push(revision.to_string());
    let server = RunningServer::start(&command);
    let proxy = Proxy::start(server.address());
    let report =
        our_tour(proxy.url(endpoint_and_option(revision).0), revision, || proxy.wait_for_stream()).await;
    assert_eq!(report, expected_report(revision, &report), "{report:#}");
    proxy.entries()
}

/// Returns the requests, sorted.
fn requests(entries: &[Entry]) -> Vec<String> {
    let asked = entries.iter().filter_map(|entry| match &entry.part {
        ExchangePart::Request(request) => {
            let body = request.body.clone().unwrap_or_default();
            Some(format!("{} {} {} {}", request.verb, request.path, body["method"], body["params"]["name"]))
        }
        _ => None,
    });
    let mut asked: Vec<String> = asked.collect();
    asked.sort();
    asked
}

/// Repeats the conversations with their programs; with `WRITE_TRANSCRIPTS` the transcripts are written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversations_can_be_written_down() {
    for revision in [OLDEST, BATCHES] {
        let title = format!("A client on the TypeScript SDK of {revision}, and a server of ours.");
        let client = transcript_text::write(&title, &with_their_client(revision));
        let title = format!("A client of ours, and a server on the TypeScript SDK of {revision}.");
        let server = transcript_text::write(&title, &with_their_server(revision).await);
        for (other, text) in [("client", client), ("server", server)] {
            assert_eq!(
                requests(&transcript_text::read(&text)),
                requests(&load(revision, other)),
                "{revision}, {other}"
            );
            if std::env::var_os("WRITE_TRANSCRIPTS").is_some() {
                std::fs::write(file(revision, other), text).unwrap();
            }
        }
    }
}
