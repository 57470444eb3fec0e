//! Every assertion and applicator, in tables of valid and invalid values.
#![expect(clippy::needless_pass_by_value, reason = "tables read better without references")]

mod support;

use linchpin_schema::Schema;
use serde_json::{Value, json};
use support::table;

const DRAFT_07: &str = "http://json-schema.org/draft-07/schema#";

fn list(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items,
        other => panic!("{other} is not a list"),
    }
}

/// Checks in both dialects.
fn both(schema: Value, valid: Value, invalid: Value) {
    let (valid, invalid) = (list(valid), list(invalid));
    table(&schema, &valid, &invalid);
    table(&in_draft_07(schema), &valid, &invalid);
}

fn in_draft_07(mut schema: Value) -> Value {
    schema["$schema"] = DRAFT_07.into();
    schema
}

fn draft_2020_12(schema: Value, valid: Value, invalid: Value) {
    table(&schema, &list(valid), &list(invalid));
}

fn draft_07(schema: Value, valid: Value, invalid: Value) {
    table(&in_draft_07(schema), &list(valid), &list(invalid));
}

#[test]
fn types() {
    let all = json!([null, true, 1, 1.5, "a", [], {}]);
    for (name, fitting) in [
        ("null", vec![0]),
        ("boolean", vec![1]),
        ("integer", vec![2]),
        ("number", vec![2, 3]),
        ("string", vec![4]),
        ("array", vec![5]),
        ("object", vec![6]),
    ] {
        let (mut valid, mut invalid) = (Vec::new(), Vec::new());
        for (index, value) in list(all.clone()).into_iter().enumerate() {
            if fitting.contains(&index) { valid.push(value) } else { invalid.push(value) }
        }
        both(json!({"type": name}), valid.into(), invalid.into());
    }
    both(json!({"type": "integer"}), json!([1.0, -0.0, 1e20, 0]), json!([1.1, 1e-3]));
    both(json!({"type": ["string", "null"]}), json!(["a", null]), json!([1, [], {}]));
    both(json!({"type": ["integer", "number"]}), json!([1, 1.5]), json!(["a"]));
    both(json!({}), all.clone(), json!([]));
    table(&json!(true), &list(all.clone()), &[]);
    table(&json!(false), &[], &list(all));
}

#[test]
fn values() {
    both(
        json!({"const": {"a": [1, 2.0]}}),
        json!([{"a": [1.0, 2]}]),
        json!([{"a": [2, 1]}, {"a": [1]}, null]),
    );
    both(json!({"const": false}), json!([false]), json!([0, null, "", [], true]));
    both(json!({"const": 9_007_199_254_740_993_u64}), json!([9_007_199_254_740_993_u64]), json!([1]));
    both(
        json!({"enum": [1, "a", null, [0], {"x": 1}]}),
        json!([1.0, "a", null, [0], {"x": 1.0}]),
        json!([2, "b", [], [1], {}]),
    );
    both(json!({"enum": ["a\u{0}b"]}), json!(["a\u{0}b"]), json!(["ab"]));
}

#[test]
fn numbers() {
    both(json!({"minimum": 1.1}), json!([1.1, 2, "x"]), json!([1, 1.05, -5]));
    both(json!({"maximum": 3}), json!([3, 3.0, -1e300, null]), json!([3.000_001, 4]));
    both(json!({"exclusiveMinimum": 0}), json!([0.000_1, 1]), json!([0, -0.0, -1]));
    both(
        json!({"exclusiveMaximum": 18_446_744_073_709_551_615_u64}),
        json!([18_446_744_073_709_551_614_u64]),
        json!([18_446_744_073_709_551_615_u64, 1e20]),
    );
    both(
        json!({"minimum": -9_223_372_036_854_775_808_i64}),
        json!([-9_223_372_036_854_775_808_i64, 0]),
        json!([-1e19]),
    );
    both(
        json!({"minimum": 1, "maximum": 2, "multipleOf": 0.5}),
        json!([1, 1.5, 2, {}]),
        json!([0.5, 1.25, 2.5]),
    );
    both(json!({"multipleOf": 0.01}), json!([0, 19.99, 4.02, 0.07, 1e20]), json!([0.075, 19.999]));
    both(json!({"multipleOf": 2}), json!([0, 4, -6, 8.0, 1e18]), json!([3, 2.5, 9_007_199_254_740_993_u64]));
    both(json!({"multipleOf": 1e-8}), json!([12_391_239_123_u64, 0.5]), json!([1e-9]));
}

#[test]
fn texts() {
    both(json!({"minLength": 2}), json!(["ab", "éé", "😀😀", 1]), json!(["", "a", "😀"]));
    both(json!({"maxLength": 2.0}), json!(["", "ab", "😀😀", []]), json!(["abc", "😀😀😀"]));
    both(json!({"minLength": 1, "maxLength": 1}), json!(["é"]), json!(["", "éé"]));
    both(json!({"pattern": "^a*$"}), json!(["", "aa", 1]), json!(["b", "aab"]));
    both(json!({"pattern": "a+"}), json!(["xxaayy"]), json!(["b"]));
    both(json!({"pattern": r"^\d{3}-\w+\/$"}), json!(["123-ab_/"]), json!(["१२३-ab/", "123-é/"]));
    both(json!({"format": "email"}), json!(["not an address", 1]), json!([]));
}

#[test]
fn arrays_of_2020_12() {
    draft_2020_12(json!({"items": {"type": "integer"}}), json!([[], [1, 2], {}, "x"]), json!([[1, "x"]]));
    draft_2020_12(json!({"items": false}), json!([[], 1]), json!([[1]]));
    draft_2020_12(
        json!({"prefixItems": [{"type": "integer"}, {"type": "string"}]}),
        json!([[], [1], [1, "a"], [1, "a", true]]),
        json!([["a"], [1, 2]]),
    );
    draft_2020_12(
        json!({"prefixItems": [true, {"type": "string"}], "items": {"type": "null"}}),
        json!([[1], [1, "a", null]]),
        json!([[1, "a", 1]]),
    );
    draft_2020_12(json!({"prefixItems": [{}, {}], "items": false}), json!([[], [1, 2]]), json!([[1, 2, 3]]));
    draft_2020_12(json!({"contains": {"minimum": 5}}), json!([[5], [1, 6], "x"]), json!([[], [1, 2]]));
    draft_2020_12(
        json!({"contains": {"const": 1}, "minContains": 2, "maxContains": 3}),
        json!([[1, 1], [1, 2, 1, 1]]),
        json!([[1], [1, 1, 1, 1], []]),
    );
    draft_2020_12(json!({"contains": {"const": 1}, "minContains": 0}), json!([[], [2], [1]]), json!([]));
    draft_2020_12(
        json!({"contains": {"const": 1}, "minContains": 0, "maxContains": 1}),
        json!([[], [1]]),
        json!([[1, 1]]),
    );
    draft_2020_12(json!({"minContains": 2, "maxContains": 0}), json!([[], [1]]), json!([]));
    draft_2020_12(json!({"contains": true, "additionalItems": false}), json!([[1]]), json!([[]]));
}

#[test]
fn arrays_of_draft_07() {
    draft_07(
        json!({"items": [{"type": "integer"}, {"type": "string"}]}),
        json!([[], [1], [1, "a", null]]),
        json!([["a"]]),
    );
    draft_07(json!({"items": [{}], "additionalItems": false}), json!([[], [1]]), json!([[1, 2]]));
    draft_07(
        json!({"items": [{}], "additionalItems": {"type": "null"}}),
        json!([[1, null]]),
        json!([[1, 2]]),
    );
    draft_07(
        json!({"items": {"type": "integer"}, "additionalItems": false}),
        json!([[1, 2]]),
        json!([["a"]]),
    );
    draft_07(json!({"additionalItems": false}), json!([[1]]), json!([]));
    draft_07(json!({"contains": {"const": 1}, "minContains": 2}), json!([[1]]), json!([[]]));
    draft_07(json!({"prefixItems": [false], "unevaluatedItems": false}), json!([[1]]), json!([]));
}

#[test]
fn arrays_of_both() {
    both(json!({"minItems": 1, "maxItems": 2}), json!([[1], [1, 2], "abc"]), json!([[], [1, 2, 3]]));
    both(
        json!({"uniqueItems": true}),
        json!([[], [1, 2], [1, true], [0, false, null, "", [], {}], [{"a": 1}, {"a": 2}], [[1, 2], [2, 1]]]),
        json!([[1, 1.0], [{"a": 1, "b": 2}, {"b": 2, "a": 1}], [[1], [1]], ["a", "b", "a"], [null, null]]),
    );
    let long: Vec<usize> = (0..100).collect();
    let double: Vec<usize> = (0..100).chain([50]).collect();
    both(json!({"uniqueItems": true}), json!([long]), json!([double]));
    both(json!({"uniqueItems": false}), json!([[1, 1]]), json!([]));
}

#[test]
fn objects() {
    both(
        json!({"properties": {"a": {"type": "integer"}, "b/c~": false}}),
        json!([{}, {"a": 1, "z": null}, [], 1]),
        json!([{"a": "x"}, {"b/c~": 1}]),
    );
    both(
        json!({"required": ["a", "b"]}),
        json!([{"a": 1, "b": null}, 5]),
        json!([{}, {"a": 1}, {"b": 1, "c": 1}]),
    );
    both(
        json!({"properties": {"b": {}}, "required": ["a", "b"]}),
        json!([{"b": 1, "a": 1}]),
        json!([{"b": 1}, {"a": 1}]),
    );
    both(json!({"required": []}), json!([{}]), json!([]));
    both(
        json!({"additionalProperties": false, "properties": {"a": {}}}),
        json!([{}, {"a": 1}]),
        json!([{"b": 1}]),
    );
    both(
        json!({"additionalProperties": false, "properties": {"a": {}}, "required": ["b"]}),
        json!([]),
        json!([{"b": 1}, {"a": 1}]),
    );
    both(
        json!({"additionalProperties": {"type": "null"}, "patternProperties": {"^x": {"type": "integer"}}}),
        json!([{"x1": 1, "y": null}]),
        json!([{"x1": null}, {"y": 1}]),
    );
    both(
        json!({"properties": {"xa": {"minimum": 5}}, "patternProperties": {"^x": {"type": "integer"}, "a$": {"maximum": 9}}}),
        json!([{"xa": 7}, {"b": "x"}]),
        json!([{"xa": 4}, {"xa": 5.5}, {"xa": 10}]),
    );
    both(
        json!({"propertyNames": {"maxLength": 2, "pattern": "^[a-z]*$"}}),
        json!([{}, {"ab": 1}]),
        json!([{"abc": 1}, {"A": 1}]),
    );
    both(json!({"propertyNames": false}), json!([{}, []]), json!([{"a": 1}]));
    both(
        json!({"minProperties": 1, "maxProperties": 2}),
        json!([{"a": 1}, [1, 2, 3]]),
        json!([{}, {"a": 1, "b": 2, "c": 3}]),
    );
}

#[test]
fn dependents() {
    let invalid = json!([{"a": 1}, {"a": 1, "b": "x"}]);
    draft_2020_12(
        json!({"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"a": {"properties": {"b": {"type": "integer"}}}}}),
        json!([{}, {"b": "x"}, {"a": 1, "b": 2}, 1]),
        invalid.clone(),
    );
    both(
        json!({"dependencies": {"a": {"required": ["b"], "properties": {"b": {"type": "integer"}}}}}),
        json!([{}, {"a": 1, "b": 2}]),
        invalid,
    );
    both(
        json!({"dependencies": {"a": ["b", "c"], "z": false}}),
        json!([{"a": 1, "b": 1, "c": 1}]),
        json!([{"a": 1, "b": 1}, {"z": 1}]),
    );
    draft_07(
        json!({"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"a": false}}),
        json!([{"a": 1}]),
        json!([]),
    );
}

#[test]
fn combinations() {
    both(json!({"allOf": [{"minimum": 1}, {"maximum": 3}]}), json!([2]), json!([0, 4]));
    both(json!({"anyOf": [{"type": "integer"}, {"minimum": 2}]}), json!([1, 2.5, "x"]), json!([1.5]));
    both(json!({"oneOf": [{"type": "integer"}, {"minimum": 2}]}), json!([1, 2.5]), json!([3, 1.5]));
    both(json!({"not": {"type": "integer"}}), json!(["a", 1.5]), json!([1]));
    both(json!({"not": {"not": {"type": "integer"}}}), json!([1]), json!(["a"]));
    both(json!({"anyOf": [true, false]}), json!([1]), json!([]));
    both(json!({"oneOf": [true, true]}), json!([]), json!([1]));
    both(
        json!({"if": {"properties": {"k": {"const": 1}}, "required": ["k"]}, "then": {"required": ["a"]}, "else": {"required": ["b"]}}),
        json!([{"k": 1, "a": 1}, {"k": 2, "b": 1}, {"b": 1}]),
        json!([{"k": 1}, {"k": 2, "a": 1}, {}]),
    );
    both(json!({"then": false, "else": false}), json!([1]), json!([]));
    both(json!({"if": false, "then": false}), json!([1]), json!([]));
    both(json!({"if": {"minimum": 3}, "else": {"type": "string"}}), json!([3, "a"]), json!([2]));
}

#[test]
fn the_dialect_counts() {
    // Draft-07 ignores keywords beside a `$ref`.
    let schema = json!({"$ref": "#/definitions/a", "maximum": 3, "definitions": {"a": {"type": "integer"}}});
    draft_07(schema.clone(), json!([5]), json!(["a"]));
    draft_2020_12(schema, json!([2]), json!([5, "a"]));
    for name in [
        "https://json-schema.org/draft/2020-12/schema",
        "http://json-schema.org/draft-07/schema",
        DRAFT_07,
        "https://json-schema.org/draft/2019-09/schema#",
        "http://json-schema.org/draft-06/schema#",
    ] {
        assert!(Schema::compile(&json!({"$schema": name})).is_ok(), "{name}");
    }
    let middle = json!({
        "$schema": "https://json-schema.org/draft/2019-09/schema",
        "items": [true],
        "unevaluatedItems": false,
        "dependentRequired": {"a": ["b"]},
    });
    table(&middle, &list(json!([[1]])), &list(json!([[1, 2], {"a": 1}])));
    // `contains` marks items as evaluated only since 2020-12. The other validator ignores the difference.
    let found = json!({
        "$schema": "https://json-schema.org/draft/2019-09/schema",
        "contains": {"const": 1},
        "unevaluatedItems": false,
    });
    assert!(!Schema::compile(&found).unwrap().is_valid(&json!([1])));
    for name in ["http://json-schema.org/draft-04/schema#", "https://example.com/mine", ""] {
        let fault = Schema::compile(&json!({"$schema": name})).unwrap_err();
        assert_eq!(fault.path(), "/$schema");
        assert!(fault.reason().contains("not supported"), "{fault}");
    }
}
