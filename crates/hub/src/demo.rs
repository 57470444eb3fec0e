//! Built-in demo server: tools, resources, prompts and elicitation, without external effects.

use std::time::Duration;

use linchpin::{Context, Json, LogLevel, NoArgs, Prompt, ResourceTemplate, Result, Server, Tool, args};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

const LANGUAGES: [&str; 8] = ["C", "Go", "Haskell", "Java", "JavaScript", "Python", "Rust", "TypeScript"];
const NOTES: [(&str, &str); 3] = [
    ("welcome", "Linchpin serves every revision of the Model Context Protocol from one set of handlers."),
    (
        "tools",
        "Call `add`, `echo`, `countdown` (it reports progress), or `order` and `terms` (they ask the user).",
    ),
    ("next", "Read notes://welcome, fill in the prompt `review`, or watch memory://status."),
];

#[args]
struct Add {
    /// The first number
    a: f64,
    /// The second number
    b: f64,
}

/// Result of the demo tool `add`.
#[derive(Serialize, JsonSchema)]
struct Sum {
    /// Sum of both numbers
    sum: f64,
}

#[args]
struct Echo {
    /// Text to return
    message: String,
}

#[args]
struct Countdown {
    /// Start value, 1–100
    #[schemars(range(min = 1, max = 100))]
    from: u32,
    /// Milliseconds between two steps. Default: 0
    #[schemars(range(max = 1000))]
    pause_ms: Option<u64>,
}

#[args]
struct Order {
    /// Drink to order. Default: tea
    drink: Option<String>,
}

/// Form of the demo tool `order`, which the user fills in.
#[args]
struct Cup {
    /// Size of the cup
    size: Size,
    /// Number of cups
    #[schemars(range(min = 1, max = 12))]
    count: u32,
    /// Whether the order is to go
    #[serde(default)]
    to_go: bool,
    /// Additional wishes
    #[schemars(length(max = 80))]
    wish: Option<String>,
}

#[args]
#[serde(rename_all = "lowercase")]
enum Size {
    Small,
    Medium,
    Large,
}

#[args]
struct Note {
    /// Name of the note
    name: String,
}

#[args]
struct Review {
    /// Programming language of the code
    language: String,
    /// Code to review
    code: Option<String>,
}

/// Builds the demo server.
pub(crate) fn server() -> Server {
    Server::new("linchpin-demo", env!("CARGO_PKG_VERSION"))
        .title("Linchpin demo")
        .description("Shows what a Linchpin server can do")
        .instructions("A demo server for experiments. Its tools have no external effects.")
        .add(
            Tool::new("add")
                .description("Adds two numbers")
                .read_only()
                .idempotent()
                .open_world(false)
                .handler(|Add { a, b }| async move { Json(Sum { sum: a + b }) }),
        )
        .tool("echo", "Returns the message", |Echo { message }| async move { message })
        .tool("countdown", "Counts down to zero and reports each step", countdown)
        .tool("order", "Places an order: asks the user for the size and the number of cups", order)
        .tool("terms", "Asks the user to open a page with terms, and fails if the user declines", terms)
        .resource("memory://status", "status", || async { json!({ "status": "ok" }) })
        .add(
            ResourceTemplate::new("notes://{name}", "note")
                .description("A note about this server")
                .mime_type("text/markdown")
                .complete("name", |input: String| async move {
                    starting_with(NOTES.iter().map(|(name, _)| *name), &input)
                })
                .handler(|Note { name }| async move {
                    NOTES.iter().find(|(note_name, _)| *note_name == name).map(|(_, text)| *text)
                }),
        )
        .add(
            Prompt::new("review")
                .title("Review code")
                .description("Requests a code review")
                .complete("language", |input: String| async move { starting_with(LANGUAGES, &input) })
                .handler(|Review { language, code }| async move {
                    let code = code.map(|code| format!(":\n\n```\n{code}\n```")).unwrap_or_default();
                    format!("Review this {language} code for mistakes and possible simplifications{code}")
                }),
        )
}

async fn countdown(Countdown { from, pause_ms }: Countdown, cx: Context) -> Result<String> {
    for left in (0..from).rev() {
        if let Some(delay) = pause_ms {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        cx.progress((f64::from(from - left), f64::from(from), format!("{left} to go")));
    }
    cx.log(LogLevel::Info, format!("counted down from {from}"));
    Ok(format!("Counted down from {from}."))
}

async fn order(Order { drink }: Order, cx: Context) -> Result<String> {
    let drink = drink.unwrap_or_else(|| "tea".into());
    let Cup { size, count, to_go, wish } = cx.elicit(format!("How would you like your {drink}?")).await?;
    let size = match size {
        Size::Small => "small",
        Size::Medium => "medium",
        Size::Large => "large",
    };
    let serving = if to_go { "to go" } else { "to stay" };
    let wish = wish.map(|wish| format!(" ({wish})")).unwrap_or_default();
    Ok(format!("{count} × {size} {drink}, {serving}{wish}"))
}

async fn terms(_: NoArgs, cx: Context) -> Result<&'static str> {
    cx.elicit_url("Read the terms of this demo", "https://example.com/terms").await?;
    Ok("The user agreed to read the terms.")
}

fn starting_with(words: impl IntoIterator<Item = &'static str>, input: &str) -> Vec<&'static str> {
    let starts = |word: &str| word.to_lowercase().starts_with(&input.to_lowercase());
    words.into_iter().filter(|word| starts(word)).collect()
}
