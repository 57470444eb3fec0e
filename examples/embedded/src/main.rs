//! Server inside another program: one message in, one response out. Any web framework, queue or test can transport the
//! messages; this program reads them from its command line.

use linchpin::{Result, Server, args};

#[args]
struct Greet {
    /// Name of the user to greet
    name: String,
}

#[tokio::main]
async fn main() -> Result {
    let service = Server::new("embedded", "1.0.0")
        .tool("greet", "Greets a user", |Greet { name }| async move { format!("Hello, {name}!") })
        .build()?;
    for message in std::env::args().skip(1) {
        if let Some(answer) = service.handle_json(message.as_bytes()).await {
            use std::io::Write;
            let mut out = std::io::stdout().lock();
            out.write_all(&answer)?;
            out.write_all(b"\n")?;
        }
    }
    Ok(())
}
