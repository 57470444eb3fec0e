//! Standard error of a server process: errors that no client sees, and the URL of the endpoint. With a `tracing`
//! subscriber it writes nothing.
//!
//! Each test starts itself as another process, with or without a subscriber.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::process::{Command, Output, Stdio};

use linchpin::{NoArgs, Result, Server};
use serde_json::json;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Set in the process that a test starts; its value selects whether that has a subscriber.
const CHILD: &str = "LINCHPIN_STANDARD_ERROR";

/// A subscriber that drops every event.
struct Quiet;

impl Subscriber for Quiet {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Returns whether this is the process that a test has started.
fn is_child() -> bool {
    let subscriber = std::env::var_os(CHILD);
    if subscriber.as_ref().is_some_and(|value| value == "subscriber") {
        tracing::subscriber::set_global_default(Quiet).unwrap();
    }
    subscriber.is_some()
}

/// Returns the command that runs the same test as another process.
fn child(test: &str, subscriber: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(CHILD, subscriber).stdout(Stdio::null());
    command
}

fn standard_error(Output { stderr, status, .. }: Output) -> String {
    let text = String::from_utf8(stderr).unwrap();
    assert!(status.success(), "{text}");
    text
}

#[test]
fn an_error_that_no_client_sees_is_written_to_standard_error() {
    if is_child() {
        let read = |_: NoArgs| async { Result::Ok(std::fs::read_to_string("/no/such/file")?) };
        let service = Server::new("files", "1").tool("read", "", read).build().unwrap();
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "read"}});
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(service.handle_json(call.to_string().as_bytes())).unwrap();
        return;
    }
    let test = "an_error_that_no_client_sees_is_written_to_standard_error";
    let said = standard_error(child(test, "").output().unwrap());
    assert!(said.contains("files: tools/call `read` failed: No such file or directory"), "{said}");
    let said = standard_error(child(test, "subscriber").output().unwrap());
    assert!(!said.contains("failed"), "{said}");
}

#[cfg(feature = "http-server")]
#[test]
fn a_server_says_where_it_serves() {
    use std::io::{BufRead, BufReader};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    if is_child() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(Server::new("site", "1").serve("127.0.0.1:0")).unwrap();
        return;
    }
    let mut server = child("a_server_says_where_it_serves", "").stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(server.stderr.take().unwrap()).lines();
    let (found, line) = mpsc::sync_channel(1);
    let reader = thread::spawn(move || {
        let line = lines.map_while(std::result::Result::ok).find(|line| line.contains("site"));
        found.send(line)
    });
    let line = line.recv_timeout(Duration::from_mins(1));
    server.kill().unwrap();
    server.wait().unwrap();
    let _ = reader.join();
    let line = line.expect("no line within a minute").unwrap();
    assert!(line.starts_with("site: serving at http://127.0.0.1:") && line.ends_with("/mcp"), "{line}");
}

#[cfg(feature = "http-server")]
#[tokio::test]
async fn a_server_that_cannot_listen_says_where() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let error = Server::new("site", "1").serve(&address).await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot listen on {address}: ")), "{error}");
    let error = Server::new("site", "1").serve("localhost").await.unwrap_err().to_string();
    assert!(error.starts_with("cannot listen on localhost: "), "{error}");
}
