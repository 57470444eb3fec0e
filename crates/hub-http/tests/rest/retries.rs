//! Retries after a transient server failure: lists and reads are retried with a backoff, calls never.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use linchpin::Revision;
use linchpin::server::web::Listener;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::fixture::Site;

/// Arrival times of requests, by method.
type RequestTimes = Arc<Mutex<BTreeMap<String, Vec<Instant>>>>;

/// A server of the stateless era. Its first two requests of each method about tools or resources fail.
async fn respond(State(requests): State<RequestTimes>, body: String) -> Response {
    let message: Value = serde_json::from_str(&body).unwrap();
    let method = message["method"].as_str().unwrap().to_owned();
    let count = {
        let mut requests = requests.lock().unwrap();
        let times = requests.entry(method.clone()).or_default();
        times.push(Instant::now());
        times.len()
    };
    let mut result = json!({ "resultType": "complete", "ttlMs": 0, "cacheScope": "private" });
    match &*method {
        "server/discover" => {
            result["supportedVersions"] = json!([Revision::LATEST.as_str()]);
            result["capabilities"] = json!({ "tools": {}, "resources": {} });
        }
        _ if count <= 2 => return StatusCode::SERVICE_UNAVAILABLE.into_response(),
        "tools/list" => result["tools"] = json!([{ "name": "act", "inputSchema": { "type": "object" } }]),
        "resources/list" => result["resources"] = json!([{ "uri": "a:b", "name": "b" }]),
        "resources/read" => result["contents"] = json!([{ "uri": "a:b", "text": "read" }]),
        _ => result["content"] = json!([]),
    }
    let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }).to_string();
    ([(header::CONTENT_TYPE, "application/json")], answer).into_response()
}

/// Returns the number of requests of a method, and whether there was a pause before each retry.
fn request_count(requests: &RequestTimes, method: &str) -> (usize, bool) {
    let requests = requests.lock().unwrap();
    let times = &requests[method];
    let pauses = times.windows(2).map(|pair| (pair[1] - pair[0]).as_millis());
    (times.len(), pauses.zip([200, 400]).all(|(pause, least)| pause >= least))
}

#[tokio::test]
async fn lists_and_reads_are_repeated_after_a_pause_and_calls_never() {
    let (site, requests, mut running) = (Site::new().await, RequestTimes::default(), JoinSet::new());
    let listener = Listener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("{}/mcp", listener.origin());
    let router = Router::new().route("/mcp", post(respond)).with_state(requests.clone());
    running.spawn(async move { listener.run_until(std::future::pending(), router).await.unwrap() });
    site.post("/servers", json!({ "name": "Shaky", "url": url, "retry_attempts": 2 })).await.ok();
    assert_eq!(site.post("/servers/shaky/sync", json!({})).await.ok()["tools"], 1);
    assert_eq!(request_count(&requests, "tools/list"), (3, true));
    // The sync counts the resources once, without a retry.
    assert_eq!(requests.lock().unwrap().remove("resources/list").unwrap().len(), 1);
    assert_eq!(site.get("/servers/shaky/resources").await.ok()["items"][0]["uri"], "a:b");
    assert_eq!(request_count(&requests, "resources/list"), (3, true));
    let read = site.post("/servers/shaky/resources/read", json!({ "uri": "a:b" })).await.ok();
    assert_eq!(read["contents"][0]["text"], "read");
    assert_eq!(request_count(&requests, "resources/read"), (3, true));
    let call = json!({ "tool": "mcp_shaky__act", "arguments": {} });
    let call = site.post("/calls?wait=true", call).await.ok();
    assert_eq!(call["status"], "unknown", "{call}");
    assert_eq!(request_count(&requests, "tools/call").0, 1);
}
