//! Options that the attributes reject.

use linchpin::{args, prompt, resource, tool};

#[tool(readonly)]
pub async fn unknown() {}

#[resource("memory://status", mime_type = "text/plain")]
pub async fn unknown_of_a_resource() -> &'static str {
    "ok"
}

#[prompt(read_only)]
pub async fn unknown_of_a_prompt() -> &'static str {
    "ok"
}

#[tool(title = "One", title = "Two")]
pub async fn twice() {}

#[tool(title)]
pub async fn no_text() {}

#[tool(title = 5)]
pub async fn not_a_text() {}

#[tool(read_only = false)]
pub async fn not_alone() {}

#[tool(destructive = "no")]
pub async fn not_a_bool() {}

#[tool(timeout_ms = "5 s")]
pub async fn not_a_number() {}

#[resource(mime = "text/plain")]
pub async fn no_uri() -> &'static str {
    "ok"
}

#[args(default)]
struct Options {
    a: i64,
}

fn main() {}
