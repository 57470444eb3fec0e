//! Lower bound of the comparison: the least work that still implements MCP correctly. One borrowed parse, slices
//! spliced into one output buffer; no task, channel, lock or JSON tree per request. Any further cost of an SDK is its
//! overhead.
//!
//! ```text
//! raw-limit stdio [--fixed N] [--stateless] [--pause MS]
//! raw-limit hyper|axum|bare PORT [--sse] [--fixed N] [--rt multi|current]
//! ```
//!
//! With `--fixed N`, the response to every call is N constant bytes with the id spliced in, without the echo (run the
//! load generator with `--validate id`). `--stateless` implements `server/discover` and the part of the revision
//! without handshake that calls of `echo` need, and `--pause` waits before each response, so that the client always
//! waits too: both are for measuring clients.

mod http;
mod http_raw;
mod responder;
mod stdio;

use std::{sync::Arc, time::Duration};

use anyhow::{Context, bail};
use tokio::runtime::Builder;

use crate::{http::Stack, responder::App};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let value = |flag: &str| {
        let at = arguments.iter().position(|argument| argument == flag)?;
        arguments.get(at + 1)
    };
    let fixed = value("--fixed").map(|length| length.parse()).transpose().context("--fixed")?;
    let app = App::new(fixed, has("--sse"), has("--stateless"));
    let stack = match arguments.first().map(String::as_str) {
        Some("stdio") => {
            let pause = value("--pause").map(|pause| pause.parse()).transpose().context("--pause")?;
            return stdio::serve(&app, pause.map(Duration::from_millis));
        }
        Some("bare") => Stack::Bare,
        Some("hyper") => Stack::Hyper,
        Some("axum") => Stack::Axum,
        _ => bail!(
            "usage: raw-limit stdio | raw-limit hyper|axum|bare PORT [--sse] [--fixed N] [--rt multi|current]"
        ),
    };
    let port = arguments.get(1).context("a port is required")?.parse().context("port")?;
    let current = value("--rt").is_some_and(|runtime| runtime == "current");
    let mut builder = if current { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    builder.enable_all().build()?.block_on(http::serve(Arc::new(app), stack, port))
}
