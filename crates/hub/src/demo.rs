//! The built-in demo server: a little of everything, without reaching outside.

use std::time::Duration;

use linchpin::{Context, Json, LogLevel, Prompt, ResourceTemplate, Result, Server, Tool, args};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

const LANGUAGES: [&str; 8] = ["C", "Go", "Haskell", "Java", "JavaScript", "Python", "Rust", "TypeScript"];
const NOTES: [(&str, &str); 3] = [
    ("welcome", "Linchpin serves every revision of the Model Context Protocol from one set of handlers."),
    ("tools", "Call `add`, `echo` or `countdown`. `countdown` reports progress to clients that ask for it."),
    ("next", "Read notes://welcome, fill in the prompt `review`, or watch memory://status."),
];

#[args]
struct Add {
    /// The first number
    a: f64,
    /// The second number
    b: f64,
}

/// What `add` gives.
#[derive(Serialize, JsonSchema)]
struct Sum {
    /// Both numbers together
    sum: f64,
}

#[args]
struct Echo {
    /// What to say back
    message: String,
}

#[args]
struct Countdown {
    /// Where to begin, at most 100
    #[schemars(range(min = 1, max = 100))]
    from: u32,
    /// Milliseconds between two steps; none when left out
    #[schemars(range(max = 1000))]
    pause_ms: Option<u64>,
}

#[args]
struct Note {
    /// The name of the note
    name: String,
}

#[args]
struct Review {
    /// The programming language of the code
    language: String,
    /// The code to look at
    code: Option<String>,
}

/// The demo server.
pub(crate) fn server() -> Server {
    Server::new("linchpin-demo", env!("CARGO_PKG_VERSION"))
        .title("Linchpin demo")
        .description("Shows what a Linchpin server can do")
        .instructions("A server to try things on. Nothing it does has an effect outside.")
        .add(
            Tool::new("add")
                .description("Adds two numbers")
                .read_only()
                .idempotent()
                .open_world(false)
                .handler(|Add { a, b }| async move { Json(Sum { sum: a + b }) }),
        )
        .tool("echo", "Says the message back", |Echo { message }| async move { message })
        .tool("countdown", "Counts down to zero and reports each step", countdown)
        .resource("memory://status", "status", || async { json!({ "status": "ok" }) })
        .add(
            ResourceTemplate::new("notes://{name}", "note")
                .description("A note about this server")
                .mime_type("text/markdown")
                .complete("name", |typed: String| async move {
                    starting_with(NOTES.iter().map(|(name, _)| *name), &typed)
                })
                .handler(|Note { name }| async move {
                    NOTES.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
                }),
        )
        .add(
            Prompt::new("review")
                .title("Review code")
                .description("Asks for a review of some code")
                .complete("language", |typed: String| async move { starting_with(LANGUAGES, &typed) })
                .handler(|Review { language, code }| async move {
                    let code = code.map(|code| format!(":\n\n```\n{code}\n```")).unwrap_or_default();
                    format!("Review this {language} code for mistakes and for what could be simpler{code}")
                }),
        )
}

async fn countdown(Countdown { from, pause_ms }: Countdown, cx: Context) -> Result<String> {
    for left in (0..from).rev() {
        if let Some(pause) = pause_ms {
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        cx.progress((f64::from(from - left), f64::from(from), format!("{left} to go")));
    }
    cx.log(LogLevel::Info, format!("counted down from {from}"));
    Ok(format!("Counted down from {from}."))
}

fn starting_with(words: impl IntoIterator<Item = &'static str>, typed: &str) -> Vec<&'static str> {
    let starts = |word: &str| word.to_lowercase().starts_with(&typed.to_lowercase());
    words.into_iter().filter(|word| starts(word)).collect()
}
