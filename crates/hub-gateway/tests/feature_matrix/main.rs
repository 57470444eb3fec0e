//! Feature matrix of the gateway: clients of every revision and transport in front, servers of every revision and
//! transport behind, and every feature between them. Prints the table.
//!
//! This program is also the upstream server over stdio.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a test with its own main function")]

mod cells;
mod client;
mod features;
mod site;
mod table;
mod upstream;

use std::process::ExitCode;

use self::cells::run_all;
use self::site::Site;

/// Argument with which this program is the upstream server.
const UPSTREAM: &str = "upstream-over-stdio";
/// Name of the only test, for test runners that list tests.
const TEST_NAME: &str = "every_feature_between_every_client_and_every_server";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    if has("--list") {
        if !has("--ignored") {
            println!("{TEST_NAME}: test");
        }
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if has(UPSTREAM) {
        runtime.block_on(upstream::upstream().unwrap().run()).unwrap();
        return ExitCode::SUCCESS;
    }
    let cells = runtime.block_on(async {
        let site = Site::start().await;
        run_all(&site).await
    });
    print!("{}", table::render(&cells));
    runtime.shutdown_background();
    match table::check(&cells) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failures) => {
            eprintln!("{failures}");
            ExitCode::FAILURE
        }
    }
}
