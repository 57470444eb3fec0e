//! Secrets are planted at every input of the hub, and servers repeat everything they receive: no output and no stored
//! data of the hub contains a secret, except for its owner.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/canary.rs"]
mod canary;
#[path = "support/hub.rs"]
mod hub;
#[path = "support/rest.rs"]
mod rest;
mod support;

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use canary::{Canary, Sink, fresh};
use hub::Home;
use linchpin::{Server as Mcp, args};
use rest::{HttpResponse, Rest};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value, json};
use support::LINCHPIN;

const TIMEOUT: Duration = Duration::from_secs(30);
const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/repeating.py");

/// A hub on a terminal, with its log.
struct Hub {
    child: Child,
    log: Arc<(Mutex<String>, Condvar)>,
    reading: Option<JoinHandle<()>>,
    /// Output of the terminal, up to the line about Ctrl-C.
    shown: String,
    _terminal: File,
}

impl Hub {
    fn start(home: &Home, variable: (&str, &str)) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
        let other = OpenOptions::new().read(true).write(true).open(name).unwrap();
        let mut command = Command::new(LINCHPIN);
        command.arg("--data-dir").arg(home.data()).arg("--ready-file").arg(home.file("ready.json"));
        command.args(["--listen", "127.0.0.1:0", "-vvv", "--log", "json"]).env(variable.0, variable.1);
        let mut child = command.stdin(Stdio::null()).stdout(other).stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new((Mutex::new(String::new()), Condvar::new()));
        let (stderr, to) = (BufReader::new(child.stderr.take().unwrap()), log.clone());
        let reading = std::thread::spawn(move || {
            for line in stderr.lines() {
                to.0.lock().unwrap().extend([line.unwrap().as_str(), "\n"]);
                to.1.notify_all();
            }
        });
        let terminal = File::from(terminal);
        let lines = BufReader::new(terminal.try_clone().unwrap()).lines().map(Result::unwrap);
        let mut shown = String::new();
        for line in lines {
            shown += &line;
            if line.contains("Ctrl-C to stop") {
                break;
            }
        }
        Hub { child, log, reading: Some(reading), shown, _terminal: terminal }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until the log contains a text this many times.
    #[track_caller]
    fn wait_for(&self, text: &str, times: usize) {
        let log = self.log.0.lock().unwrap();
        let (_log, timed_out) =
            self.log.1.wait_timeout_while(log, TIMEOUT, |log| log.matches(text).count() < times).unwrap();
        assert!(!timed_out.timed_out(), "the log does not say {text:?}");
    }

    fn end(mut self) -> String {
        self.signal(Signal::TERM);
        assert!(self.child.wait().unwrap().success());
        self.reading.take().unwrap().join().unwrap();
        self.log.0.lock().unwrap().clone()
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended
        let _ = self.child.wait();
    }
}

#[args]
struct Given {
    /// Anything
    text: String,
}

/// A remote server that repeats the authentication headers: in results, in tool errors and in errors of the
/// protocol. Returns its URL and everything that it received.
fn upstream() -> (String, Arc<Mutex<BTreeSet<String>>>) {
    let (last, all) = (Arc::new(Mutex::new(String::new())), Arc::new(Mutex::new(BTreeSet::new())));
    let said = |last: &Arc<Mutex<String>>, text: String| {
        let sent = last.lock().unwrap().clone();
        format!("{sent} {} {sent:?} {text}", STANDARD.encode(format!("x{sent}")))
    };
    let (shown, failed, refused) = (last.clone(), last.clone(), last.clone());
    let mcp = Mcp::new("upstream", "1")
        .tool("show", "Repeats", move |Given { text }| {
            let said = said(&shown, text);
            async move { said }
        })
        .tool("fail", "Fails", move |Given { text }| {
            let said = said(&failed, text);
            async move { Err::<String, _>(linchpin::Error::tool(said)) }
        })
        .tool("refuse", "Refuses", move |Given { text }| {
            let said = said(&refused, text);
            async move { Err::<String, _>(linchpin::Error::rpc(-32_000, said)) }
        });
    let seen = all.clone();
    let http = mcp.http().principal(move |parts| {
        let header = |name| parts.headers.get(name).and_then(|value| value.to_str().ok());
        if let Some(sent) = header("authorization").or_else(|| header("x-key")) {
            sent.clone_into(&mut last.lock().unwrap());
            seen.lock().unwrap().insert(sent.to_owned());
        }
        Ok(None)
    });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let listening = runtime.block_on(http.bind("127.0.0.1:0")).unwrap();
    let url = listening.url();
    std::thread::spawn(move || runtime.block_on(listening.run_until(std::future::pending())));
    (url, all)
}

/// A server that fails every request and repeats the request in the error.
fn mirror() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(&stream);
            let mut head = String::new();
            while reader.read_line(&mut head).is_ok_and(|count| count > 2) {}
            let length = head
                .lines()
                .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            let _ = reader.read_exact(&mut vec![0; length.unwrap_or_default()]); // the client may have disconnected
            let answer = format!(
                "HTTP/1.1 500 {0}\r\nx-said: {0}\r\ncontent-length: {1}\r\n\r\n{head}",
                "no",
                head.len()
            );
            let _ = (&stream).write_all(answer.as_bytes());
        }
    });
    url
}

/// Hub under test, with the planted secrets and the observed outputs.
struct Stage {
    rest: Rest,
    canaries: Vec<Canary>,
    sinks: Vec<Sink>,
}

impl Stage {
    /// Plants a secret of the test.
    fn plant(&mut self, name: &'static str) -> String {
        self.found(name, fresh())
    }

    /// Registers a secret that the hub created.
    fn found(&mut self, name: &'static str, secret: impl Into<String>) -> String {
        let secret = secret.into();
        assert!(secret.len() >= 16, "{name}: {secret}");
        self.canaries.push(Canary::new(name, secret.clone()));
        secret
    }

    fn sink(&mut self, name: impl Into<String>, bytes: &[u8], may: &[&'static str]) {
        let text = String::from_utf8_lossy(bytes).into_owned();
        self.sinks.push(Sink { name: name.into(), text, may: may.to_vec() });
    }

    /// Sends a request and records the response, which may contain the given secrets.
    fn ask(&mut self, method: &str, path: &str, body: Option<&Value>, may: &[&'static str]) -> HttpResponse {
        let answer = self.rest.send(method, &format!("/api/v1{path}"), body).unwrap();
        self.sink(format!("{method} {path}"), answer.text().as_bytes(), may);
        answer
    }

    #[track_caller]
    fn ok(&mut self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let answer = self.ask(method, path, body, &[]);
        assert!(answer.is_success(), "{method} {path}: {}", answer.text());
        if answer.body.is_empty() { Value::Null } else { answer.json() }
    }

    #[track_caller]
    fn refused(&mut self, status: u16, method: &str, path: &str, body: &Value) {
        let answer = self.ask(method, path, Some(body), &[]);
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text());
    }

    /// Sends a request with exactly these headers.
    fn raw(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
        may: &[&'static str],
    ) -> HttpResponse {
        let answer = self.rest.request(method, path, headers, body).unwrap();
        self.sink(format!("{method} {path} by hand"), answer.text().as_bytes(), may);
        answer
    }

    /// Calls a tool. The caller may see the arguments and the result, now and later.
    #[track_caller]
    fn call(&mut self, server: &str, tool: &str, arguments: &Value, may: &[&'static str]) -> Value {
        let form = json!({ "server": server, "name": tool, "arguments": arguments });
        let answer = self.ask("POST", "/calls", Some(&form), may);
        let call = answer.json();
        assert_eq!(answer.status, 200, "{call}");
        let again = self.ask("GET", &format!("/calls/{}", call["id"].as_str().unwrap()), None, may).json();
        assert_eq!((&again["status"], &again["error"]), (&call["status"], &call["error"]));
        call
    }

    /// Adds a remote server with a credential.
    fn server(&mut self, name: &str, url: &str, authentication: &Value, secret: Option<&str>) {
        let form = json!({ "name": name, "url": url, "authentication": authentication, "retry_attempts": 0,
            "credentials": if secret.is_some() { "shared" } else { "per-agent" } });
        self.ok("POST", "/servers", Some(&form));
        if let Some(secret) = secret {
            self.ok("PUT", &format!("/servers/{name}/credential"), Some(&json!({ "secret": secret })));
        }
    }

    /// Searches all outputs for all secrets. Returns every forbidden occurrence.
    fn search(&self) -> Vec<String> {
        let mut hits = Vec::new();
        for sink in &self.sinks {
            let others = self.canaries.iter().filter(|canary| !sink.may.contains(&canary.name));
            let found = others.filter(|canary| canary.is_in(&sink.text));
            hits.extend(found.map(|canary| format!("`{}` is in {}", canary.name, sink.name)));
        }
        let is_told = |sink: &&Sink| self.canaries.iter().any(|canary| canary.is_in(&sink.text));
        assert!(self.sinks.iter().filter(is_told).count() > 10, "secrets are shown to their owners");
        hits
    }
}

/// Records all events until the hub exits.
fn watch(ready: &Value) -> JoinHandle<Vec<u8>> {
    let address = ready["url"].as_str().unwrap().strip_prefix("http://").unwrap();
    let mut socket = TcpStream::connect(address).unwrap();
    let token = ready["token"].as_str().unwrap();
    let head =
        format!("GET /api/v1/events HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\r\n");
    socket.write_all(head.as_bytes()).unwrap();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = socket.read_to_end(&mut bytes); // it may be cut
        bytes
    })
}

/// The session cookie as a browser sends it.
fn cookie_line(answer: &HttpResponse) -> &str {
    let cookie = answer.header("set-cookie").unwrap_or_else(|| panic!("{}", answer.text()));
    cookie.split(';').next().unwrap()
}

/// The value of the session cookie.
fn cookie(answer: &HttpResponse) -> String {
    cookie_line(answer).split_once('=').unwrap().1.to_owned()
}

#[test]
fn no_secret_is_anywhere_but_with_whoever_it_belongs_to() {
    let home = Home::new();
    let ready = home.file("ready.json");
    let mut stage =
        Stage { rest: Rest::new("http://127.0.0.1:1", ""), canaries: Vec::new(), sinks: Vec::new() };
    let (env, dying, inherited) =
        (stage.plant("env"), stage.plant("env of a crashing server"), stage.plant("inherited"));
    let given = stage.plant("answer");
    let program = |slug: &str, more: &str| {
        format!(
            "[servers.{slug}]\ncommand = \"python3\"\nargs = [\"-S\", {SERVER:?}]\nretry_attempts = 0\n{more}\n"
        )
    };
    let config = format!(
        "[egress]\nallow = [\"127.0.0.0/8\"]\n{}inherit = [\"OUR_TOKEN\"]\nenv = {{ API_TOKEN = {env:?}, ANSWER = {given:?} }}\n{}",
        program("repeating", ""),
        program("dying", &format!("env = {{ DIE = \"1\", DB_PASSWORD = {dying:?} }}")),
    );
    home.write(&config);
    let (url, sent) = upstream();
    let mirror = mirror();
    let hub = Hub::start(&home, ("OUR_TOKEN", &inherited));
    let read: Value = serde_json::from_slice(&fs::read(&ready).unwrap()).unwrap();
    stage.rest = Rest::ready(&ready);
    let token = secret_part(read["token"].as_str().unwrap());
    stage.found("token of the process", token);
    let events = watch(&read);

    users(&mut stage, &hub.shown);
    let agent = agents(&mut stage, &url);
    servers(&mut stage, &url, &mirror);
    programs(&mut stage);
    calls(&mut stage, &agent);
    mistakes(&mut stage);

    // A mistake in the configuration file, on a line with a secret.
    let typed = stage.plant("typed wrongly");
    let wrong = [
        format!("API_TOKEN = {typed}"),
        format!("[servers.x]\ncommand = \"x\"\nenv = [{typed:?}]"),
        format!("[servers.x]\ncommand = \"x\"\ntoken = {typed:?}"),
    ];
    for (times, wrong) in (1..).zip(wrong) {
        home.write(&format!("{config}{wrong}\n"));
        hub.signal(Signal::HUP);
        hub.wait_for("using the previous configuration", times);
        let run = home.run(&["server", "disable", "repeating"]);
        assert_eq!(run.code, Some(1));
        stage.sink("linchpin server disable", format!("{}{}", run.stdout, run.stderr).as_bytes(), &[]);
        stage.ok("GET", "/status", None);
    }
    lists(&mut stage, &home, &read);
    files(&mut stage, &home, "while it runs");
    let log = hub.end();
    files(&mut stage, &home, "after it has ended");
    assert!(log.contains("server wrote to stderr"), "it logs everything");
    stage.sink("log", log.as_bytes(), &[]);
    let events = events.join().unwrap();
    assert!(String::from_utf8_lossy(&events).contains("event: call"));
    stage.sink("events", &events, &[]);
    let sent = sent.lock().unwrap();
    assert!(sent.len() >= 4, "servers were sent what they could repeat: {}", sent.len());

    let hits = stage.search();
    println!("canaries={} sinks={} hits={}", stage.canaries.len(), stage.sinks.len(), hits.len());
    assert!(hits.is_empty(), "{hits:#?}");
}

/// Returns the secret part of a token, without its id.
fn secret_part(token: &str) -> &str {
    token.split('_').nth(2).unwrap()
}

/// Links, passwords, sessions and tokens.
fn users(stage: &mut Stage, shown: &str) {
    let link = shown
        .split("token=")
        .nth(1)
        .unwrap()
        .chars()
        .take_while(char::is_ascii_alphanumeric)
        .collect::<String>();
    let link = stage.found("link", link);
    let path = format!("/sign-in?token={link}");
    let answer = stage.rest.request("GET", &path, &[], "").unwrap();
    stage.found("cookie by a link", cookie(&answer));
    let cookie_line = cookie_line(&answer).to_owned();
    stage.sink("sign-in by a link", answer.text().as_bytes(), &["cookie by a link"]);
    stage.raw("GET", &path, &[], "", &[]);
    let session = stage.rest.request("GET", "/api/v1/session", &[("cookie", &cookie_line)], "").unwrap();
    stage.found("csrf", session.json()["csrf_token"].as_str().unwrap());
    stage.sink("session", session.text().as_bytes(), &["csrf"]);
    stage.raw("GET", "/", &[("cookie", &cookie_line)], "", &[]);

    let (password, wrong) = (stage.plant("password"), stage.plant("wrong password"));
    let user = stage.ok("POST", "/users", Some(&json!({ "name": "ada" })));
    let path = format!("/users/{}/password", user["id"].as_str().unwrap());
    stage.ok("PUT", &path, Some(&json!({ "password": password })));
    let json = [("content-type", "application/json")];
    let form = json!({ "name": "ada", "password": wrong }).to_string();
    assert_eq!(stage.raw("POST", "/api/v1/session", &json, &form, &[]).status, 401);
    let form = json!({ "name": "ada", "password": password }).to_string();
    let answer = stage.rest.request("POST", "/api/v1/session", &json, &form).unwrap();
    stage.found("cookie by a password", cookie(&answer));
    stage.found("csrf by a password", answer.json()["csrf_token"].as_str().unwrap());
    stage.sink(
        "sign-in by a password",
        answer.text().as_bytes(),
        &["cookie by a password", "csrf by a password"],
    );
    let form =
        [("content-type", "application/x-www-form-urlencoded"), ("origin", "http://elsewhere.example")];
    stage.raw("POST", "/sign-in", &form, &format!("name=ada&password={wrong}"), &[]);

    let own = stage.rest.send("POST", "/api/v1/tokens", Some(&json!({ "name": "own" }))).unwrap();
    stage.found("token of a user", secret_part(own.json()["token"].as_str().unwrap()));
    stage.sink("POST /tokens", own.text().as_bytes(), &["token of a user"]);
    let wrong = stage.plant("wrong token");
    for wrong in
        [format!("Bearer {wrong}"), format!("Bearer lp_1_{wrong}"), format!("Basic {wrong}"), wrong.clone()]
    {
        let answer = stage.raw("GET", "/api/v1/servers", &[("authorization", &wrong)], "", &[]);
        assert!([400, 401].contains(&answer.status), "{}", answer.text());
    }
}

/// Adds an agent with a token and its own credential. Returns its id and token.
fn agents(stage: &mut Stage, url: &str) -> (String, String) {
    stage.server("each", url, &json!({ "type": "bearer" }), None);
    let form =
        json!({ "name": "helper", "approval": "always-ask", "servers": { "repeating": {}, "each": {} } });
    let agent = stage.ok("POST", "/agents", Some(&form))["id"].as_str().unwrap().to_owned();
    let secret = stage.plant("credential of an agent");
    let path = format!("/servers/each/credential?agent={agent}");
    stage.ok("PUT", &path, Some(&json!({ "secret": secret })));
    stage.ok("GET", &path, None);
    stage.ok("POST", &format!("/servers/each/sync?agent={agent}"), None);
    let path = format!("/agents/{agent}/tokens");
    let issued = stage.rest.send("POST", &format!("/api/v1{path}"), Some(&json!({ "name": "a" }))).unwrap();
    let token = issued.json()["token"].as_str().unwrap().to_owned();
    stage.found("token of an agent", secret_part(&token));
    stage.sink("POST token of an agent", issued.text().as_bytes(), &["token of an agent"]);
    stage.ok("GET", &path, None);
    (agent, token)
}

/// Remote servers that repeat what they receive, and remote servers that fail with it.
fn servers(stage: &mut Stage, url: &str, mirror: &str) {
    let kinds = [
        ("bearer", json!({ "type": "bearer" })),
        ("key", json!({ "type": "api-key", "header": "x-key" })),
        ("basic", json!({ "type": "basic", "username": "ada" })),
    ];
    for (name, authentication) in kinds {
        let (secret, argument) = (stage.plant(name), stage.plant("argument"));
        stage.server(name, url, &authentication, Some(&secret));
        stage.ok("POST", &format!("/servers/{name}/sync"), None);
        for (tool, status) in [("show", "success"), ("fail", "error"), ("refuse", "error")] {
            let call = stage.call(name, tool, &json!({ "text": argument }), &["argument"]);
            assert_eq!(call["status"], status, "{call}");
            let said = if status == "success" { &call["summary"] } else { &call["error"] };
            assert!(said.as_str().unwrap().contains("***"), "{call}");
        }
        stage.ok("GET", &format!("/servers/{name}/credential"), None);

        // Failing servers.
        let secret = stage.plant("sent to a failing server");
        let broken = format!("broken-{name}");
        stage.server(&broken, mirror, &authentication, Some(&secret));
        for (form, url) in [(&secret, mirror), (&secret, url), (&secret, "http://127.0.0.1:1/mcp")] {
            let draft = json!({ "name": "x", "url": url, "authentication": authentication, "secret": form, "retry_attempts": 0 });
            stage.ask("POST", "/servers/test", Some(&draft), &[]);
        }
        for action in ["test", "sync", "connect"] {
            let answer = stage.ask("POST", &format!("/servers/{broken}/{action}"), None, &[]);
            assert!(!answer.is_success(), "{}", answer.text());
        }
        stage.ok("GET", &format!("/servers/{broken}"), None);
    }
}

/// Stdio servers that repeat their environment, and one that crashes with it.
fn programs(stage: &mut Stage) {
    stage.ok("POST", "/servers/repeating/connect", None);
    stage.ok("POST", "/servers/repeating/test", None);
    for action in ["test", "sync", "connect"] {
        let answer = stage.ask("POST", &format!("/servers/dying/{action}"), None, &[]);
        assert!(!answer.is_success() && answer.text().contains("***"), "{}", answer.text());
    }
    let answer = stage.ok("POST", "/servers/repeating/resources/read", Some(&json!({ "uri": "memory://a" })));
    assert!(answer.to_string().contains("***"), "{answer}");
    stage.refused(503, "POST", "/servers/repeating/resources/read", &json!({ "uri": "memory://b" }));
    let argument = stage.plant("argument of a prompt");
    let form = json!({ "arguments": { "text": argument } });
    let answer =
        stage.ask("POST", "/servers/repeating/prompts/ask", Some(&form), &["argument of a prompt", "answer"]);
    assert!(answer.is_success(), "{}", answer.text());
}

/// Arguments and results of calls that succeed, fail, are rejected, and wait for approval.
fn calls(stage: &mut Stage, (_, token): &(String, String)) {
    let argument = stage.plant("argument");
    for (tool, status) in [("show", "success"), ("fail", "error"), ("refuse", "error"), ("die", "unknown")] {
        let call = stage.call("repeating", tool, &json!({ "text": argument }), &["argument", "answer"]);
        assert_eq!(call["status"], status, "{call}");
        assert!(call.to_string().contains("***"), "{call}");
    }
    // A server that exits early is restarted only after a backoff, unless a user requests it.
    stage.ok("POST", "/servers/repeating/connect", None);
    for wrong in [
        json!({ "text": [argument] }),
        json!({ "text": "", "number": argument }),
        json!({ (argument.clone()): 1 }),
    ] {
        let call = stage.call("repeating", "show", &wrong, &["argument"]);
        assert_eq!(call["status"], "error", "{call}");
    }
    let (asked, edited) = (stage.plant("argument of a pending call"), stage.plant("argument of a user"));
    for (server, decision, form) in [
        ("repeating", "approve", json!({ "arguments": { "text": edited } })),
        ("repeating", "deny", json!({})),
        ("each", "approve", json!({})),
    ] {
        let may = ["argument of a pending call", "argument of a user", "answer"];
        let body = json!({ "server": server, "name": "show", "arguments": { "text": asked } }).to_string();
        let authorization = format!("Bearer {token}");
        let headers = [("authorization", &*authorization), ("content-type", "application/json")];
        let answer = stage.raw("POST", "/api/v1/calls?wait=false", &headers, &body, &may);
        assert_eq!(answer.status, 202, "{}", answer.text());
        let (call, approval) = (answer.json()["id"].clone(), answer.json()["approval"].clone());
        let path = format!("/approvals/{}", approval.as_str().unwrap());
        stage.ask("GET", &path, None, &may);
        let answer = stage.ask("POST", &format!("{path}/{decision}"), Some(&form), &may);
        assert!(answer.is_success(), "{}", answer.text());
        stage.ask("GET", &format!("/calls/{}", call.as_str().unwrap()), None, &may);
    }
}

/// Secrets in fields that are not meant for secrets.
fn mistakes(stage: &mut Stage) {
    let lost = stage.plant("elsewhere");
    let plain: String = lost.chars().filter(char::is_ascii_alphanumeric).collect();
    let url = |url: String| json!({ "name": "x", "url": url });
    for form in [
        url(format!("https://ada:{plain}@example.invalid/mcp")),
        url(format!("https://{plain}@example.invalid/mcp")),
        url(format!("{plain}://example.invalid")),
        url(format!("https://exa mple/{plain}")),
        json!({ "name": "x", "url": "https://example.invalid", "secret": lost }),
        json!({ "name": "x", "url": "https://example.invalid", "token": lost }),
        json!({ "name": "x", "url": "https://example.invalid", "headers": { "authorization": lost } }),
        json!({ "name": "x", "url": "https://example.invalid", "authentication": { "type": "bearer", "token": lost } }),
        json!({ "name": "x", "url": "https://example.invalid", "authentication": { "type": lost } }),
        json!({ "name": "x", "url": "https://example.invalid", "env": { "API_TOKEN": lost } }),
        json!({ "name": "x", "url": "https://example.invalid", "timeout_ms": lost }),
    ] {
        stage.refused(422, "POST", "/servers", &form);
        stage.ask("POST", "/servers/test", Some(&form), &[]);
    }
    for form in
        [json!({ "token": lost }), json!({ "secret": [lost] }), json!({ "secret": format!("{lost}\n") })]
    {
        stage.refused(422, "PUT", "/servers/bearer/credential", &form);
    }
    let (authorization, half) = (format!("Bearer {}", "x"), format!("{{\"secret\": \"{plain}"));
    let answer = stage.raw(
        "GET",
        &format!("/api/v1/servers?token={plain}"),
        &[("authorization", &authorization)],
        "",
        &[],
    );
    assert!(!answer.is_success(), "{}", answer.text());
    stage.ask("GET", &format!("/servers?token={plain}"), None, &[]);
    stage.raw(
        "PUT",
        "/api/v1/servers/bearer/credential",
        &[("content-type", "application/json")],
        &half,
        &[],
    );
    stage.raw("GET", &format!("/sign-in?token={plain}"), &[], "", &[]);
}

/// Requests all lists.
fn lists(stage: &mut Stage, home: &Home, ready: &Value) {
    for path in [
        "/servers",
        "/servers/repeating",
        "/servers/dying",
        "/tools",
        "/agents",
        "/tokens",
        "/users",
        "/audit?limit=500",
        "/audit/export",
        "/audit/verify",
        "/status",
        "/session",
        "/servers/repeating/resources",
        "/servers/repeating/resource-templates",
        "/servers/repeating/prompts",
    ] {
        let answer = stage.ask("GET", path, None, &[]);
        assert!(answer.is_success(), "{path}: {}", answer.text());
    }
    // Lists show the error of a call to callers who may see the call.
    let may = ["argument", "argument of a pending call", "argument of a user", "answer"];
    for path in ["/calls?limit=500", "/approvals"] {
        assert!(stage.ask("GET", path, None, &may).is_success(), "{path}");
    }
    let metrics = format!("Bearer {}", ready["token"].as_str().unwrap());
    stage.raw("GET", "/metrics", &[("authorization", &metrics)], "", &[]);
    let page = stage.raw("GET", "/", &[("authorization", &metrics)], "", &may);
    assert!(page.text().contains("mcp_repeating__show"), "{}", page.text());
    for arguments in [
        &["server", "list"][..],
        &["--json", "tool", "list"],
        &["calls"],
        &["audit", "export"],
        &["-vvv", "server", "test", "dying"],
        &["-vvv", "server", "list"],
    ] {
        let run = home.run(arguments);
        stage.sink(
            format!("linchpin {}", arguments.join(" ")),
            format!("{}{}", run.stdout, run.stderr).as_bytes(),
            if arguments == ["calls"] { &may } else { &[] },
        );
    }
}

/// Returns all stored files, except the configuration file and `hub.json`.
fn files(stage: &mut Stage, home: &Home, when: &str) {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(home.data()).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        if !entry.file_type().unwrap().is_file() {
            continue; // the socket of the gateway
        }
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if !["linchpin.toml", "hub.json"].contains(&&*name) {
            stage.sink(format!("{name} {when}"), &fs::read(&path).unwrap(), &[]);
            names.insert(name);
        }
    }
    let expected = ["hub.db", "checkpoints"];
    assert!(expected.iter().all(|name| names.contains(*name)), "{names:?}");
    stage.sink(format!("keys {when}"), &fs::read(home.keys()).unwrap(), &[]);
}
