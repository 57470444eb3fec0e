//! The smallest client: connects to a server, lists its tools and calls one. The arguments are the command that starts
//! the server: `smallest-client target/debug/smallest-server`.
#![expect(clippy::print_stdout, reason = "the output of the program")]

use linchpin::client::Command;
use linchpin::{Client, Error};
use serde_json::json;

#[tokio::main]
async fn main() -> linchpin::Result {
    let mut command = std::env::args().skip(1);
    let program = command.next().ok_or_else(|| Error::tool("usage: smallest-client PROGRAM [ARGUMENT]…"))?;
    let client = Client::command(Command::new(program).args(command)).connect().await?;
    for tool in client.tools().all().await? {
        println!("{}: {}", tool.name, tool.description.unwrap_or_default());
    }
    println!("2 + 40 = {}", client.call("add", json!({ "a": 2, "b": 40 })).await?.to_text());
    Ok(())
}
