//! Framing of messages as SSE events, and the format of event ids.

use std::io::Write as _;
use std::time::Duration;

/// Default reconnection delay for a client whose stream was cut.
const DEFAULT_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Splits newline-delimited messages.
pub(in crate::server::http) fn messages(lines: &[u8]) -> impl Iterator<Item = &[u8]> {
    lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
}

/// Appends messages as events without ids.
pub(in crate::server::http) fn write_events(lines: &[u8], out: &mut Vec<u8>) {
    for message in messages(lines) {
        write_event(None, message, out);
    }
}

/// Appends a message as a server-sent event. The id consists of the stream and the event number.
pub(in crate::server::http) fn write_event(id: Option<(u32, u64)>, message: &[u8], out: &mut Vec<u8>) {
    if let Some((stream, number)) = id {
        write_id(stream, number, out);
    }
    out.extend_from_slice(b"data: ");
    out.extend_from_slice(message);
    out.extend_from_slice(b"\n\n");
}

fn write_id(stream: u32, number: u64, out: &mut Vec<u8>) {
    let _ = writeln!(out, "id: {stream}-{number}"); // writing to memory cannot fail
}

/// Appends an event with an id and empty data.
pub(in crate::server::http) fn write_id_event(stream: u32, number: u64, out: &mut Vec<u8>) {
    write_id(stream, number, out);
    out.extend_from_slice(b"data:\n\n");
}

/// Appends the reconnection delay (`retry`).
pub(in crate::server::http) fn write_retry(delay: Duration, out: &mut Vec<u8>) {
    let delay = if delay.is_zero() { DEFAULT_RETRY_DELAY } else { delay };
    let _ = write!(out, "retry: {}\n\n", delay.as_millis()); // writing to memory cannot fail
}

/// Parses the id of an event into the stream number and the event number.
pub(in crate::server::http) fn parse_id(text: &str) -> Option<(u32, u64)> {
    let (stream, number) = text.split_once('-')?;
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(stream) && is_number(number)).then_some(())?;
    Some((stream.parse().ok()?, number.parse().ok()?))
}
