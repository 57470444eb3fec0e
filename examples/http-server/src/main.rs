//! Server over HTTP: one URL for clients of every revision, including the first. It prints its URL and serves until
//! Ctrl-C: `http-server [ADDRESS]`.

use std::io::Write;

use linchpin::{Context, Result, Server, args};

#[args]
struct Greet {
    /// Name of the user to greet
    name: String,
}

#[args]
struct Mood {
    /// The mood of the user
    mood: String,
}

#[tokio::main]
async fn main() -> Result {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into());
    let endpoint = Server::new("greeter", "1.0.0")
        .tool("greet", "Greets a user", |Greet { name }| async move { format!("Hello, {name}!") })
        .tool("chat", "Asks the user about their mood", |Greet { name }, cx: Context| async move {
            let Mood { mood } = cx.elicit(format!("How are you, {name}?")).await?;
            Result::<_>::Ok(format!("{name} is {mood}."))
        })
        .http()
        .legacy_sse()
        .bind(address)
        .await?;
    writeln!(std::io::stdout(), "{}", endpoint.url())?;
    endpoint.run().await
}
