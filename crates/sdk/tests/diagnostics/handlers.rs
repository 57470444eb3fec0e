//! Values that are not handlers.

use linchpin::{Server, Tool, args};

#[args]
struct Add {
    a: i64,
    b: i64,
}

fn sync(add: Add) -> i64 {
    add.a + add.b
}

async fn forgotten() -> i64 {
    5
}

async fn with_arguments(add: Add) -> i64 {
    add.a + add.b
}

fn main() {
    let _ = Server::new("test", "1")
        .tool("add", "Adds", |Add { a, b }| a + b)
        .tool("add", "Adds", sync)
        .tool("add", "Adds", |a: Add, b: Add| async move { a.a + b.b })
        .add(Tool::new("add"))
        .add(forgotten)
        .add(with_arguments);
}
