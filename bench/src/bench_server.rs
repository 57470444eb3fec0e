//! Measured server: `bench-server stdio`, or `bench-server http --port N` (all modes at `/mcp`, until SIGTERM). It uses
//! the public, typed API and default features; its tools match those of the peers in `bench/peers`.

use std::io::Write as _;

use anyhow::{Context as _, anyhow, bail};
use bench::dummy_tools::add_dummy_tools;
use linchpin::{Json, Server, args};
use schemars::JsonSchema;
use serde::Serialize;

/// Returns memory to the system when sessions are closed.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[args]
struct Echo {
    /// The message to echo
    message: String,
}

#[args]
struct Add {
    a: f64,
    b: f64,
}

#[derive(Serialize, JsonSchema)]
struct Sum {
    sum: f64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let port = match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["stdio"] => None,
        ["http", "--port", port] => {
            Some(port.parse::<u16>().context("the port must be a number up to 65535")?)
        }
        _ => bail!("usage: bench-server stdio | http --port N"),
    };
    let server = Server::new("bench-server", env!("CARGO_PKG_VERSION"))
        .tool("echo", "Echo the message back", |Echo { message }| async move { message })
        .tool("add", "Add two numbers", |Add { a, b }| async move { Json(Sum { sum: a + b }) })
        .resource("memo://one", "one", || async { "the memo" });
    serve(add_dummy_tools(server), port).await.map_err(|error| anyhow!("{error}"))
}

async fn serve(server: Server, port: Option<u16>) -> linchpin::Result {
    let Some(port) = port else { return server.run().await };
    let endpoint = server.http().legacy_sse().bind(("127.0.0.1", port)).await?;
    writeln!(std::io::stdout(), "{}", endpoint.url())?;
    endpoint.run().await
}
