//! Clients of every revision use the same tools at the same URL, at the same time.
#![expect(clippy::unwrap_used, reason = "this is a test")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use linchpin::client::RevisionCache;
use linchpin::model::ElicitResult;
use linchpin::{Client, ClientBuilder, Revision};
use serde_json::json;

/// Running example; killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill(); // fails if it has already exited
        let _ = self.0.wait();
    }
}

fn start() -> (Running, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_http-server"))
        .arg("127.0.0.1:0")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut url = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
    (Running(child), url.trim().to_owned())
}

fn client(url: &str, revision: Revision) -> ClientBuilder {
    // The first revision has only HTTP+SSE.
    let client = if revision == Revision::V2024_11_05 { Client::sse(url) } else { Client::http(url) };
    let client = client.boxed().revisions([revision]).revision_cache(RevisionCache::new());
    client.on_elicit(|_| async { Ok(ElicitResult::accept(json!({ "mood": "well" }))) })
}

#[tokio::test]
async fn every_revision_at_one_url_at_the_same_time() {
    let (_running, url) = start();
    let mut clients = Vec::new();
    for revision in Revision::ALL {
        let client = client(&url, revision).connect().await.unwrap();
        assert_eq!(client.revision(), revision);
        clients.push(client);
    }
    for _ in 0..3 {
        for client in &clients {
            let greeting = client.call("greet", json!({ "name": "Ada" })).await.unwrap();
            assert_eq!(greeting.to_text(), "Hello, Ada!", "{}", client.revision());
        }
    }
    for client in clients.iter().filter(|client| client.revision() >= Revision::V2025_06_18) {
        let chat = client.call("chat", json!({ "name": "Ada" })).await.unwrap();
        assert_eq!(chat.to_text(), "Ada is well.", "{}", client.revision());
    }
}
