//! References within a document: pointers, anchors, embedded resources, dynamic references and cycles.
#![expect(clippy::needless_pass_by_value, reason = "tables read better without references")]

mod support;

use linchpin_schema::Schema;
use serde_json::{Value, json};
use support::table;

const DRAFT_07: &str = "http://json-schema.org/draft-07/schema#";

fn check(schema: Value, valid: Value, invalid: Value) {
    let (Value::Array(valid), Value::Array(invalid)) = (valid, invalid) else { panic!("lists") };
    table(&schema, &valid, &invalid);
}

#[test]
fn pointers() {
    check(
        json!({"properties": {"a": {"type": "integer"}, "b": {"$ref": "#/properties/a"}}}),
        json!([{"b": 1}]),
        json!([{"b": "x"}]),
    );
    check(
        json!({"$defs": {"a/b~c%d": {"type": "integer"}}, "$ref": "#/$defs/a~1b~0c%25d"}),
        json!([1]),
        json!(["x"]),
    );
    check(json!({"allOf": [{"type": "integer"}], "items": {"$ref": "#/allOf/0"}}), json!([1]), json!(["a"]));
    check(
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/c"}, "c": {"const": 1}}}),
        json!([1]),
        json!([2]),
    );
    check(
        json!({"components": {"x": {"items": {"type": "null"}}}, "$ref": "#/components/x"}),
        json!([[null]]),
        json!([[1]]),
    );
    check(
        json!({"$defs": {"": {"$defs": {"": {"type": "null"}}}}, "$ref": "#/$defs//$defs/"}),
        json!([null]),
        json!([1]),
    );
}

#[test]
fn circles() {
    let tree = json!({"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}}, "required": ["name"]});
    check(
        tree,
        json!([{"name": 1, "children": [{"name": 2, "children": []}]}]),
        json!([{"name": 1, "children": [{}]}]),
    );
    check(
        json!({"$ref": "#/$defs/even", "$defs": {
            "even": {"anyOf": [{"maxItems": 0}, {"items": {"$ref": "#/$defs/odd"}}]},
            "odd": {"minItems": 1, "items": {"$ref": "#/$defs/even"}}
        }, "type": "array"}),
        json!([[], [[[]]]]),
        json!([[[]], [[[[]]]]]),
    );
    for endless in [
        json!({"$ref": "#"}),
        json!({"allOf": [{"$ref": "#"}]}),
        json!({"not": {"$ref": "#"}}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
        json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}),
        json!({"dependentSchemas": {"a": {"unevaluatedProperties": false, "if": {"not": {"oneOf": [{"$ref": "#"}]}}}}}),
    ] {
        let fault = Schema::compile(&endless).unwrap().check(&json!({"a": 1})).unwrap_err();
        assert!(fault.reason().contains("cannot be checked"), "{endless}: {fault}");
        assert!(!Schema::compile(&endless).unwrap().is_valid(&json!({"a": 1})), "{endless}");
    }
}

#[test]
fn anchors_and_resources() {
    check(
        json!({"$ref": "#a", "$defs": {"x": {"$anchor": "a", "type": "integer"}}}),
        json!([1]),
        json!(["x"]),
    );
    check(
        json!({
            "$id": "https://example.com/root",
            "properties": {"item": {"$ref": "item"}, "deep": {"$ref": "/other/thing#part"}, "self": {"$ref": "root#/$defs/text"}},
            "$defs": {
                "text": {"type": "string"},
                "item": {"$id": "item", "type": "integer", "$defs": {"part": {"$anchor": "part", "const": 0}}, "properties": {"x": {"$ref": "#part"}}},
                "other": {"$id": "https://example.com/other/thing", "$defs": {"p": {"$anchor": "part", "const": 5}, "q": {"$ref": "#part"}}}
            }
        }),
        json!([{"item": 1, "deep": 5, "self": "a"}]),
        json!([{"item": "a"}, {"deep": 0}, {"self": 1}]),
    );
    // A pointer is relative to the nearest resource, not to the document.
    check(
        json!({"$defs": {"a": {"type": "null"}, "r": {"$id": "urn:r", "$defs": {"a": {"type": "integer"}}, "$ref": "#/$defs/a"}}, "$ref": "urn:r"}),
        json!([1]),
        json!([null]),
    );
    check(
        json!({"$schema": DRAFT_07, "$ref": "#a", "definitions": {"x": {"$id": "#a", "type": "integer"}}}),
        json!([1]),
        json!(["x"]),
    );
    check(
        json!({
            "$schema": DRAFT_07, "$id": "http://example.com/r.json", "items": {"$ref": "t.json#/definitions/x"},
            "definitions": {"t": {"$id": "t.json", "definitions": {"x": {"type": "integer"}}}}
        }),
        json!([[1]]),
        json!([["x"]]),
    );
    // Keywords inside a plain value declare nothing.
    check(
        json!({"const": {"$id": "urn:a", "$ref": "urn:nothing"}, "default": {"$ref": "urn:nothing"}}),
        json!([{"$id": "urn:a", "$ref": "urn:nothing"}]),
        json!([1]),
    );
    check(
        json!({"properties": {"$ref": {"type": "string"}, "$id": {"type": "integer"}}}),
        json!([{"$ref": "a", "$id": 1}]),
        json!([{"$ref": 1}]),
    );
}

#[test]
fn dynamic_references() {
    // With a single target, it is a plain reference.
    check(
        json!({"items": {"$dynamicRef": "#x"}, "$defs": {"x": {"$dynamicAnchor": "x", "type": "integer"}}}),
        json!([[1]]),
        json!([["a"]]),
    );
    check(
        json!({"items": {"$dynamicRef": "#x"}, "$defs": {"x": {"$anchor": "x", "type": "integer"}}}),
        json!([[1]]),
        json!([["a"]]),
    );
    check(
        json!({"items": {"$dynamicRef": "#/$defs/x"}, "$defs": {"x": {"type": "integer"}}}),
        json!([[1]]),
        json!([["a"]]),
    );
    // A list of anything, used as a list of numbers: the outermost resource decides.
    let list = json!({
        "$id": "list", "type": "array", "items": {"$dynamicRef": "#item"},
        "$defs": {"default": {"$dynamicAnchor": "item"}}
    });
    check(
        json!({"$id": "https://example.com/numbers", "$ref": "list", "$defs": {"item": {"$dynamicAnchor": "item", "type": "number"}, "list": list}}),
        json!([[], [1, 2]]),
        json!([["a"], 1]),
    );
    // A tree schema that is extended and closed.
    check(
        json!({
            "$id": "https://example.com/strict", "$dynamicAnchor": "node", "$ref": "tree", "unevaluatedProperties": false,
            "$defs": {"tree": {"$id": "tree", "$dynamicAnchor": "node", "type": "object", "properties": {
                "data": true, "children": {"type": "array", "items": {"$dynamicRef": "#node"}}
            }}}
        }),
        json!([{"children": [{"data": 1}]}]),
        json!([{"children": [{"daat": 1}]}, {"daat": 1}]),
    );
    // The dynamic scope decides.
    check(
        json!({
            "$id": "https://example.com/main",
            "if": {"properties": {"kind": {"const": "number"}}},
            "then": {"$id": "numbers", "$ref": "list", "$defs": {"i": {"$dynamicAnchor": "item", "type": "number"}}},
            "else": {"$id": "texts", "$ref": "list", "$defs": {"i": {"$dynamicAnchor": "item", "type": "string"}}},
            "$defs": {"list": {"$id": "list", "properties": {"of": {"items": {"$dynamicRef": "#item"}}}, "$defs": {"i": {"$dynamicAnchor": "item"}}}}
        }),
        json!([{"kind": "number", "of": [1]}, {"kind": "text", "of": ["a"]}]),
        json!([{"kind": "number", "of": ["a"]}, {"kind": "text", "of": [1]}]),
    );
}

/// A subschema that is only a reference is part of the dynamic scope as well, with its resource.
#[test]
fn a_dynamic_reference_sees_every_resource_on_the_way() {
    let schema = json!({
        "$id": "https://example.com/root",
        "$ref": "middle#/$defs/on",
        "$defs": {
            "middle": {
                "$id": "middle",
                "$defs": {
                    "on": {"$ref": "last"},
                    "item": {"$dynamicAnchor": "item", "type": "string"},
                },
            },
            "last": {
                "$id": "last",
                "items": {"$dynamicRef": "#item"},
                "$defs": {"item": {"$dynamicAnchor": "item", "type": "integer"}},
            },
        },
    });
    let schema = Schema::compile(&schema).unwrap();
    assert!(schema.is_valid(&json!(["a"])) && !schema.is_valid(&json!([1])));
}
