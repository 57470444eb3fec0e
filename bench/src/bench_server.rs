//! The server that is measured: `bench-server stdio`. Written with the public, typed API and default features,
//! like any server; its tools match those of the peers in `bench/peers`.

use anyhow::bail;
use linchpin::{Json, Register, Server, Tool, args};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

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
    match std::env::args().nth(1).as_deref() {
        Some("stdio") => {}
        _ => bail!("usage: bench-server stdio"),
    }
    let mut server = Server::new("bench-server", env!("CARGO_PKG_VERSION"))
        .tool("echo", "Echo the message back", |Echo { message }| async move { message })
        .tool("add", "Add two numbers", |Add { a, b }| async move { Json(Sum { sum: a + b }) })
        .resource("memo://one", "one", || async { "the memo" });
    for number in 0..50 {
        server = server.add(dummy(number));
    }
    server.run().await.map_err(|error| anyhow::anyhow!("{error}"))
}

/// A tool that only makes `tools/list` as long as a real server's.
fn dummy(number: usize) -> impl Register {
    let schema = json!({
        "type": "object",
        "properties": {
            "key": {"type": "string", "description": "The key to look up"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100, "description": "Most rows to return"},
            "fields": {"type": "array", "items": {"type": "string"}, "description": "Fields to return"},
            "order": {"type": "string", "enum": ["asc", "desc"], "description": "Sort order"}
        },
        "required": ["key"]
    });
    let description = format!(
        "Dummy tool number {number}. Looks a record up in the {number}th table by key and returns the fields asked \
         for; present only so that tools/list has a realistic size."
    );
    Tool::raw(format!("dummy_tool_{number:02}"), schema)
        .description(description)
        .handler(|_: Map<String, Value>| async { "dummy" })
}
