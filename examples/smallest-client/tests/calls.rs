//! The client starts this test program as its server, lists the tool and calls it.
#![expect(clippy::print_stdout, reason = "there is no test harness that reports")]

use std::process::Command;

use linchpin::{Server, args};

const SERVE: &str = "serve";

#[args]
struct Add {
    a: i64,
    b: i64,
}

fn main() -> linchpin::Result {
    if std::env::args().nth(1).as_deref() == Some(SERVE) { serve() } else { test() }
}

#[tokio::main]
async fn serve() -> linchpin::Result {
    Server::new("adds", "1.0.0")
        .tool("add", "Adds two numbers", |Add { a, b }| async move { a + b })
        .run()
        .await
}

fn test() -> linchpin::Result {
    let client = || Command::new(env!("CARGO_BIN_EXE_smallest-client"));
    let output = client().arg(std::env::current_exe()?).arg(SERVE).output()?;
    assert_eq!(String::from_utf8(output.stdout)?, "add: Adds two numbers\n2 + 40 = 42\n");
    assert!(output.status.success());

    let output = client().arg("no-such-program-here").output()?;
    let words = String::from_utf8(output.stderr)?;
    assert!(words.contains("no such program in PATH"), "{words}");
    assert!(!output.status.success());
    println!("the client lists and calls the tool, and reports a missing server");
    Ok(())
}
