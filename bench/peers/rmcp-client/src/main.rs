//! Single-threaded client on the official Rust SDK (rmcp 3.8.0): starts a server, calls its tool `echo` and prints one
//! line of JSON, as `bench-client` does with our SDK.
//!
//! ```text
//! rmcp-client stdio CALLS IN_FLIGHT BYTES [--session] -- COMMAND…
//! rmcp-client http CALLS IN_FLIGHT BYTES [--session] URL
//! ```
//!
//! `--session` starts with `initialize`; without it `server/discover` is sent first, as by our client.

use std::{sync::Arc, time::Instant};

use anyhow::bail;
use rmcp::{
    model::{CallToolRequestParams, ClientCapabilities, ClientConfig, Implementation, ProtocolVersion},
    service::{ClientLifecycleMode, ClientServiceExt, Peer, RoleClient},
    transport::{StreamableHttpClientTransport, TokioChildProcess},
};

const USAGE: &str = "usage: rmcp-client stdio|http CALLS IN_FLIGHT BYTES [--session] -- COMMAND… | URL";

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [transport, calls, in_flight, bytes, rest @ ..] = &arguments[..] else { bail!(USAGE) };
    let (session, server) = match rest {
        [session, server @ ..] if session == "--session" => (true, server),
        server => (false, server),
    };
    let [calls, in_flight, bytes] = [calls, in_flight, bytes].map(|number| number.parse::<usize>());
    let (calls, in_flight, bytes) = (calls?, in_flight?.max(1), bytes?);

    let info = ClientConfig::new(ClientCapabilities::default(), Implementation::new("rmcp-client", "3.8.0"))
        .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE);
    let lifecycle = if session {
        ClientLifecycleMode::Initialize
    } else {
        ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::LATEST] }
    };
    let running = match (transport.as_str(), server) {
        ("stdio", [dashes, program, command @ ..]) if dashes == "--" => {
            let mut process = tokio::process::Command::new(program);
            process.args(command);
            info.serve_with_lifecycle(TokioChildProcess::new(process)?, lifecycle).await?
        }
        ("http", [url]) => {
            let transport = StreamableHttpClientTransport::from_uri(url.as_str());
            info.serve_with_lifecycle(transport, lifecycle).await?
        }
        _ => bail!(USAGE),
    };
    let revision = running.peer_info().map(|info| info.protocol_version.to_string());

    let text: Arc<str> = "m".repeat(bytes).into();
    let (cpu, begun) = (cpu_us(), Instant::now());
    let mut callers = Vec::new();
    for caller in 0..in_flight {
        let share = calls / in_flight + usize::from(caller < calls % in_flight);
        callers.push(tokio::spawn(call(running.peer().clone(), share, text.clone())));
    }
    let mut errors = 0;
    for caller in callers {
        errors += caller.await?;
    }
    let (seconds, cpu) = (begun.elapsed().as_secs_f64(), cpu_us() - cpu);
    println!(
        "{}",
        serde_json::json!({
            "calls": calls,
            "errors": errors,
            "seconds": seconds,
            "calls_per_second": calls as f64 / seconds,
            "cpu_us_per_call": cpu as f64 / calls as f64,
            "revision": revision,
        })
    );
    running.cancel().await?;
    Ok(())
}

/// Makes the calls sequentially and returns how many failed or had a wrong result.
async fn call(peer: Peer<RoleClient>, calls: usize, text: Arc<str>) -> usize {
    let mut errors = 0;
    for _ in 0..calls {
        let arguments = serde_json::json!({ "message": &*text });
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        let answer = peer.call_tool(CallToolRequestParams::new("echo").with_arguments(arguments)).await;
        let echoed = answer.is_ok_and(|result| {
            let first = result.content.first().and_then(|content| content.as_text());
            first.is_some_and(|content| content.text == *text)
        });
        errors += usize::from(!echoed);
    }
    errors
}

fn cpu_us() -> u64 {
    bench_common::process::cpu_ns(std::process::id()).unwrap_or(0) / 1000
}
