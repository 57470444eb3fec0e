//! Thousands of generated schemas and values: both validators agree, with and without error messages.

use std::cell::Cell;

use linchpin_schema::Schema;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value, json};

/// Number of schemas; each is tried on ten values.
const CASES: u32 = 600;
const NAMES: [&str; 5] = ["a", "b", "ab", "x1", "é"];

fn number() -> BoxedStrategy<Value> {
    let fractions =
        select(vec![0.5, 1.0, 1.5, -0.5, 0.1, 0.3, 2.0, 1e20, 0.07, -3.0]).prop_map(|value| json!(value));
    let large = select(vec![u64::MAX, u64::MAX - 1, 1 << 53, (1 << 53) + 1]).prop_map(|value| json!(value));
    prop_oneof![4 => (-3_i64..7).prop_map(|value| json!(value)), 2 => fractions, 1 => large].boxed()
}

fn text() -> BoxedStrategy<Value> {
    select(vec!["", "a", "ab", "b", "x1", "é", "😀", "aab", "1", "-"]).prop_map(|text| json!(text)).boxed()
}

fn value() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::Bool),
        3 => number(),
        3 => text(),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::Array),
            btree_map(select(&NAMES[..]), inner, 0..5).prop_map(|members| object(members.into_iter())),
        ]
    })
    .boxed()
}

fn object<'a>(members: impl Iterator<Item = (&'a str, Value)>) -> Value {
    Value::Object(members.map(|(name, value)| (name.to_owned(), value)).collect())
}

fn names() -> BoxedStrategy<Value> {
    subsequence(NAMES.to_vec(), 0..3).prop_map(|names| json!(names)).boxed()
}

/// Returns a keyword with its value. `inner` creates subschemas.
fn keyword(inner: &BoxedStrategy<Value>, newest: bool) -> BoxedStrategy<(&'static str, Value)> {
    let types = select(vec!["null", "boolean", "integer", "number", "string", "array", "object"]);
    let one =
        |key: &'static str, value: BoxedStrategy<Value>| value.prop_map(move |value| (key, value)).boxed();
    let count = || (0_u32..4).prop_map(|count| json!(count)).boxed();
    let list = |most: usize| vec(inner.clone(), 1..most).prop_map(Value::Array).boxed();
    let named = || {
        btree_map(select(&NAMES[..]), inner.clone(), 0..4)
            .prop_map(|members| object(members.into_iter()))
            .boxed()
    };
    let patterns = || select(vec!["^a", "b$", r"\d", "^.$", r"^\w+$", "[^ab]", "^(a|x)", r"\S"]);
    let by_pattern =
        btree_map(patterns(), inner.clone(), 1..3).prop_map(|members| object(members.into_iter()));
    let requirements =
        btree_map(select(&NAMES[..]), names(), 1..3).prop_map(|members| object(members.into_iter()));
    let mut keywords = vec![
        one("type", types.clone().prop_map(|name| json!(name)).boxed()),
        one(
            "type",
            vec(types, 1..3)
                .prop_map(|mut names| {
                    names.sort_unstable();
                    names.dedup();
                    json!(names)
                })
                .boxed(),
        ),
        one("const", value()),
        one("enum", vec(value(), 1..5).prop_map(Value::Array).boxed()),
        one("minimum", number()),
        one("maximum", number()),
        one("exclusiveMinimum", number()),
        one("exclusiveMaximum", number()),
        one(
            "multipleOf",
            select(vec![json!(1), json!(2), json!(0.5), json!(0.1), json!(0.01), json!(3)]).boxed(),
        ),
        one("minLength", count()),
        one("maxLength", count()),
        one("pattern", patterns().prop_map(|pattern| json!(pattern)).boxed()),
        one("minItems", count()),
        one("maxItems", count()),
        one("uniqueItems", any::<bool>().prop_map(Value::Bool).boxed()),
        one("items", inner.clone()),
        one("contains", inner.clone()),
        one("properties", named()),
        one("properties", named()),
        one("patternProperties", by_pattern.boxed()),
        one("additionalProperties", inner.clone()),
        one("propertyNames", inner.clone()),
        one("required", names()),
        one("minProperties", count()),
        one("maxProperties", count()),
        one("dependencies", named()),
        one("dependencies", requirements.clone().boxed()),
        one("allOf", list(3)),
        one("anyOf", list(4)),
        one("oneOf", list(4)),
        one("not", inner.clone()),
        one("if", inner.clone()),
        one("then", inner.clone()),
        one("else", inner.clone()),
        one("$ref", select(vec![json!("#/definitions/one"), json!("#/definitions/two")]).boxed()),
    ];
    if newest {
        keywords.extend([
            one("prefixItems", list(4)),
            one("minContains", count()),
            one("maxContains", count()),
            one("dependentRequired", requirements.boxed()),
            one("dependentSchemas", named()),
            one("unevaluatedProperties", inner.clone()),
            one("unevaluatedProperties", Just(json!(false)).boxed()),
            one("unevaluatedItems", inner.clone()),
            one("unevaluatedItems", Just(json!(false)).boxed()),
        ]);
    } else {
        keywords.extend([one("items", list(4)), one("additionalItems", inner.clone())]);
    }
    proptest::strategy::Union::new(keywords).boxed()
}

fn subschema(newest: bool) -> BoxedStrategy<Value> {
    let leaf = prop_oneof![4 => Just(json!({})), 1 => Just(json!(true)), 1 => Just(json!(false))].boxed();
    leaf.prop_recursive(4, 24, 4, move |inner| {
        vec(keyword(&inner.boxed(), newest), 1..5).prop_map(|keywords| object(keywords.into_iter()))
    })
    .boxed()
}

/// Returns a whole document. Its definitions contain no references, so there are no endless cycles.
fn document(newest: bool) -> BoxedStrategy<Value> {
    (subschema(newest), subschema(newest), subschema(newest))
        .prop_map(move |(main, one, two)| {
            let mut document = match main {
                Value::Object(main) => main,
                _ => Map::new(),
            };
            document.insert(
                "definitions".into(),
                json!({"one": without_references(one), "two": without_references(two)}),
            );
            if !newest {
                document.insert("$schema".into(), json!("http://json-schema.org/draft-07/schema#"));
            }
            Value::Object(document)
        })
        .boxed()
}

fn without_references(schema: Value) -> Value {
    match schema {
        Value::Object(members) => members
            .into_iter()
            .filter(|(key, _)| key != "$ref")
            .map(|(key, value)| (key, without_references(value)))
            .collect(),
        Value::Array(items) => items.into_iter().map(without_references).collect(),
        other => other,
    }
}

fn compare(newest: bool) {
    let mut runner = TestRunner::new(Config { cases: CASES, failure_persistence: None, ..Config::default() });
    let (valid, invalid) = (Cell::new(0), Cell::new(0));
    let outcome = runner.run(&(document(newest), vec(value(), 10)), |(schema, values)| {
        let ours = Schema::compile(&schema).map_err(|fault| TestCaseError::fail(fault.to_string()))?;
        let other = jsonschema::options().should_validate_formats(false).build(&schema);
        let other = other.map_err(|error| TestCaseError::fail(error.to_string()))?;
        for value in values {
            let expected = other.is_valid(&value);
            let tally = if expected { &valid } else { &invalid };
            tally.set(tally.get() + 1);
            prop_assert_eq!(ours.is_valid(&value), expected, "{} {}", schema, value);
            let faults = ours.errors(&value, 5);
            prop_assert_eq!(faults.is_empty(), expected, "{} {} {:?}", schema, value, faults);
            for fault in faults {
                prop_assert!(value.pointer(fault.path()).is_some(), "{} {} {}", schema, value, fault);
            }
        }
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    let (valid, invalid) = (valid.get(), invalid.get());
    assert!(
        valid > CASES && invalid > CASES,
        "{valid} values fit and {invalid} do not: too few to mean anything"
    );
}

#[test]
fn in_2020_12() {
    compare(true);
}

#[test]
fn in_draft_07() {
    compare(false);
}
