//! Tour peers on the official Rust SDK over HTTP: a server with the same items as `server.mjs`, and a client that uses
//! all of them and prints a report.
//!
//! ```text
//! rmcp-tour server
//! rmcp-tour client [--mode legacy|auto] --url URL
//! ```

mod client;
mod server;

use anyhow::bail;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["server"] => server::serve().await,
        ["client", "--url", url] => client::tour(url, false).await,
        ["client", "--mode", mode @ ("legacy" | "auto"), "--url", url] => {
            client::tour(url, mode == "legacy").await
        }
        _ => bail!("usage: rmcp-tour server | client [--mode legacy|auto] --url URL"),
    }
}
