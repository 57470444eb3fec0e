//! The physical limit: the least work that still answers MCP correctly. One borrowed parse, slices spliced into one
//! output buffer; no task, channel, lock or JSON tree per request. What an SDK costs beyond this is its overhead.
//!
//! ```text
//! raw-limit stdio [--fixed N] [--stateless] [--pause MS]
//! raw-limit hyper|axum|bare PORT [--sse] [--fixed N] [--rt multi|current]
//! ```
//!
//! `--fixed N` does not even echo: every call is answered with N constant bytes and the id spliced in (run the load
//! generator with `--validate id`). `--stateless` knows `server/discover` and the revision without handshake, so far
//! as calls of `echo` need it, and `--pause` waits before each answer, so that the client always waits too: both are
//! for measuring clients.

mod answer;
mod bare;
mod http;
mod stdio;

use std::{sync::Arc, time::Duration};

use anyhow::{Context, bail};
use tokio::runtime::Builder;

use crate::{answer::App, http::Stack};

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
    let port = arguments.get(1).context("a port is needed")?.parse().context("port")?;
    let current = value("--rt").is_some_and(|runtime| runtime == "current");
    let mut builder = if current { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    builder.enable_all().build()?.block_on(http::serve(Arc::new(app), stack, port))
}
