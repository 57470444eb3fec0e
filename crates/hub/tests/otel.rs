//! Spans that an OpenTelemetry collector receives.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/hub.rs"]
mod hub;
#[path = "support/rest.rs"]
mod rest;
mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use hub::Home;
use rest::Rest;
use serde_json::{Value, json};

const EXPORT_TIMEOUT: Duration = Duration::from_secs(30);
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

/// Starts a collector. Returns its address, and the heads and bodies of the requests.
fn collector(answer: &'static str) -> (SocketAddr, Receiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (taken, all) = sync_channel(1_000);
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            stream.set_read_timeout(Some(EXPORT_TIMEOUT)).unwrap();
            let mut reader = BufReader::new(stream);
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap() > 0 {}
            let head = head.to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            let mut body = vec![0; length.parse().unwrap()];
            reader.read_exact(&mut body).unwrap();
            let answer = format!("HTTP/1.1 {answer}\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}");
            reader.get_mut().write_all(answer.as_bytes()).unwrap();
            if taken.send((head, serde_json::from_slice(&body).unwrap())).is_err() {
                return;
            }
        }
    });
    (address, all)
}

fn home(collector: SocketAddr) -> Home {
    Home::new().with("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{collector}"))
}

/// Returns an attribute with its type.
fn attribute<'a>(span: &'a Value, name: &str) -> &'a Value {
    let all = span["attributes"].as_array().unwrap();
    all.iter().find(|each| each["key"] == name).map_or(&Value::Null, |each| &each["value"])
}

fn time(span: &Value, name: &str) -> u128 {
    span[name].as_str().unwrap().parse().unwrap()
}

#[test]
fn a_call_is_seen_in_the_trace_that_it_belongs_to() {
    let (address, sent) = collector("200 OK");
    let home = home(address)
        .with("OTEL_SERVICE_NAME", "the hub".to_owned())
        .with("OTEL_EXPORTER_OTLP_HEADERS", "x-key=hunter%202".to_owned());
    let ready = home.file("ready.json");
    let hub = home.start_with(&["--ready-file", ready.to_str().unwrap()]);
    home.ok(&["server", "connect", "demo"]);
    let rest = Rest::ready(&ready);
    let call = |tool: &str, flags: &str| {
        let (token, trace) = (rest.authorization(), format!("00-{TRACE}-{SPAN}-{flags}"));
        let body = json!({ "tool": tool, "arguments": { "message": "canary", "a": 1, "b": 2 } }).to_string();
        let headers =
            [("authorization", &*token), ("content-type", "application/json"), ("traceparent", &*trace)];
        rest.request("POST", "/api/v1/calls", &headers, &body).unwrap()
    };
    let made = call("mcp_demo__echo", "01");
    assert!(made.is_success(), "{}", made.text());
    let unwanted = call("mcp_demo__echo", "00");
    assert!(unwanted.is_success(), "{}", unwanted.text());
    let (status, log) = hub.end();
    assert!(status.success() && !log.contains("hunter"), "{log}");

    // All spans are sent before the hub exits.
    let all: Vec<_> = sent.try_iter().collect();
    let mut spans = Vec::new();
    for (head, body) in &all {
        assert!(head.starts_with("post /v1/traces ") && head.contains("x-key: hunter 2\r\n"), "{head}");
        assert!(head.contains("content-type: application/json\r\n"), "{head}");
        let [resource] = &body["resourceSpans"].as_array().unwrap()[..] else { panic!("{body}") };
        let service = json!({ "key": "service.name", "value": { "stringValue": "the hub" } });
        assert_eq!(resource["resource"]["attributes"][0], service);
        spans.extend(resource["scopeSpans"][0]["spans"].as_array().unwrap().clone());
        assert!(!body.to_string().contains("canary"), "{body}");
    }
    let calls: Vec<_> = spans.iter().filter(|span| span["kind"] == 3).collect();
    let [one] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!((&one["traceId"], &one["name"]), (&TRACE.into(), &"tools/call echo".into()));
    let view = made.json();
    let expected = [
        ("linchpin.server", "demo"),
        ("linchpin.tool", "echo"),
        ("linchpin.status", "success"),
        ("linchpin.call.id", view["id"].as_str().unwrap()),
    ];
    for (name, expected) in expected {
        assert_eq!(*attribute(one, name), json!({ "stringValue": expected }), "{name} of {one}");
    }
    assert_eq!(one["attributes"].as_array().unwrap().len(), expected.len(), "no other attributes: {one}");
    let request = spans.iter().find(|span| span["spanId"] == one["parentSpanId"]).unwrap();
    assert_eq!((&request["traceId"], &request["parentSpanId"]), (&TRACE.into(), &SPAN.into()));
    assert_eq!((&request["name"], &request["kind"]), (&"POST /api/v1/calls".into(), &2.into()));
    assert_eq!(*attribute(request, "http.route"), json!({ "stringValue": "/api/v1/calls" }));
    let status = u64::from(made.status).to_string();
    assert_eq!(*attribute(request, "http.response.status_code"), json!({ "intValue": status }));
    assert!(time(one, "startTimeUnixNano") < time(one, "endTimeUnixNano"), "{one}");
    assert!(time(one, "startTimeUnixNano") > 1_700_000_000_000_000_000, "{one}");
    // Other requests have separate traces.
    let own = spans.iter().find(|span| span["name"] == "POST /api/v1/servers/{server}/connect");
    let own = own.unwrap_or_else(|| panic!("{spans:?}"));
    assert!(own["parentSpanId"] == "" && own["traceId"] != TRACE && own["status"] == json!({}), "{own}");
}

#[test]
fn a_collector_that_takes_nothing_harms_nobody() {
    let (address, sent) = collector("503 Service Unavailable");
    let home = home(address);
    let hub = home.start();
    home.ok(&["server", "connect", "demo"]);
    home.run(&["tool", "call", "mcp_demo__no_such_tool"]).expect_output(1, &[]);
    let (status, log) = hub.end();
    assert!(status.success(), "{log}");
    assert!(log.contains("failed to send spans to the collector") && log.contains("503"), "{log}");
    assert!(sent.try_iter().count() > 0);
}

#[test]
fn nothing_is_sent_unless_somebody_wants_it_and_a_mistake_is_told() {
    let (address, sent) = collector("200 OK");
    let quiet = home(address).with("OTEL_SDK_DISABLED", "true".to_owned());
    let hub = quiet.start();
    quiet.ok(&["server", "list"]);
    assert!(hub.end().0.success());
    assert_eq!(sent.try_iter().count(), 0);
    let wrong = Home::new().with("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318".to_owned());
    wrong
        .run(&["--listen", "127.0.0.1:0"])
        .expect_output(2, &["OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318"]);
}
