//! The limit of open files: connections never use the descriptors that the hub reserves for itself.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/hub.rs"]
mod hub;
mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use hub::Home;

/// Sends a request on a connection that stays open, and returns the status.
fn ask(stream: &mut BufReader<TcpStream>, host: &str) -> std::io::Result<String> {
    stream.get_mut().write_all(format!("GET /style.css HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes())?;
    let (mut status, mut length) = (String::new(), 0);
    stream.read_line(&mut status)?;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    std::io::copy(&mut stream.by_ref().take(length), &mut std::io::sink())?;
    Ok(status)
}

#[test]
fn idle_connections_do_not_lock_anybody_out() {
    let home = Home::new();
    let hub = home.start_through(&["sh", "-c", "ulimit -n 128 && exec \"$@\"", "sh"], &[]);
    let host = hub.url.strip_prefix("http://").unwrap().to_owned();
    let mut idle = Vec::new();
    for number in 0..300 {
        let stream = TcpStream::connect(&*host).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut stream = BufReader::new(stream);
        let status = ask(&mut stream, &host);
        assert!(
            status.as_ref().is_ok_and(|status| status.starts_with("HTTP/1.1 200")),
            "{number}: {status:?}"
        );
        idle.push(stream);
    }
    // A server is started, and a tool of it is called.
    home.ok(&["tool", "call", "mcp_demo__add", "--args", "{\"a\": 2, \"b\": 40}"]);
}

#[test]
fn the_soft_limit_is_raised_to_the_hard_limit() {
    let home = Home::new();
    let hub =
        home.start_through(&["sh", "-c", "ulimit -Sn 100 && ulimit -Hn 2000 && exec \"$@\"", "sh"], &[]);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", hub.id())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let values: Vec<_> = line.split_whitespace().skip(3).take(2).collect();
    assert_eq!(values, ["2000", "2000"], "{line}");
}
