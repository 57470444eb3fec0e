//! The HTTP client against a scripted server: what it sends in each era, and what it makes of the answers.
#![cfg(feature = "http-client")]
#![expect(clippy::unwrap_used, reason = "all of it is a test")]

#[path = "support/http.rs"]
mod http;

use http::{HttpScript, PATIENCE, Reply, SESSION, Seen, speak, text};
use linchpin::client::Eras;
use linchpin::transport::http::Http;
use linchpin::{CallError, Client, ClientBuilder, ClientError, Content, Revision};
use serde_json::json;

/// One revision of each era.
const ERAS: [Revision; 2] = [Revision::LATEST_SESSION, Revision::LATEST];

fn client(script: &HttpScript) -> ClientBuilder<Http> {
    Client::http(script.url()).eras(Eras::new())
}

async fn connect(script: &HttpScript) -> Client {
    client(script).connect().await.unwrap()
}

/// A plain server, but for what `special` does.
async fn server(
    revision: Revision,
    special: impl Fn(&Seen) -> Option<Reply> + Send + Sync + 'static,
) -> HttpScript {
    HttpScript::start(move |seen| special(seen).unwrap_or_else(|| speak(revision, seen))).await
}

fn said(result: &linchpin::ToolOutput) -> &str {
    match &result.content[..] {
        [Content::Text(text)] => &text.text,
        other => panic!("{other:?} is no text"),
    }
}

#[tokio::test]
async fn every_revision_is_found_and_used() {
    for revision in Revision::ALL {
        let script = server(revision, |_| None).await;
        let client = connect(&script).await;
        assert_eq!(client.revision(), revision);
        assert_eq!(client.tools().all().await.unwrap().len(), 1);
        assert_eq!(said(&client.call("echo", ()).await.unwrap()), "echo");
        client.close().await;
        let opening: &[&str] = if revision == Revision::LATEST {
            &["server/discover", "tools/list", "tools/call"]
        } else {
            &[
                "server/discover",
                "initialize",
                "notifications/initialized",
                "tools/list",
                "tools/call",
                "DELETE",
            ]
        };
        let methods = script.methods();
        let methods: Vec<_> = methods.iter().filter(|method| *method != "GET").collect();
        assert_eq!(methods, opening, "{revision}");
    }
}
