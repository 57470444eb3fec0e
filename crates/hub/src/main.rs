//! Binary `linchpin`: the hub and its command line.

mod api_client;
mod blocking_input;
mod call;
mod cli;
mod config;
mod demo;
mod doctor;
mod elicit;
mod error;
mod import;
mod inspect;
mod interaction;
mod otel;
#[cfg(target_os = "linux")]
mod process_privacy;
mod roots;
mod secret_input;
mod serve;
mod server_output;
mod sign_in;
mod signals;
mod target;
mod terminal;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;
use linchpin_hub_core::platform::default_worker_threads;
use linchpin_hub_core::process_guard;
use tokio::runtime::{Builder, Runtime};

use self::config::env_variable;
use self::error::{CliError, CliErrorKind};

/// Allocator that returns memory to the system when sessions and connections end.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // Must run before any thread exists and any secret is read.
    #[cfg(target_os = "linux")]
    process_privacy::harden_process();
    // The process guard and supervisors run as long as the hub: skip the async runtime and the argument parser.
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(first) if first == process_guard::COMMAND => {
            process_guard::run_guard();
            ExitCode::SUCCESS
        }
        #[cfg(target_os = "linux")]
        Some(first) if first == linchpin::client::SUPERVISE => linchpin::client::supervise(arguments),
        _ => match start_runtime() {
            Ok(runtime) => runtime.block_on(run()),
            Err(error) => print_error(&error, false),
        },
    }
}

/// Starts the runtime with the number of worker threads that `TOKIO_WORKER_THREADS` sets, or the default.
fn start_runtime() -> Result<Runtime, CliError> {
    let threads = match env_variable("TOKIO_WORKER_THREADS") {
        Some(text) => text.to_str().and_then(|text| text.parse().ok()).ok_or_else(|| {
            let text = "the environment variable `TOKIO_WORKER_THREADS` must be a number from 1: correct or remove it";
            CliError::usage(text)
        })?,
        None => default_worker_threads(),
    };
    let runtime = Builder::new_multi_thread().worker_threads(threads.get()).enable_all().build();
    runtime.map_err(|error| {
        CliError::new(CliErrorKind::Other, format!("the threads of the hub cannot be started: {error}"))
    })
}

async fn run() -> ExitCode {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return print_usage_error(&error),
    };
    log_to_stderr(&cli);
    let json = cli.json;
    match cli::run(cli).await {
        Ok(code) => code,
        Err(failure) => print_error(&failure, json),
    }
}

/// Prints the error as text or JSON, and returns the exit code. Write errors are ignored: there is no other output.
fn print_error(failure: &CliError, json: bool) -> ExitCode {
    match failure.kind {
        CliErrorKind::BrokenPipe => {}
        _ if json => drop(cli::print(&format!("{}\n", failure.to_json()))),
        // After Ctrl-C, only end the line, so that the shell prompt starts on a new one.
        CliErrorKind::Interrupted(_) if io::stderr().is_terminal() => drop(writeln!(io::stderr())),
        CliErrorKind::Interrupted(_) => {}
        _ => drop(writeln!(io::stderr(), "linchpin: {failure}")),
    }
    ExitCode::from(failure.exit_code())
}

/// Prints a usage error, the help or the version.
fn print_usage_error(error: &clap::Error) -> ExitCode {
    let wants_json = std::env::args_os().take_while(|arg| arg != "--").any(|arg| arg == "--json");
    if error.use_stderr() && wants_json {
        let text = error.render().to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        return print_error(&CliError::usage(text.trim()), true);
    }
    drop(error.print());
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// Starts logging to standard error; standard output is reserved for the protocol and for results.
fn log_to_stderr(cli: &cli::Cli) {
    let colours = io::stderr().is_terminal();
    if cli.is_serving() && otel::is_enabled() {
        use tracing_subscriber::{EnvFilter, Layer as _};
        let log = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(colours);
        let log = match cli.log() {
            Some(serve::LogFormat::Json) => log.json().flatten_event(true).boxed(),
            Some(serve::LogFormat::Text) | None => log.boxed(),
        };
        return otel::install(log.with_filter(EnvFilter::new(cli.log_level())));
    }
    let log =
        tracing_subscriber::fmt().with_writer(io::stderr).with_ansi(colours).with_env_filter(cli.log_level());
    match cli.log() {
        Some(serve::LogFormat::Json) => log.json().flatten_event(true).init(),
        Some(serve::LogFormat::Text) | None => log.init(),
    }
}
