//! MCP endpoint in an axum application. Handlers can read the HTTP request.
//!
//! `axum::serve` has no timeouts: in production, put a reverse proxy with timeouts in front.

use std::io::Write;

use axum::Router;
use axum::routing::get;
use linchpin::{Context, NoArgs, Result, Server};

#[tokio::main]
async fn main() -> Result {
    let mcp = Server::new("beside", "1.0.0")
        .tool("browser", "Returns the user agent of the request", |_: NoArgs, cx: Context| async move {
            let request = cx.http();
            let agent = request.as_ref().and_then(|request| request.headers.get("user-agent"));
            agent.and_then(|agent| agent.to_str().ok()).unwrap_or("unknown").to_owned()
        })
        .http()
        .into_router()?;
    let app = Router::new().route("/", get(|| async { "an ordinary page" })).merge(mcp);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    writeln!(std::io::stdout(), "http://{}", listener.local_addr()?)?;
    axum::serve(listener, app).await?;
    Ok(())
}
