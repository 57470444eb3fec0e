//! Validation of arguments and results: violations are reported with their path, and do not reach handler or client.
#![cfg(feature = "validate")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use linchpin::{Content, Error, Json, Revision, Server, Tool, ToolOutput, args, model::StructuredContent};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use support::{Peer, STATELESS, failure, text};

#[args]
#[serde(rename_all = "camelCase")]
struct Order {
    /// How many
    item_count: u8,
    lines: Vec<Line>,
    priority: Option<Priority>,
    ratio: Option<f64>,
    gift: Option<bool>,
}

#[args]
struct Line {
    sku: String,
    at: (i64, i64),
}

#[args]
#[derive(Debug)]
#[serde(rename_all = "lowercase")]
enum Priority {
    Low,
    High,
}

#[args]
#[serde(deny_unknown_fields)]
struct Strict {
    a: i64,
}

#[args]
struct Bounded {
    #[schemars(range(min = 1, max = 10))]
    count: i64,
    #[schemars(length(min = 2, max = 4))]
    name: String,
    #[schemars(regex(pattern = r"^[a-z]+\d$"))]
    code: Option<String>,
    #[schemars(length(max = 2))]
    tags: Option<Vec<String>>,
}

/// Counts the calls that reach a handler.
#[derive(Clone, Default)]
struct Calls(Arc<AtomicUsize>);

impl Calls {
    fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn server(calls: &Calls) -> Server {
    let schema = json!({
        "type": "object",
        "properties": {
            "query": {"type": "string", "minLength": 1},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100},
            "order": {"enum": ["asc", "desc"]},
            "where": {"type": "object", "additionalProperties": {"type": "number"}},
        },
        "required": ["query"],
        "additionalProperties": false,
    });
    let (order, strict, bounded, raw) = (calls.clone(), calls.clone(), calls.clone(), calls.clone());
    Server::new("test", "1")
        .tool("order", "", move |args: Order| {
            order.count();
            let lines: Vec<_> = args.lines.iter().map(|line| format!("{} {:?}", line.sku, line.at)).collect();
            async move {
                format!("{} {lines:?} {:?} {:?} {:?}", args.item_count, args.priority, args.ratio, args.gift)
            }
        })
        .tool("strict", "", move |Strict { a }| {
            strict.count();
            async move { a }
        })
        .tool("bounded", "", move |args: Bounded| {
            bounded.count();
            async move { format!("{} {} {:?} {:?}", args.count, args.name, args.code, args.tags) }
        })
        .add(Tool::raw("sql", schema).handler(move |args: Map<String, Value>| {
            raw.count();
            async move { Value::Object(args).to_string() }
        }))
        .add(
            Tool::raw("any", json!({"type": "object"}))
                .handler(|args: Map<String, Value>| async move { args.len() }),
        )
}

#[test]
fn arguments_that_fit_reach_the_handler() {
    let line = json!({"sku": "x", "at": [1, 2]});
    let cases = [
        (
            "order",
            json!({"itemCount": 3, "lines": [line], "priority": "high", "ratio": 1, "gift": null, "unknown": 1}),
            r#"3 ["x (1, 2)"] Some(High) Some(1.0) None"#,
        ),
        ("strict", json!({"a": -1}), "-1"),
        (
            "bounded",
            json!({"count": 10, "name": "héé", "code": "ab1", "tags": ["a"]}),
            r#"10 héé Some("ab1") Some(["a"])"#,
        ),
        ("bounded", json!({"count": 1, "name": "ab"}), "1 ab None None"),
        (
            "sql",
            json!({"query": "q", "limit": 100, "where": {"a": 1.5}}),
            r#"{"query":"q","limit":100,"where":{"a":1.5}}"#,
        ),
        ("any", json!({"whatever": [1, {"deep": null}]}), "1"),
    ];
    for revision in Revision::ALL {
        let mut peer = Peer::open(revision, server(&Calls::default()));
        for (tool, arguments, expected) in cases.clone() {
            assert_eq!(peer.call_text(tool, arguments), expected);
        }
        assert_eq!(
            text(&peer.result("tools/call", json!({"name": "any"}))),
            "0",
            "no arguments are an empty object"
        );
        peer.close();
    }
}

#[test]
fn arguments_that_do_not_fit_are_a_failure_that_the_model_reads() {
    let cases = [
        ("order", json!({}), "missing field `itemCount`"),
        (
            "order",
            json!({"itemCount": "3", "lines": []}),
            "at /itemCount: invalid type: string \"3\", expected u8",
        ),
        (
            "order",
            json!({"itemCount": 300, "lines": []}),
            "at /itemCount: invalid value: integer `300`, expected u8",
        ),
        (
            "order",
            json!({"itemCount": 3, "lines": [{"sku": "x", "at": [1, 2]}, {"sku": "y"}]}),
            "at /lines/1: missing field `at`",
        ),
        (
            "order",
            json!({"itemCount": 3, "lines": [{"sku": "x", "at": [1, true]}]}),
            "at /lines/0/at/1: invalid type: boolean `true`, expected i64",
        ),
        (
            "order",
            json!({"itemCount": 3, "lines": [], "priority": "urgent"}),
            "at /priority: unknown variant `urgent`, expected `low` or `high`",
        ),
        ("strict", json!({"a": 1, "b/c": 2}), "unknown field `b/c`, expected `a`"),
        ("bounded", json!({"count": 0, "name": "ab"}), "at /count: 0 is less than the minimum of 1"),
        (
            "bounded",
            json!({"count": 11, "name": "a", "code": "1", "tags": ["a", "b", "c"]}),
            "at /count: 11 is greater than the maximum of 10; at /name: \"a\" is shorter than 2 characters; at /code: \
             \"1\" does not match \"^[a-z]+\\d$\"; at /tags: [\"a\",\"b\",\"c\"] has more than 2 items",
        ),
        ("sql", json!({}), "at /: \"query\" is a required property"),
        ("sql", json!({"query": ""}), "at /query: \"\" is shorter than 1 character"),
        ("sql", json!({"query": "q", "order": "up"}), "at /order: \"up\" is not one of \"asc\" or \"desc\""),
        ("sql", json!({"query": "q", "where": {"a": "b"}}), "at /where/a: \"b\" is not of type \"number\""),
        (
            "sql",
            json!({"query": "q", "drop": 1}),
            "at /: Additional properties are not allowed ('drop' was unexpected)",
        ),
    ];
    let calls = Calls::default();
    for revision in Revision::ALL {
        let mut peer = Peer::open(revision, server(&calls));
        for (tool, arguments, expected) in cases.clone() {
            let said = failure(&peer.call(tool, arguments));
            assert_eq!(said, format!("Invalid arguments for the tool `{tool}`: {expected}"), "{revision}");
        }
        peer.close();
    }
    assert_eq!(calls.0.load(Ordering::Relaxed), 0, "no handler ran");
}

#[derive(Serialize, JsonSchema)]
struct Small {
    #[schemars(range(max = 10))]
    n: i64,
}

#[derive(Serialize, JsonSchema)]
struct Raw {
    #[schemars(with = "Value")]
    raw: Box<RawValue>,
}

fn results() -> Server {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let by_hand = |name: &str| Tool::new(name).output_schema(schema.clone());
    let structured = |json: &str| ToolOutput {
        content: vec![Content::text("text")],
        structured_content: Some(StructuredContent::from(RawValue::from_string(json.into()).unwrap())),
        is_error: None,
        meta: None,
    };
    let (good, bad) = (structured("{\"n\":\n1}"), structured(r#"{"n":"secret"}"#));
    let failed = ToolOutput { is_error: Some(true), structured_content: None, ..good.clone() };
    Server::new("test", "1")
        .tool("typed", "", || async { Json(Small { n: 5 }) })
        .tool("too_large", "", || async { Json(Small { n: 11 }) })
        .tool("fails", "", || async { Err::<Json<Small>, _>(Error::tool("no number today")) })
        .add(by_hand("good").handler(move || std::future::ready(good.clone())))
        .add(by_hand("bad").handler(move || std::future::ready(bad.clone())))
        .add(by_hand("failed").handler(move || std::future::ready(failed.clone())))
        .add(by_hand("nothing").handler(|| async { "only text" }))
        .tool("raw", "", || async {
            Json(Raw { raw: RawValue::from_string("{\n\"a\":\r\n\"b\\n\"}".into()).unwrap() })
        })
}

#[test]
fn results_are_checked_before_they_leave() {
    let hidden = |tool: &str| format!("The tool `{tool}` failed because of an internal error.");
    for revision in Revision::ALL {
        let reports = Arc::new(Mutex::new(Vec::new()));
        let seen = reports.clone();
        let server = results().on_error(move |report| seen.lock().unwrap().push(report.error.to_string()));
        let mut peer = Peer::open(revision, server);
        let has_structure = revision >= Revision::V2025_06_18;
        for (tool, expected) in [("typed", json!({"n": 5})), ("good", json!({"n": 1}))] {
            let result = peer.call(tool, json!({}));
            assert_ne!(result["isError"], true, "{result}");
            assert_eq!(
                result.get("structuredContent"),
                has_structure.then_some(&expected),
                "{tool} in {revision}"
            );
        }
        for (tool, expected, fault) in [
            ("too_large", hidden("too_large"), Some("at /n: 11 is greater than the maximum of 10")),
            ("bad", hidden("bad"), Some("at /n: \"secret\" is not of type \"integer\"")),
            ("nothing", hidden("nothing"), Some("the tool returned no structured content")),
            ("fails", "no number today".to_owned(), None),
            ("failed", "text".to_owned(), None),
        ] {
            let result = peer.call(tool, json!({}));
            assert_eq!(failure(&result), expected, "{revision}");
            assert_eq!(result.get("structuredContent"), None, "{tool} in {revision}");
            let reported: Vec<_> = reports.lock().unwrap().drain(..).collect();
            let words = fault.map(|fault| {
                format!("the result of the tool `{tool}` does not match its output schema: {fault}")
            });
            assert_eq!(reported, Vec::from_iter(words), "{revision}");
        }
        peer.close();
    }
}

#[test]
fn a_result_never_breaks_the_line_it_stands_in() {
    let server = results()
        .define_method("x/raw", || async { Json(RawValue::from_string("{\"a\":\n1}".into()).unwrap()) });
    let mut peer = Peer::open(STATELESS, server);
    assert_eq!(peer.call("raw", json!({}))["structuredContent"], json!({"raw": {"a": "b\n"}}));
    assert_eq!(peer.result("x/raw", json!({}))["a"], 1);
    peer.close();
    let session = results()
        .define_method("x/raw", || async { Json(RawValue::from_string("{\"a\":\n1}".into()).unwrap()) });
    let mut peer = Peer::open(Revision::LATEST_SESSION, session);
    assert_eq!(peer.result("x/raw", json!({})), json!({"a": 1}));
    peer.close();
}

#[test]
fn schemas_that_make_no_sense_are_refused_at_registration() {
    let any = |_: Map<String, Value>| async { "never" };
    let refused =
        |tool: Tool| Server::new("test", "1").add(tool.handler(any)).build().err().unwrap().to_string();
    let cases = [
        (Tool::raw("t", json!({"type": "object", "properties": {"a": {"type": "strnig"}}})), "strnig"),
        (
            Tool::raw("t", json!({"type": "object", "properties": {"a": {"pattern": "("}}})),
            "\"(\" is not a valid regular expression: unclosed group",
        ),
        (
            Tool::raw("t", json!({"type": "array"})),
            "the arguments must be a struct: the schema must have \"type\": \"object\"",
        ),
        (Tool::raw("t", json!({})), "the schema must have \"type\": \"object\""),
        (Tool::raw("t", json!({"type": "object", "$ref": "https://example.com/s"})), "example.com"),
        (Tool::raw("t", json!({"type": "object"})).output_schema(json!({"minimum": "x"})), "minimum"),
    ];
    for (tool, words) in cases {
        let said = refused(tool);
        assert!(said.starts_with("the tool `t` cannot be registered: ") && said.contains(words), "{said}");
    }
}
