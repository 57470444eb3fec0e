//! The decoder agrees with `serde_json` on every type and every text that the scanner accepts.

use std::collections::BTreeMap;
use std::fmt::Debug;

use linchpin_jsonrpc::{Limits, check, from_checked, path_at};
use proptest::prelude::*;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Everything {
    text: String,
    letter: char,
    small: i8,
    large: u64,
    real: f64,
    yes: bool,
    maybe: Option<Box<Everything>>,
    list: Vec<i32>,
    pair: (u8, String),
    numbered: BTreeMap<u16, bool>,
    shape: Vec<Shape>,
    wrapped: Wrapped,
    nothing: (),
    anything: Value,
    #[serde(default)]
    huge: i128,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Wrapped(u32);

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Shape {
    Point,
    Circle(f32),
    Line(i8, i8),
    Square { side: u16 },
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(tag = "type")]
enum Tagged {
    A { x: u8 },
    B { y: Option<String> },
}

const EVERYTHING: &str = r#" { "text" : "line\nbreak \ud83d\ude00 \"quoted\"", "letter":"\u00e9", "small":-128,
    "large":18446744073709551615, "real":-1.5e3, "yes":true, "maybe":null, "list":[ ], "pair":[1,"two"],
    "numbered":{"1":true,"65535":false}, "shape":["point",{"circle":1.25},{"line":[1,-1]},{"square":{"side":3}}],
    "wrapped":7, "nothing":null, "anything":{"deep":[1,{"x":null},"y"]}, "unknown":[{"a":"]}"}],
    "huge":-170141183460469231731687303715884105728 } "#;

fn assert_agrees<T: DeserializeOwned + PartialEq + Debug>(text: &str) {
    match (from_checked::<T>(text), serde_json::from_str::<T>(text)) {
        (Ok(ours), Ok(theirs)) => assert_eq!(ours, theirs, "{text}"),
        (Err(_), Err(_)) => {}
        (ours, theirs) => panic!("{text}\n  ours: {ours:?}\n  serde_json: {theirs:?}"),
    }
}

#[test]
fn one_of_everything() {
    let decoded: Everything = from_checked(EVERYTHING).unwrap();
    assert_eq!(decoded, serde_json::from_str(EVERYTHING).unwrap());
    assert_eq!(decoded.text, "line\nbreak 😀 \"quoted\"");
    let raw: BTreeMap<String, Box<RawValue>> = from_checked(r#"{"a": [1, "x"] , "b":"y"}"#).unwrap();
    assert_eq!((raw["a"].get(), raw["b"].get()), (r#"[1, "x"]"#, r#""y""#));
    let borrowed: Vec<&str> = from_checked(r#"["a","b"]"#).unwrap();
    assert_eq!(borrowed, ["a", "b"]);
}

#[test]
fn types_that_do_not_fit_are_refused_like_serde_json_does() {
    for text in [
        "1",
        "-1",
        "1.5",
        "300",
        "true",
        "null",
        "\"x\"",
        "\"point\"",
        "{\"circle\":2}",
        "{\"line\":[1,2,3]}",
        "{\"square\":{}}",
        "{}",
        "[]",
        "[1,\"a\"]",
        "{\"type\":\"A\",\"x\":1}",
        "{\"type\":\"B\"}",
        "{\"type\":\"C\"}",
        "1e999",
        "123456789012345678901234567890",
        "{\"1\":true}",
        "{\"x\":true}",
        "{\"point\":null,\"circle\":1}",
        "\"xy\"",
    ] {
        assert_agrees::<Value>(text);
        assert_agrees::<u8>(text);
        assert_agrees::<i64>(text);
        assert_agrees::<u128>(text);
        assert_agrees::<f64>(text);
        assert_agrees::<bool>(text);
        assert_agrees::<char>(text);
        assert_agrees::<String>(text);
        assert_agrees::<Option<u8>>(text);
        assert_agrees::<()>(text);
        assert_agrees::<Shape>(text);
        assert_agrees::<Tagged>(text);
        assert_agrees::<Wrapped>(text);
        assert_agrees::<(u8, String)>(text);
        assert_agrees::<BTreeMap<u16, bool>>(text);
        assert_agrees::<Everything>(text);
    }
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "only decoded")]
struct Order {
    items: Vec<BTreeMap<String, u8>>,
}

#[test]
fn an_integer_may_be_written_with_a_point() {
    assert_eq!(from_checked::<(i64, u8, i32)>("[2.0, 1e2, -3.0]").unwrap(), (2, 100, -3));
    for text in ["2.5", "300.0", "1e300", "9007199254740993.0"] {
        assert!(from_checked::<u8>(text).is_err(), "{text}");
    }
    assert_eq!(from_checked::<i64>("9007199254740993").unwrap(), 9_007_199_254_740_993);
    assert_eq!(from_checked::<Value>("2.0").unwrap(), serde_json::json!(2.0));
}

#[test]
fn text_that_is_nested_without_end_is_refused() {
    let text = "[".repeat(1_000_000);
    assert!(from_checked::<Value>(&text).is_err());
}

#[test]
fn a_list_is_no_struct() {
    assert!(
        serde_json::from_str::<Order>(r#"[[{"count":1}]]"#).is_ok(),
        "serde_json takes fields in their order"
    );
    let error = from_checked::<Order>(r#"[[{"count":1}]]"#).unwrap_err();
    assert_eq!(error.reason, "invalid type: sequence, expected struct Order");
}

#[test]
fn errors_know_the_value_they_are_about() {
    let text = r#"{"type":"object","items":[{"count":1},{"count":"two"}]}"#;
    let error = from_checked::<Order>(text).unwrap_err();
    assert_eq!(path_at(text, error.at.unwrap()), "/items/1/count");
    assert_eq!(error.reason, "invalid type: string \"two\", expected u8");
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            proptest::collection::btree_map(".{0,12}", inner, 0..8)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn every_value_comes_back(value in json(), pretty in any::<bool>()) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
        prop_assert_eq!(from_checked::<Value>(&text).unwrap(), value);
    }

    #[test]
    fn text_that_nobody_checked_never_panics(text in r#"[\[\]{}:,"\\au10.eE\-+ nté]{0,40}"#) {
        let decoded = from_checked::<Value>(&text);
        let _ = from_checked::<Everything>(&text);
        let _ = from_checked::<Vec<Shape>>(&text);
        if check(&text, Limits::default()).is_ok() {
            prop_assert_eq!(decoded.is_ok(), serde_json::from_str::<Value>(&text).is_ok());
        }
    }
}
