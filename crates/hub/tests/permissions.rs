//! Permissions of commands: the table in `docs/guide/permissions.md` has every command that uses the REST API, with the
//! permissions of the routes that it requests.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use support::{run, run_command};

const PAGE: &str = "docs/guide/permissions.md";
/// Commands that do not use the REST API of a hub, or only that of a hub on this machine.
const LOCAL: [&str; 13] = [
    "gateway",
    "serve",
    "backup",
    "restore",
    "import",
    "completions",
    "demo",
    "inspect",
    "call",
    "doctor",
    "sign-out",
    "audit accept",
    "audit export",
];

/// Hub that records the requests of commands and sends the same response to all of them.
struct Recorder {
    url: String,
    requests: Arc<Mutex<Vec<(String, String)>>>,
}

impl Recorder {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::<Mutex<Vec<_>>>::default();
        let recorded = requests.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let recorded = recorded.clone();
                std::thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    if let Some(request) = read_request(&stream) {
                        // Recorded first: the command may end as soon as it has the response.
                        recorded.lock().unwrap().push(request);
                        respond(&mut stream);
                    }
                });
            }
        });
        Recorder { url, requests }
    }

    /// Runs a command and returns the permissions of the routes that it has requested.
    fn permissions(&self, command: &str, document: &Value) -> String {
        let words: Vec<_> = ["--hub", &*self.url].into_iter().chain(command.split(' ')).collect();
        let done = run_command("secret\n", &[("LINCHPIN_TOKEN", "lp_test")], &words);
        let requests = std::mem::take(&mut *self.requests.lock().unwrap());
        assert!(!requests.is_empty(), "{command} requests nothing: {}{}", done.stdout, done.stderr);
        let names: BTreeSet<_> =
            requests.iter().map(|(method, path)| permission(document, method, path)).collect();
        names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    }
}

/// Reads one request, and returns method and path.
fn read_request(stream: &TcpStream) -> Option<(String, String)> {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).ok()?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.parse().unwrap();
            }
            Some(_) => {}
            None => break,
        }
    }
    reader.read_exact(&mut vec![0; length]).ok()?;
    let mut words = first.split(' ').map(str::to_owned);
    Some((words.next()?, words.next()?))
}

fn respond(stream: &mut TcpStream) {
    let item =
        json!({"id": "ID", "name": "NAME", "slug": "SERVER", "pin": "PIN", "state": "new", "definition": {}});
    let mut body = item.clone();
    (body["items"], body["next"], body["status"]) = (json!([item]), Value::Null, json!("success"));
    let body = body.to_string();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length";
    let _ = stream.write_all(format!("{head}: {}\r\n\r\n{body}", body.len()).as_bytes()); // the command may have ended
}

/// Returns the permission that the API document declares for a request.
fn permission(document: &Value, method: &str, path: &str) -> String {
    let path = path.split('?').next().unwrap();
    let matches = |pattern: &str| {
        let (pattern, path): (Vec<_>, Vec<_>) = (pattern.split('/').collect(), path.split('/').collect());
        let is_same = |(pattern, part): (&&str, &&str)| pattern.starts_with('{') || pattern == part;
        pattern.len() == path.len() && pattern.iter().zip(&path).all(is_same)
    };
    let routes = document["paths"].as_object().unwrap().iter().filter(|(pattern, _)| matches(pattern));
    let mut operations =
        routes.filter_map(|(pattern, methods)| Some((pattern, methods.get(method.to_lowercase())?)));
    // A literal path takes precedence over a parameter.
    let found = operations.clone().find(|(pattern, _)| *pattern == path).or_else(|| operations.next());
    let (_, operation) = found.unwrap_or_else(|| panic!("no route for {method} {path}"));
    operation["x-permission"].as_str().unwrap().to_owned()
}

/// Returns the commands without subcommands, below this one.
fn leaf_commands(command: &str) -> Vec<String> {
    let words: Vec<_> = command.split(' ').filter(|word| !word.is_empty()).chain(["--help"]).collect();
    let help = run(&words).stdout;
    let Some((_, list)) = help.split_once("\nCommands:\n") else { return vec![command.to_owned()] };
    let lines = list.lines().take_while(|line| !line.is_empty());
    let names =
        lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next().filter(|name| !name.is_empty()));
    let below = names.filter(|name| *name != "help");
    below.flat_map(|name| leaf_commands(format!("{command} {name}").trim_start())).collect()
}

#[test]
fn the_table_has_every_command_with_its_permissions() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PAGE);
    let (page, recorder, document) =
        (std::fs::read_to_string(&path).unwrap(), Recorder::start(), linchpin_hub_http::openapi());
    let (mut lines, mut commands) = (Vec::new(), Vec::new());
    for line in page.lines() {
        let Some(rest) = line.strip_prefix("| `linchpin ") else {
            lines.push(line.to_owned());
            continue;
        };
        let command = rest.split('`').next().unwrap().to_owned();
        lines.push(format!("| `linchpin {command}` | {} |", recorder.permissions(&command, &document)));
        commands.push(command);
    }
    let expected = lines.join("\n") + "\n";
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    let page = std::fs::read_to_string(&path).unwrap();
    for (line, expected) in page.lines().zip(expected.lines()) {
        assert_eq!(line, expected, "{PAGE}: run this test with UPDATE_SNAPSHOTS=1");
    }
    let is_listed = |leaf: &String| {
        LOCAL.contains(&&**leaf)
            || commands.iter().any(|command| format!("{command} ").starts_with(&format!("{leaf} ")))
    };
    let missing: Vec<_> = leaf_commands("").into_iter().filter(|leaf| !is_listed(leaf)).collect();
    assert!(missing.is_empty(), "add these commands to {PAGE}, with arguments: {missing:?}");
}
