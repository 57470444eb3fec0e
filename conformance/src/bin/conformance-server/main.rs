//! Server under test of the official conformance suite. It offers what the scenarios need, with the public API.
//!
//! `conformance-server --port N` serves at `http://127.0.0.1:N/mcp` and prints that URL when it is ready. Each module
//! covers one part of the protocol and adds its items to the server.

#![expect(clippy::print_stdout, reason = "the parent process waits for the address")]

mod content;
mod resources_prompts_skills;
mod rounds;
mod session;
mod stateless;
mod tasks;

use std::time::Duration;

use anyhow::{Context, bail};
use linchpin::Server;
use linchpin::model::{CacheHints, CacheScope};

fn server() -> Server {
    let server = Server::new("linchpin-conformance", "1.0.0")
        .title("Conformance")
        .description("Server for the conformance suite")
        .cache(CacheHints { ttl_ms: 60_000, scope: CacheScope::Public })
        .task_poll_interval(Duration::from_millis(100));
    let parts = [
        content::add,
        session::add,
        stateless::add,
        rounds::add,
        tasks::add,
        resources_prompts_skills::resources,
        resources_prompts_skills::prompts,
        resources_prompts_skills::skills,
    ];
    parts.into_iter().fold(server, |server, add| add(server))
}

fn port() -> anyhow::Result<u16> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &*arguments {
        [option, port] if option == "--port" => {
            port.parse().with_context(|| format!("invalid port \"{port}\": it must be a number up to 65535"))
        }
        _ => bail!("usage: conformance-server --port N"),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let address = ("127.0.0.1", port()?);
    let served = async {
        let endpoint = server().http().legacy_sse().bind(address).await?;
        println!("{}", endpoint.url());
        endpoint.run().await
    };
    served.await.map_err(|error| anyhow::anyhow!("{error:?}"))
}
