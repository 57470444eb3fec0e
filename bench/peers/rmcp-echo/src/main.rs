//! Server on the official Rust SDK (rmcp 3.8.0), in all its configurations; `stdio-pipes --rt current` is the fastest
//! on stdio.
//!
//! ```text
//! rmcp-echo stdio|stdio-pipes [--rt multi|current]
//! rmcp-echo http PORT [--stateless] [--json] [--factory new|shared] [--rt multi|current]
//! ```

mod server;

use anyhow::{Context, bail};
use rmcp::{
    ServiceExt,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Builder,
    signal::unix::{SignalKind, signal},
};

use crate::server::Echo;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let current = value(&arguments, "--rt") == Some("current");
    let mut builder = if current { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    builder.enable_all().build()?.block_on(serve(&arguments))
}

async fn serve(arguments: &[String]) -> anyhow::Result<()> {
    match arguments.first().map(String::as_str) {
        Some("stdio") => {
            Echo::new().serve(rmcp::transport::stdio()).await?.waiting().await?;
        }
        Some("stdio-pipes") => {
            Echo::new().serve(rmcp::transport::io::stdio_pipes()).await?.waiting().await?;
        }
        Some("http") => serve_http(arguments).await?,
        _ => bail!(
            "usage: rmcp-echo stdio|stdio-pipes [--rt multi|current]\n       \
             rmcp-echo http PORT [--stateless] [--json] [--factory new|shared] [--rt multi|current]"
        ),
    }
    Ok(())
}

async fn serve_http(arguments: &[String]) -> anyhow::Result<()> {
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let port: u16 = arguments.get(1).context("a port is required")?.parse().context("port")?;
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(!has("--stateless"))
        .with_json_response(has("--json"));
    // The SDK's examples create a server per request; sharing one is faster, and the default here.
    let shared = (value(arguments, "--factory") != Some("new")).then(Echo::new);
    let service: StreamableHttpService<Echo, LocalSessionManager> = StreamableHttpService::new(
        move || Ok(shared.clone().unwrap_or_else(Echo::new)),
        Default::default(),
        config,
    );
    let router = axum::Router::new().nest_service("/mcp", service);
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream: &mut TcpStream| {
        let _ = stream.set_nodelay(true);
    });
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        result = async { axum::serve(listener, router).await } => result?,
        _ = terminate.recv() => {}
    }
    Ok(())
}

fn value<'a>(arguments: &'a [String], flag: &str) -> Option<&'a str> {
    let at = arguments.iter().position(|argument| argument == flag)?;
    arguments.get(at + 1).map(String::as_str)
}
