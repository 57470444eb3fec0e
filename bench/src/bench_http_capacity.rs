//! Capacity of a running HTTP server: the cost of many sessions, streams or connections, and whether their memory is
//! released.
//!
//! ```text
//! bench-http-capacity streams|sessions|flood|slow COUNT ADDRESS PID
//! ```
//!
//! `ADDRESS` is the listening address of the server, such as `127.0.0.1:8080`, and `PID` its process, whose memory is
//! measured. It uses plain sockets and no part of the SDK.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use bench::cpu_time::resident_memory;
use linchpin::Revision;
use serde_json::{Value, json};

const USAGE: &str = "usage: bench-http-capacity streams|sessions|flood|slow COUNT ADDRESS PID";
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for the memory of the server to settle.
const SETTLE_DELAY: Duration = Duration::from_secs(2);

struct Target {
    address: String,
    pid: u32,
}

#[expect(clippy::print_stdout, reason = "the report")]
fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, count, address, pid] = &arguments[..] else { bail!(USAGE) };
    let target = Target { address: address.clone(), pid: pid.parse().context(USAGE)? };
    let count: usize = count.parse().context(USAGE)?;
    let report = match &**what {
        "streams" => streams(&target, count)?,
        "sessions" => sessions(&target, count)?,
        "flood" => flood(&target, count)?,
        "slow" => slow_connections(&target, count)?,
        _ => bail!(USAGE),
    };
    println!("{}\n{}", report.text, report.figures);
    Ok(())
}

/// Result as text, and as figures for `cargo xtask bench`.
struct Report {
    text: String,
    figures: Value,
}

impl Target {
    fn connect(&self) -> anyhow::Result<TcpStream> {
        let stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(CLOSE_TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Returns the resident memory of the server in KiB.
    fn resident(&self) -> anyhow::Result<usize> {
        Ok(usize::try_from(resident_memory(self.pid)? / 1024)?)
    }
}

fn post(headers: &str, body: &str) -> String {
    format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: application/json, text/event-stream\r\n\
         Content-Type: application/json\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Formats a request of the stateless era.
fn stateless_request(method: &str, name: &str, params: &str) -> String {
    let version = Revision::LATEST;
    let capabilities = r#""io.modelcontextprotocol/clientCapabilities":{}"#;
    let meta = format!(r#""_meta":{{"io.modelcontextprotocol/protocolVersion":"{version}",{capabilities}}}"#);
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params},{meta}}}}}"#);
    let mut headers = format!("MCP-Protocol-Version: {version}\r\nMcp-Method: {method}\r\n");
    if !name.is_empty() {
        let _ = write!(headers, "Mcp-Name: {name}\r\n"); // writing to a String cannot fail
    }
    post(&headers, &body)
}

/// Sends a request and reads until `end` occurs.
fn exchange(stream: &mut TcpStream, request: &str, end: &str) -> anyhow::Result<String> {
    stream.write_all(request.as_bytes())?;
    let (mut said, mut bytes) = (String::new(), [0; 4 << 10]);
    while !said.contains(end) {
        let count = stream.read(&mut bytes)?;
        ensure!(count > 0, "the server closed after {said:?}");
        said.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    Ok(said)
}

fn echo(stream: &mut TcpStream) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let request =
        stateless_request("tools/call", "echo", r#""name":"echo","arguments":{"message":"honest"}"#);
    let said = exchange(stream, &request, "\"honest\"")?;
    ensure!(said.starts_with("HTTP/1.1 200"), "{said}");
    Ok(begun.elapsed())
}

/// Opens streams, each on its own connection.
fn streams(target: &Target, count: usize) -> anyhow::Result<Report> {
    echo(&mut target.connect()?)?;
    let before = target.resident()?;
    let begun = Instant::now();
    let listen =
        stateless_request("subscriptions/listen", "", r#""notifications":{"toolsListChanged":true}"#);
    let mut open = Vec::with_capacity(count);
    for _ in 0..count {
        let mut stream = target.connect()?;
        exchange(&mut stream, &listen, "subscriptions/acknowledged")?;
        open.push(stream);
    }
    let opened = begun.elapsed();
    thread::sleep(SETTLE_DELAY);
    let (held, late) = (target.resident()?, echo(&mut target.connect()?)?);
    drop(open);
    thread::sleep(SETTLE_DELAY);
    let after = target.resident()?;
    let each = held.saturating_sub(before) * 1024 / count.max(1);
    let text = format!(
        "{count} streams opened in {opened:.1?}: {before} KiB before, {held} KiB with them ({each} bytes each), a call \
         takes {late:.1?}; {after} KiB after"
    );
    Ok(Report { text, figures: json!({ "megabytes": held * 1024 / 1_000_000 }) })
}

fn initialize() -> String {
    let info = r#""clientInfo":{"name":"bench-http-capacity","version":"1"}"#;
    let version = Revision::LATEST_SESSION;
    let params = format!(r#"{{"protocolVersion":"{version}","capabilities":{{}},{info}}}"#);
    post("", &format!(r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{params}}}"#))
}

/// Opens more sessions than the server holds, and never uses them.
fn flood(target: &Target, count: usize) -> anyhow::Result<Report> {
    let (mut stream, opening) = (target.connect()?, initialize());
    exchange(&mut stream, &opening, "serverInfo")?;
    let (before, begun) = (target.resident()?, Instant::now());
    for _ in 0..count {
        exchange(&mut stream, &opening, "serverInfo")?;
    }
    let (taken, after) = (begun.elapsed(), target.resident()?);
    let grown = after.saturating_sub(before);
    let text = format!(
        "{count} sessions opened in {taken:.1?}: {before} KiB before, {after} KiB after ({grown} KiB more)"
    );
    Ok(Report { text, figures: json!({ "kibibytes_more": grown }) })
}

/// Opens and closes idle sessions over one connection.
fn sessions(target: &Target, count: usize) -> anyhow::Result<Report> {
    let mut stream = target.connect()?;
    let open = |stream: &mut TcpStream| -> anyhow::Result<String> {
        let said = exchange(stream, &initialize(), "serverInfo")?.to_ascii_lowercase();
        let id = said.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
        let id = id.context("the session id is missing")?.trim().to_owned();
        let ready = post(
            &format!("Mcp-Session-Id: {id}\r\n"),
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        );
        exchange(stream, &ready, "\r\n\r\n")?;
        Ok(id)
    };
    let end = |stream: &mut TcpStream, id: &str| {
        let request = format!("DELETE /mcp HTTP/1.1\r\nHost: localhost\r\nMcp-Session-Id: {id}\r\n\r\n");
        exchange(stream, &request, "\r\n\r\n")
    };
    let warm: Vec<_> = (0..50).map(|_| open(&mut stream)).collect::<anyhow::Result<_>>()?;
    for id in warm {
        end(&mut stream, &id)?;
    }
    thread::sleep(SETTLE_DELAY);
    let before = target.resident()?;
    let ids: Vec<_> = (0..count).map(|_| open(&mut stream)).collect::<anyhow::Result<_>>()?;
    thread::sleep(SETTLE_DELAY);
    let held = target.resident()?;
    for id in &ids {
        ensure!(end(&mut stream, id)?.starts_with("HTTP/1.1 204"), "a session was lost");
    }
    thread::sleep(SETTLE_DELAY);
    let after = target.resident()?;
    let each = held.saturating_sub(before) * 1024 / count.max(1);
    let text = format!(
        "{count} idle sessions: {before} KiB before, {held} KiB with them ({each} bytes each); {after} KiB after"
    );
    Ok(Report { text, figures: json!({ "bytes_each": each, "percent_after": after * 100 / before.max(1) }) })
}

/// Opens connections that are silent or send a head or body byte by byte, while regular calls are made.
fn slow_connections(target: &Target, count: usize) -> anyhow::Result<Report> {
    let begun = Instant::now();
    let body = post("", &"x".repeat(64 << 10));
    let mut open = Vec::with_capacity(count);
    for number in 0..count {
        let mut stream = target.connect()?;
        let said = match number % 3 {
            0 => "",
            1 => "POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
            _ => body.trim_end_matches('x'),
        };
        stream.write_all(said.as_bytes())?;
        stream.set_nonblocking(true)?;
        open.push((stream, !said.is_empty()));
    }
    let (mut honest, mut longest, mut kept) = (0, Duration::ZERO, target.connect()?);
    let mut byte = [0];
    while !open.is_empty() {
        ensure!(begun.elapsed() < CLOSE_TIMEOUT, "{} connections are still open", open.len());
        open.retain_mut(|(stream, dribbles)| {
            if *dribbles {
                let _ = stream.write(b"x"); // fails if it is closed, which the read detects
            }
            // End of stream or an error response: the server has closed the connection.
            stream.read(&mut byte).map(|_count| ()).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        });
        for took in [echo(&mut kept)?, echo(&mut target.connect()?)?] {
            honest += 1;
            longest = longest.max(took);
        }
        thread::sleep(Duration::from_millis(20));
    }
    let taken = begun.elapsed();
    let text = format!(
        "{count} slow connections closed after {taken:.1?}; {honest} concurrent regular calls, 0 errors, the longest {longest:.1?}"
    );
    Ok(Report { text, figures: json!({ "seconds": taken.as_secs_f64() }) })
}
