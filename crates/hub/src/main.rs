//! The program `linchpin`.

mod cli;
mod demo;
mod report;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;

#[tokio::main]
async fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    log_to_stderr(cli.verbose);
    match cli::run(cli).await {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to do when standard error is gone as well.
            let _ = writeln!(io::stderr(), "linchpin: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Standard output belongs to the protocol and to reports; logs go to standard error.
fn log_to_stderr(verbose: u8) {
    let level = match verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let colours = io::stderr().is_terminal();
    tracing_subscriber::fmt().with_writer(io::stderr).with_ansi(colours).with_env_filter(level).init();
}
