//! Servers at a URL: `demo --http`, `inspect`, `call` and `doctor`.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::thread;

use serde_json::{Value, json};
use support::{LINCHPIN, run};

/// The demo server over HTTP, until this is dropped.
struct Demo {
    child: Child,
    url: String,
}

impl Demo {
    fn start() -> Self {
        let mut child = Command::new(LINCHPIN)
            .args(["demo", "--http", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("it says where it is");
        Demo { child, url: line.trim().to_owned() }
    }

    fn at(&self, path: &str) -> String {
        self.url.replace("/mcp", path)
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended
        let _ = self.child.wait();
    }
}

/// Answers every request with the same bytes.
fn answering(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let url = format!("http://{}/mcp", listener.local_addr().expect("it is bound"));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(stream.try_clone().expect("it is open")).lines();
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let _ = (&stream).write_all(answer.as_bytes()); // whoever asked may have left
        }
    });
    url
}

#[test]
fn a_url_is_inspected_and_called_like_a_command() {
    let demo = Demo::start();
    let shown = run(&["inspect", &demo.url]).said(0, &[]).stdout;
    let started = run(&["inspect", LINCHPIN, "demo"]).said(0, &[]).stdout;
    assert_eq!(shown, started);
    let called = run(&["call", "add", "--args", r#"{"a": 2, "b": 40}"#, &demo.url]).said(0, &[]);
    assert_eq!(called.stdout.trim(), r#"{"sum":42.0}"#);
    let counted =
        run(&["call", "countdown", "--args", r#"{"from": 2}"#, &demo.url]).said(0, &["progress 2/2"]);
    assert_eq!(counted.stdout.trim(), "Counted down from 2.");
}

#[test]
fn what_was_typed_wrongly_is_named() {
    run(&["inspect", "--header", "a: b", LINCHPIN, "demo"]).said(2, &["--header is for a URL"]);
    run(&["inspect", "http://127.0.0.1:1/mcp", "extra"]).said(2, &["`extra` comes after a URL"]);
    run(&["inspect", "--header", "nothing", "http://127.0.0.1:1/mcp"]).said(2, &["NAME: VALUE"]);
    let refused = run(&["inspect", "--header", "Mcp-Session-Id: x", "http://127.0.0.1:1/mcp"]);
    refused.said(1, &["the header `mcp-session-id` is set by the transport"]);
    run(&["demo", "--http", "nowhere"]).said(1, &["nowhere", "listened at"]);
}

fn steps(run: &support::Run) -> Vec<(String, bool)> {
    let found = run.json();
    let step =
        |step: &Value| (step["step"].as_str().expect("a step has a name").to_owned(), step["ok"] == true);
    found["steps"].as_array().expect("there are steps").iter().map(step).collect()
}

#[test]
fn the_doctor_shows_every_step() {
    let demo = Demo::start();
    let healthy = run(&["--json", "doctor", &demo.url]).said(0, &[]);
    assert_eq!(healthy.json()["ok"], true);
    let names: Vec<_> = steps(&healthy).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["TCP", "era", "revision", "session", "server", "capabilities", "tools"]);
    let text = run(&["doctor", &demo.url]).said(0, &[]).stdout;
    assert!(
        text.contains("ok revision      2026-07-28") && text.ends_with("The server can be used.\n"),
        "{text}"
    );
    let started = run(&["--json", "doctor", LINCHPIN, "demo"]).said(0, &[]);
    assert_eq!(steps(&started)[0], ("program".to_owned(), true));
}

#[test]
fn the_doctor_says_what_to_do() {
    let demo = Demo::start();
    let unauthorized = answering(
        "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Bearer\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
    );
    let page = answering(
        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\nconnection: close\r\n\r\n<html>",
    );
    let broken =
        answering("HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    let nowhere = demo.at("/nowhere");
    let cases = [
        (&*nowhere, "check the path of the URL"),
        (&*unauthorized, "--header 'Authorization: Bearer …'"),
        (&*page, "does not speak the Model Context Protocol"),
        (&*broken, "the server failed by itself"),
        ("http://127.0.0.1:1/mcp", "check host and port"),
        ("https://nosuch.invalid/mcp", "check its spelling"),
        ("http://1.1.1.1/mcp", "https"),
        ("no-such-program", "check the name"),
    ];
    for (server, advice) in cases {
        let failed = run(&["doctor", server]);
        assert_eq!(failed.code, Some(1), "{server}: {}", failed.stdout);
        assert!(failed.stdout.contains(advice), "{server}: {advice:?} is missing in:\n{}", failed.stdout);
        let ended = "The server cannot be used as it is.\n";
        assert!(failed.stdout.ends_with(ended), "{}", failed.stdout);
    }
    let failed = run(&["--json", "doctor", &nowhere]).json();
    assert_eq!((failed["ok"].clone(), failed["steps"][1]["ok"].clone()), (json!(false), json!(false)));
}
