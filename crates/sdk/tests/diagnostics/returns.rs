//! Invalid return types of handlers.

use std::time::Duration;

use linchpin::{Server, State, prompt, resource, tool};

struct Db;

#[tool]
async fn pause() -> Duration {
    Duration::ZERO
}

#[tool]
async fn pause_with_state(_db: State<Db>) -> linchpin::Result<Duration> {
    Ok(Duration::ZERO)
}

#[tool]
async fn own_error() -> Result<String, std::fmt::Error> {
    Ok(String::new())
}

#[resource("memory://pause")]
async fn saved_pause() -> Duration {
    Duration::ZERO
}

#[prompt]
async fn ask_for_pause() -> Duration {
    Duration::ZERO
}

fn main() {
    let _ = Server::new("test", "1")
        .tool("pause", "Pauses", || async { Duration::ZERO })
        .resource("memory://pause", "pause", || async { Duration::ZERO })
        .prompt("pause", "Pauses", || async { Duration::ZERO })
        .add(pause)
        .add(pause_with_state)
        .add(own_error)
        .add(saved_pause)
        .add(ask_for_pause);
}
