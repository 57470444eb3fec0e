//! Invalid parameters of handlers.

use linchpin::{Context, Server, tool};

struct Add {
    a: i64,
    b: i64,
}

#[tool]
async fn add(#[args] add: Add) -> i64 {
    add.a + add.b
}

fn main() {
    let _ = Server::new("test", "1")
        .tool("add", "Adds", |Add { a, b }| async move { a + b })
        .tool("add", "Adds", |Add { a, b }, _cx: Context| async move { a + b })
        .resource("memory://sum", "sum", |Add { a, b }| async move { (a + b).to_string() })
        .prompt("add", "Adds", |add: Add| async move { add.a.to_string() })
        .add(add);
}
