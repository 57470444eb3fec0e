//! Flood of sessions, in a process of its own whose memory is measured.
#![cfg(all(feature = "http-server", target_os = "linux"))]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use http::StatusCode;
use linchpin::Revision;
use serde_json::json;
use support::call_scenarios::CallControls;
use support::initialize;
use support::web::{TestClient, post, serve};

/// Fewer without optimization: the whole flood would take minutes. The limit is 10,000 sessions.
const FLOOD: usize = if cfg!(debug_assertions) { 40_000 } else { 1_000_000 };

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

#[tokio::test]
async fn a_flood_of_initialize_is_bounded_in_memory() {
    let web = serve(CallControls::new().server().http());
    let params = initialize("2025-11-25", &json!({}));
    let opening = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).to_string();
    let open = async |count: usize| {
        for _ in 0..count {
            assert_eq!(web.handle(post(&opening, &[])).await.status(), StatusCode::OK);
        }
    };
    open(100).await;
    let before = resident();
    open(FLOOD).await;
    let grown = resident().saturating_sub(before);
    eprintln!("{FLOOD} initialize: {} KiB more", grown >> 10);
    assert!(grown <= 32 << 20, "{grown} bytes");
    let guest = TestClient::open(&web, Revision::LATEST_SESSION).await;
    assert_eq!(guest.ask("ping", json!({})).await.status, StatusCode::OK);
}
