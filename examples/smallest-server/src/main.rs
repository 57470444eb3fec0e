//! The smallest complete server: a typed tool, a resource and a prompt, on stdio.
use linchpin::{Server, args};

#[args]
struct Add {
    a: i64,
    b: i64,
}
#[args]
struct Review {
    language: String,
}

#[tokio::main]
async fn main() -> linchpin::Result {
    Server::new("demo", "1.0.0")
        .tool("add", "Adds two numbers", |Add { a, b }| async move { a + b })
        .resource("memory://status", "status", || async { "ok" })
        .prompt(
            "review",
            "Review code",
            |r: Review| async move { format!("Review this {} code", r.language) },
        )
        .run()
        .await
}
