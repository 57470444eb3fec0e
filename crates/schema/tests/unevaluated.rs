//! `unevaluatedProperties` and `unevaluatedItems`: which members and items count as evaluated.
#![expect(clippy::needless_pass_by_value, reason = "tables read better without references")]

mod support;

use serde_json::{Value, json};
use support::table;

fn check(schema: Value, valid: Value, invalid: Value) {
    let (Value::Array(valid), Value::Array(invalid)) = (valid, invalid) else { panic!("lists") };
    table(&schema, &valid, &invalid);
}

#[test]
fn properties() {
    let closed = |more: Value| {
        let mut schema = more;
        schema["unevaluatedProperties"] = false.into();
        schema
    };
    let ab = json!([{}, {"a": 1}, {"a": 1, "b": 2}]);
    let other = json!([{"c": 1}, {"a": 1, "c": 1}]);
    check(closed(json!({})), json!([{}, 1, [1]]), json!([{"a": 1}]));
    check(closed(json!({"properties": {"a": {}, "b": {}}})), ab.clone(), other.clone());
    check(closed(json!({"patternProperties": {"^[ab]$": true}})), ab.clone(), other.clone());
    check(closed(json!({"additionalProperties": true})), json!([{"c": 1}]), json!([]));
    check(closed(json!({"additionalProperties": {"type": "null"}})), json!([{"c": null}]), json!([{"c": 1}]));
    check(
        closed(json!({"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]})),
        ab.clone(),
        other.clone(),
    );
    check(
        closed(json!({"$ref": "#/$defs/x", "$defs": {"x": {"properties": {"a": {}, "b": {}}}}})),
        ab.clone(),
        other.clone(),
    );
    check(
        closed(
            json!({"anyOf": [{"properties": {"a": {"const": 1}}, "required": ["a"]}, {"properties": {"b": {}}, "required": ["b"]}]}),
        ),
        json!([{"a": 1}, {"b": 1}, {"a": 1, "b": 1}]),
        json!([{}, {"a": 2, "b": 1}, {"a": 1, "c": 1}]),
    );
    check(
        closed(
            json!({"oneOf": [{"properties": {"a": {"const": 1}}, "required": ["a"]}, {"properties": {"b": {}}, "required": ["b"]}]}),
        ),
        json!([{"a": 1}, {"b": 1}]),
        json!([{"a": 1, "b": 1}, {"a": 2, "b": 1}]),
    );
    check(closed(json!({"not": {"not": {"properties": {"a": {}}}}})), json!([{}]), json!([{"a": 1}]));
    check(
        closed(
            json!({"if": {"properties": {"a": {"const": 1}}, "required": ["a"]}, "then": {"properties": {"b": {}}}, "else": {"properties": {"c": {}}}}),
        ),
        json!([{"a": 1}, {"a": 1, "b": 1}, {"c": 1}]),
        json!([{"a": 2}, {"a": 1, "c": 1}, {"b": 1}]),
    );
    check(
        closed(
            json!({"dependentSchemas": {"a": {"properties": {"a": {}, "b": {}}}}, "properties": {"x": {}}}),
        ),
        json!([{"a": 1, "b": 1}, {"x": 1}]),
        json!([{"b": 1}]),
    );
    // A subschema with the same keyword has evaluated everything.
    check(closed(json!({"allOf": [{"unevaluatedProperties": true}]})), json!([{"a": 1}]), json!([]));
    check(
        closed(json!({"properties": {"o": {"properties": {"a": {}}}}})),
        json!([{"o": {"z": 1}}]),
        json!([{"z": 1}]),
    );
    // Adjacent subschemas do not see each other's annotations.
    check(
        json!({"allOf": [{"properties": {"a": {}}}, {"unevaluatedProperties": false}]}),
        json!([{}]),
        json!([{"a": 1}]),
    );
    check(
        json!({"unevaluatedProperties": {"type": "integer"}, "properties": {"a": {}}}),
        json!([{"a": "x", "b": 1}]),
        json!([{"b": "x"}]),
    );
    let many: Value =
        (0..200).map(|index| (format!("k{index}"), json!(index))).collect::<serde_json::Map<_, _>>().into();
    check(
        closed(
            json!({"anyOf": [{"patternProperties": {"^k": {"type": "integer"}}}, {"properties": {"a": true}}]}),
        ),
        json!([many]),
        json!([{"z": 1}]),
    );
}

#[test]
fn items() {
    let closed = |more: Value| {
        let mut schema = more;
        schema["unevaluatedItems"] = false.into();
        schema
    };
    check(closed(json!({})), json!([[], {}, 1]), json!([[1]]));
    check(closed(json!({"items": {"type": "integer"}})), json!([[1, 2]]), json!([["a"]]));
    check(closed(json!({"prefixItems": [{}, {}]})), json!([[], [1, 2]]), json!([[1, 2, 3]]));
    check(
        closed(json!({"prefixItems": [true], "allOf": [{"prefixItems": [true, {"type": "integer"}]}]})),
        json!([[1, 2]]),
        json!([[1, 2, 3], [1, "a"]]),
    );
    check(
        closed(json!({"anyOf": [{"prefixItems": [{"const": 1}]}, {"prefixItems": [true, {"const": 2}]}]})),
        json!([[1, 2], [1]]),
        json!([[1, 3], [2, 3]]),
    );
    check(closed(json!({"contains": {"type": "integer"}})), json!([[1], [1, 2]]), json!([[1, "a"], []]));
    check(
        closed(
            json!({"contains": {"type": "integer"}, "minContains": 0, "prefixItems": [{"type": "string"}]}),
        ),
        json!([["a", 1], ["a"], []]),
        json!([["a", "b"], [1]]),
    );
    check(
        json!({"unevaluatedItems": {"type": "null"}, "prefixItems": [true]}),
        json!([[1, null]]),
        json!([[1, 2]]),
    );
    check(closed(json!({"allOf": [{"items": true}]})), json!([[1, 2, 3]]), json!([]));
    let long: Vec<u32> = (0..150).collect();
    check(
        closed(json!({"if": {"contains": {"const": 149}}, "then": {"items": {"type": "integer"}}})),
        json!([long, []]),
        json!([[1]]),
    );
}
