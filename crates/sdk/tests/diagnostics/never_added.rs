//! A tool that is never added to a server.

#![deny(dead_code)]

use linchpin::{args, tool};

#[args]
struct Unread {
    field: i64,
}

/// Adds two numbers
#[tool]
async fn add(a: i64, b: i64) -> i64 {
    a + b
}

fn main() {}
