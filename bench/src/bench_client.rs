//! Measured client: starts or connects to a server, calls its tool `echo` and prints one line of JSON.
//!
//! ```text
//! bench-client stdio CALLS IN_FLIGHT BYTES [--session] -- COMMAND…
//! bench-client http CALLS IN_FLIGHT BYTES [--session] URL
//! ```
//!
//! It uses the public API and default settings; `--session` disables the stateless revision. The CPU time is that of
//! this process only, without the server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use linchpin::client::Client;
use linchpin::{Content, Revision};
use serde::Serialize;
use serde_json::json;

const USAGE: &str = "\
usage: bench-client stdio CALLS IN_FLIGHT BYTES [--session] -- COMMAND…
       bench-client http CALLS IN_FLIGHT BYTES [--session] URL";

#[derive(Serialize)]
struct Echo<'a> {
    message: &'a str,
}

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "the report")]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [transport, calls, in_flight, bytes, rest @ ..] = &arguments[..] else { bail!(USAGE) };
    let (session, server) = match rest {
        [session, server @ ..] if session == "--session" => (true, server),
        server => (false, server),
    };
    let [calls, in_flight, bytes] = [calls, in_flight, bytes].map(|number| number.parse::<u32>());
    let (calls, in_flight, bytes) = (calls?, in_flight?.max(1), usize::try_from(bytes?)?);

    let mut builder = match (&**transport, server) {
        ("stdio", [dashes, program, command @ ..]) if dashes == "--" => {
            Client::stdio(program, command).boxed()
        }
        ("http", [url]) => Client::http(url).boxed(),
        _ => bail!(USAGE),
    };
    if session {
        builder =
            builder.revisions(Revision::ALL.into_iter().filter(|revision| *revision != Revision::LATEST));
    }
    let client = builder.connect().await?;

    let text: Arc<str> = "m".repeat(bytes).into();
    let (cpu, begun) = (cpu_time()?, Instant::now());
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..in_flight {
        let share = calls / in_flight + u32::from(caller < calls % in_flight);
        callers.spawn(call(client.clone(), share, text.clone()));
    }
    let errors: u32 = callers.join_all().await.into_iter().sum();
    let (taken, cpu) = (begun.elapsed().as_secs_f64(), cpu_time()?.saturating_sub(cpu).as_secs_f64());
    println!(
        "{}",
        json!({
            "calls": calls,
            "errors": errors,
            "seconds": taken,
            "calls_per_second": f64::from(calls) / taken,
            "cpu_us_per_call": cpu * 1e6 / f64::from(calls),
            "revision": client.revision().as_str(),
        })
    );
    client.close().await;
    Ok(())
}

/// Makes the calls sequentially and returns how many failed or had a wrong result.
async fn call(client: Client, calls: u32, text: Arc<str>) -> u32 {
    let mut errors = 0;
    for _ in 0..calls {
        let answer = client.call("echo", Echo { message: &text }).await;
        let echoed = answer.is_ok_and(
            |result| matches!(&result.content[..], [Content::Text(content)] if content.text == *text),
        );
        errors += u32::from(!echoed);
    }
    errors
}

/// Returns the CPU time of all threads of this process, in nanoseconds; `/proc/self/stat` has a resolution of 10 ms.
fn cpu_time() -> anyhow::Result<Duration> {
    let mut total = Duration::ZERO;
    for thread in std::fs::read_dir("/proc/self/task")? {
        let used = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        total += Duration::from_nanos(used.split(' ').next().unwrap_or_default().parse()?);
    }
    Ok(total)
}
