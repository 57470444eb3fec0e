//! Tests of all field types: accepted inputs, rejected inputs and descriptions.

use linchpin::model::ElicitSchema;
use serde_json::{Value, json};

use super::field::{Field, InputSource};
use super::host;

fn field(schema: Value, required: bool) -> Field {
    let required = required.then(|| vec!["x".to_owned()]);
    let properties = [("x".to_owned(), schema)].into_iter().collect();
    let form = ElicitSchema { schema: None, kind: "object".into(), properties, required };
    Field::from_form(&form).remove(0)
}

fn answer(schema: Value, typed: &str) -> Result<Option<Value>, String> {
    field(schema, true).parse(typed, InputSource::Terminal)
}

#[test]
fn answers_that_will_do() {
    let sizes = [json!({ "const": "s", "title": "Small" }), json!({ "const": "l", "title": "Large" })];
    let titled = json!({ "type": "string", "oneOf": sizes });
    let old = json!({ "type": "string", "enum": ["s", "l"], "enumNames": ["Small", "Large"] });
    let several =
        json!({ "type": "array", "items": { "type": "string", "enum": ["a", "b"] }, "minItems": 1 });
    let cases = [
        (json!({ "type": "string" }), "Ada", json!("Ada")),
        (json!({ "type": "string", "format": "email" }), "a@b.org", json!("a@b.org")),
        (json!({ "type": "string", "format": "date" }), "2031-01-31", json!("2031-01-31")),
        (
            json!({ "type": "string", "format": "date-time" }),
            "2031-01-31T00:00:00Z",
            json!("2031-01-31T00:00:00Z"),
        ),
        (json!({ "type": "string", "format": "uri" }), "https://a", json!("https://a")),
        (json!({ "type": "integer", "minimum": -3 }), "-3", json!(-3)),
        (json!({ "type": "number" }), "1.5", json!(1.5)),
        (json!({ "type": "boolean" }), "Yes", json!(true)),
        (json!({ "type": "boolean" }), "n", json!(false)),
        (titled.clone(), "2", json!("l")),
        (titled, "small", json!("s")),
        (old, "2", json!("l")),
        (several.clone(), "2, 1, 2", json!(["b", "a"])),
        (several, "a", json!(["a"])),
        (json!({ "type": "string", "default": "d" }), "", json!("d")),
        (json!({ "type": "unheard-of" }), "text", json!("text")),
    ];
    for (schema, typed, expected) in cases {
        assert_eq!(answer(schema.clone(), typed), Ok(Some(expected)), "{schema} {typed}");
    }
    assert_eq!(field(json!({ "type": "integer" }), false).parse("", InputSource::Terminal), Ok(None));
}

#[test]
fn answers_that_will_not() {
    let several = json!({ "type": "array", "items": { "enum": ["a", "b"] }, "minItems": 1, "maxItems": 1 });
    let cases = [
        (json!({ "type": "string" }), "", "a value is required"),
        (json!({ "type": "string", "minLength": 3 }), "ab", "at least 3"),
        (json!({ "type": "string", "maxLength": 1 }), "äö", "at most 1"),
        (json!({ "type": "string", "format": "email" }), "a@b", "not a valid email"),
        (json!({ "type": "string", "format": "date" }), "31.1.2031", "write it as"),
        (json!({ "type": "string", "format": "date-time" }), "2031-01-31", "write it as"),
        (json!({ "type": "string", "format": "uri" }), "a", "not a valid uri"),
        (json!({ "type": "integer" }), "1.5", "not an integer"),
        (json!({ "type": "number" }), "NaN", "not a number"),
        (json!({ "type": "number", "minimum": 1 }), "0.5", "at least 1"),
        (json!({ "type": "integer", "maximum": 10 }), "11", "at most 10"),
        (json!({ "type": "boolean" }), "maybe", "enter y or n"),
        (json!({ "enum": ["a"], "type": "string" }), "2", "a number from 1 to 1"),
        (several.clone(), ",", "at least 1"),
        (several, "1,2", "at most 1"),
    ];
    for (schema, typed, expected) in cases {
        let reason = answer(schema.clone(), typed).unwrap_err();
        assert!(reason.contains(expected), "{schema} {typed}: {reason}");
    }
}

#[test]
fn a_command_line_names_choices_by_value() {
    let numbers = field(json!({ "type": "string", "enum": ["2", "1"] }), true);
    assert_eq!(numbers.parse("2", InputSource::Terminal), Ok(Some(json!("1"))));
    assert_eq!(numbers.parse("2", InputSource::CommandLine), Ok(Some(json!("2"))));
    assert!(numbers.parse("x", InputSource::CommandLine).unwrap_err().contains("not one of 2, 1"));
}

#[test]
fn a_field_says_what_it_takes() {
    let cases = [
        (json!({ "type": "integer", "minimum": 1, "maximum": 9 }), "integer from 1 to 9"),
        (json!({ "type": "number", "maximum": 9.5 }), "number, at most 9.5"),
        (json!({ "type": "string", "minLength": 2 }), "text, at least 2 characters"),
        (json!({ "type": "string", "format": "email" }), "email"),
        (json!({ "type": "string", "enum": ["a", "b"] }), "a number from 1 to 2"),
        (
            json!({ "type": "array", "items": { "enum": ["a", "b"] } }),
            "numbers from 1 to 2, separated by commas",
        ),
        (
            json!({ "type": "array", "items": { "enum": ["a", "b"] }, "minItems": 1 }),
            "separated by commas, at least 1",
        ),
    ];
    for (schema, expected) in cases {
        let takes = field(schema, true).describe_values();
        assert!(takes.ends_with(expected), "{takes}");
    }
    assert!(field(json!({ "type": "boolean" }), false).describe_values().ends_with("optional"));
    let several = field(json!({ "type": "array", "items": { "enum": ["a", "b"] } }), true);
    assert_eq!(several.format_value(&json!(["b", "a"])), "2,1");
}

#[test]
fn the_host_is_the_one_that_would_be_visited() {
    let cases = [
        ("https://example.com/a@b", "example.com"),
        ("https://bank.example@evil.example:8080?x", "evil.example:8080"),
        ("https://evil.example\\@bank.example/", "evil.example"),
        ("example.com", "example.com"),
    ];
    for (url, expected) in cases {
        assert_eq!(host(url), expected);
    }
}
