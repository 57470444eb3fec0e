//! Rejected schemas with location and reason, the texts of errors, and limits.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::time::{Duration, Instant};

use linchpin_schema::{Limits, Schema};
use serde_json::{Value, json};

#[test]
fn broken_schemas() {
    for (schema, path, reason) in [
        (json!(1), "", "a schema must be an object or a boolean"),
        (
            json!({"properties": {"a": {"type": "strnig"}}}),
            "/properties/a/type",
            "\"strnig\" is not a JSON Schema type",
        ),
        (json!({"type": []}), "/type", "at least one type"),
        (json!({"type": ["null", "null"]}), "/type", "twice"),
        (json!({"minimum": "x"}), "/minimum", "must be a number"),
        (json!({"multipleOf": 0}), "/multipleOf", "greater than 0"),
        (json!({"minLength": -1}), "/minLength", "not be negative"),
        (json!({"minLength": 1.5}), "/minLength", "must be an integer"),
        (json!({"required": ["a", "a"]}), "/required", "\"a\" twice"),
        (json!({"required": "a"}), "/required", "must be an array"),
        (json!({"required": [1]}), "/required", "only strings"),
        (json!({"enum": 1}), "/enum", "must be an array"),
        (json!({"allOf": []}), "/allOf", "at least one schema"),
        (json!({"allOf": {}}), "/allOf", "at least one schema"),
        (json!({"anyOf": [1]}), "/anyOf", "must be a schema"),
        (json!({"not": null}), "/not", "must be a schema"),
        (json!({"properties": []}), "/properties", "must be an object"),
        (json!({"properties": {"a/b": 5}}), "/properties", "\"a/b\" must be a schema"),
        (json!({"items": [{}]}), "/items", "use prefixItems"),
        (json!({"uniqueItems": 1}), "/uniqueItems", "must be a boolean"),
        (json!({"pattern": "("}), "/pattern", "unclosed group"),
        (json!({"pattern": "a(?=b)"}), "/pattern", "\"a(?=b)\" is invalid: a lookahead"),
        (json!({"patternProperties": {"[": {}}}), "/patternProperties", "unterminated class"),
        (
            json!({"$defs": {"x": {"items": {"type": 5}}}}),
            "/$defs/x/items/type",
            "5 is not a JSON Schema type",
        ),
        (json!({"$defs": {"x": 5}}), "/$defs", "must be a schema"),
        (json!({"then": 5}), "/then", "must be a schema"),
        (json!({"$ref": 5}), "/$ref", "must be a string"),
        (json!({"$ref": "#/nowhere"}), "/$ref", "cannot be resolved"),
        (json!({"$ref": "#nowhere"}), "/$ref", "cannot be resolved"),
        (json!({"$ref": "#/x", "x": 1}), "/$ref", "not refer to a schema"),
        (json!({"$ref": "https://example.com/schema"}), "/$ref", "never fetched"),
        (json!({"items": {"$ref": "file:///etc/passwd"}}), "/items/$ref", "never fetched"),
        (json!({"$id": 5}), "", "$id must be a string"),
        (json!({"$id": "urn:a#b"}), "", "$anchor"),
        (json!({"$defs": {"a": {"$anchor": "x"}, "b": {"$anchor": "x"}}}), "/$defs/b", "duplicate anchor"),
        (json!({"$defs": {"a": {"$id": "urn:x"}, "b": {"$id": "urn:x"}}}), "/$defs/b", "duplicate $id"),
        (json!({"items": {"$schema": "http://json-schema.org/draft-07/schema#"}}), "/items", "two dialects"),
        (
            json!({"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveRef": "#"}),
            "/$recursiveRef",
            "not supported",
        ),
    ] {
        let fault = Schema::compile(&schema).map(|_| ()).unwrap_err();
        assert_eq!(fault.path(), path, "{schema}: {fault}");
        assert!(fault.reason().contains(reason), "{schema}: {fault}");
    }
}

#[test]
fn paths_are_those_of_the_document_and_reasons_are_cut() {
    let moved = json!({"$ref": "#/x~1y/0/a%20b", "x/y": [{"a b": {"items": {"type": 5}}}]});
    assert_eq!(Schema::compile(&moved).unwrap_err().path(), "/x~1y/0/a b/items/type");
    let long = "x".repeat(100_000);
    for schema in [json!({"$ref": format!("#{long}")}), json!({ "$schema": long }), json!({ "type": long })] {
        assert!(Schema::compile(&schema).unwrap_err().reason().len() < 1_000);
    }
}

/// The paths of these subschemas together would take eight billion bytes.
#[test]
fn a_long_name_is_not_held_for_every_subschema_below_it() {
    let many: serde_json::Map<_, _> = (0..1_900).map(|number| (number.to_string(), json!({}))).collect();
    let schema = json!({"properties": {"x".repeat(4_000_000): {"properties": many}}});
    let begin = Instant::now();
    Schema::compile(&schema).unwrap();
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
}

#[test]
fn unknown_keywords_mean_nothing() {
    let schema = json!({"x-mcp-header": {"$ref": 5}, "format": "email", "contentEncoding": "base64", "readOnly": true, "$vocabulary": {}});
    assert!(Schema::compile(&schema).unwrap().is_valid(&json!("é")));
}

#[test]
fn schemas_that_are_too_large() {
    let mut deep = json!({});
    for _ in 0..100 {
        deep = json!({"items": deep});
    }
    assert!(Schema::compile(&deep).unwrap_err().reason().contains("deeper than 64 levels"));
    let limits = Limits { depth: 1_000_000, ..Limits::default() };
    assert!(Schema::compile_within(&deep, limits).is_ok());
    for _ in 0..300 {
        deep = json!({"not": deep});
    }
    assert!(Schema::compile_within(&deep, limits).unwrap_err().reason().contains("deeper than 256 levels"));
    let wide = json!({"anyOf": vec![json!({}); 2_000]});
    assert!(Schema::compile(&wide).unwrap_err().reason().contains("more than 2000 subschemas"));
    let patterns = json!({"anyOf": vec![json!({"pattern": r"^\p{L}{30}$"}); 100]});
    let fault = Schema::compile(&patterns).unwrap_err();
    assert!(fault.reason().contains("too large, alone or together with earlier patterns"), "{fault}");
    let mut value = json!(1);
    for _ in 0..200 {
        value = json!([value]);
    }
    assert!(
        Schema::compile(&json!({"const": value})).unwrap_err().reason().contains("deeper than 128 levels")
    );
}

/// Returns a schema that applies another schema to the same value 900 times.
fn repeated(schema: &Value) -> Value {
    json!({"allOf": vec![json!({"$ref": "#/$defs/x"}); 900], "$defs": {"x": schema}})
}

/// Returns the duration of a validation and its error.
fn timed(schema: &Value, value: &Value) -> (Duration, String) {
    let schema = Schema::compile(schema).unwrap();
    let begin = Instant::now();
    let said = schema.check(value).err().map(|fault| fault.to_string()).unwrap_or_default();
    (begin.elapsed(), said)
}

#[test]
fn work_is_bounded() {
    // 2^30 paths, each as deep as possible.
    let mut doubling = serde_json::Map::new();
    for level in 0..30 {
        let next = json!({"$ref": format!("#/$defs/l{}", level + 1)});
        doubling.insert(format!("l{level}"), json!({"allOf": [next, next, {"not": false}]}));
    }
    doubling.insert("l30".into(), json!({"type": "integer"}));
    let wide: Vec<u32> = (0..100_000).collect();
    // Letters in an order that no automaton can cache.
    let mut state = 1_u32;
    let random: String = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if state >> 31 == 0 { 'a' } else { 'b' }
    })
    .take(200_000)
    .collect();
    let long = "x".repeat(1_000_000);
    let alike = vec![json!({"a": [1, 2, 3], "b": "x".repeat(100)}); 20_000];
    for (schema, value) in [
        (json!({"$ref": "#/$defs/l0", "$defs": doubling}), json!(1)),
        (json!({"anyOf": [{"allOf": [{"$ref": "#"}, {"$ref": "#"}]}, {"not": {"$ref": "#"}}]}), json!(1)),
        (json!({"items": {"enum": wide}}), json!(vec![99_999; 100_000])),
        (json!({"allOf": vec![json!({"contains": {"const": -1}, "minContains": 0}); 900]}), json!(wide)),
        (json!({"allOf": vec![json!({"uniqueItems": true}); 1_000]}), json!(wide)),
        (
            json!({"allOf": vec![json!({"uniqueItems": true, "unevaluatedItems": true}); 500], "unevaluatedItems": true}),
            json!(wide),
        ),
        (json!({"allOf": vec![json!({"not": {"pattern": "(a|b)*a(a|b){9}c$"}}); 500]}), json!(random)),
        (json!({"pattern": "^(a?){500}a{500}$"}), json!("a".repeat(200_000))),
        // The cost of a name grows with its length.
        (repeated(&json!({"propertyNames": {"minLength": 1}})), json!({ &*long: 1 })),
        (repeated(&json!({"not": {"required": [long]}})), json!({ "a": 1 })),
        (repeated(&json!({"properties": {&*long: true}})), json!({ &*long: 1 })),
        (repeated(&json!({"dependentRequired": {&*long: []}})), json!({ &*long: 1 })),
        (repeated(&json!({"not": {"const": {&*long: 1}}})), json!({ &*long: 2 })),
    ] {
        let (took, said) = timed(&schema, &value);
        assert!(said.contains("cannot be checked"), "{said}");
        assert!(took < Duration::from_secs(20), "{took:?}: {}", &schema.to_string()[..100]);
    }
    let (_, said) = timed(&json!({"uniqueItems": true}), &json!(alike));
    assert!(said.contains("non-unique"), "{said}");
}

#[test]
fn nesting_is_bounded() {
    let schema = json!({
        "items": {"$ref": "#"},
        "anyOf": [{"type": "array"}, {"$ref": "#/$defs/x"}],
        "$defs": {"x": {"not": {"type": "array"}}},
    });
    let schema = Schema::compile(&schema).unwrap();
    let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    assert!(schema.is_valid(&nested(127)));
    assert!(
        schema.check(&nested(1_000)).unwrap_err().reason().contains("too deep"),
        "deeper than a parser gives"
    );
}

fn assert_errors(cases: &[(Value, Value, Vec<&str>)]) {
    for (schema, value, expected) in cases {
        let compiled = Schema::compile(schema).unwrap();
        let said: Vec<String> = compiled.errors(value, 10).iter().map(ToString::to_string).collect();
        assert_eq!(&said, expected, "{schema} {value}");
        assert_eq!(compiled.check(value).unwrap_err().to_string(), expected[0], "{schema} {value}");
    }
}

#[test]
fn faults_of_values_say_what_and_where() {
    assert_errors(&[
        (json!({"type": "integer"}), json!("a"), vec!["at /: \"a\" is not of type \"integer\""]),
        (
            json!({"type": ["null", "number", "integer"]}),
            json!("a"),
            vec!["at /: \"a\" is not of types \"null\", \"number\""],
        ),
        (
            json!({"properties": {"a/b": {"items": false}}}),
            json!({"a/b": [1, "x"]}),
            vec!["at /a~1b: Additional items are not allowed (1, \"x\" were unexpected)"],
        ),
        (
            json!({"items": {"minimum": 1, "multipleOf": 2}}),
            json!([2, -1]),
            vec!["at /1: -1 is less than the minimum of 1", "at /1: -1 is not a multiple of 2"],
        ),
        (
            json!({"exclusiveMinimum": 1, "exclusiveMaximum": 1}),
            json!(1),
            vec![
                "at /: 1 is less than or equal to the minimum of 1",
                "at /: 1 is greater than or equal to the maximum of 1",
            ],
        ),
        (json!({"maximum": 1.5}), json!(2), vec!["at /: 2 is greater than the maximum of 1.5"]),
        (json!({"minLength": 1}), json!(""), vec!["at /: \"\" is shorter than 1 character"]),
        (json!({"maxLength": 0}), json!("a"), vec!["at /: \"a\" is longer than 0 characters"]),
        (json!({"pattern": "^b"}), json!("a"), vec!["at /: \"a\" does not match \"^b\""]),
        (json!({"minItems": 2}), json!([1]), vec!["at /: [1] has less than 2 items"]),
        (json!({"maxItems": 1}), json!([1, 2]), vec!["at /: [1,2] has more than 1 item"]),
        (json!({"uniqueItems": true}), json!([1, 1]), vec!["at /: [1,1] has non-unique elements"]),
        (
            json!({"contains": {"const": 1}}),
            json!([2]),
            vec!["at /: None of [2] are valid under the given schema"],
        ),
        (
            json!({"contains": {"const": 1}, "minContains": 2}),
            json!([1]),
            vec!["at /: [1] has less than 2 items that are valid under the given schema"],
        ),
        (
            json!({"contains": {"const": 1}, "maxContains": 1}),
            json!([1, 1]),
            vec!["at /: [1,1] has more than 1 items that are valid under the given schema"],
        ),
        (json!({"minProperties": 1}), json!({}), vec!["at /: {} has less than 1 property"]),
        (json!({"maxProperties": 0}), json!({"a": 1}), vec!["at /: {\"a\":1} has more than 0 properties"]),
    ]);
}

#[test]
fn faults_of_members_and_branches_say_what_and_where() {
    assert_errors(&[
        (
            json!({"required": ["b", "a"]}),
            json!({}),
            vec!["at /: \"b\" is a required property", "at /: \"a\" is a required property"],
        ),
        (
            json!({"dependentRequired": {"a": ["b"]}}),
            json!({"a": 1}),
            vec!["at /: \"b\" is a required property"],
        ),
        (
            json!({"additionalProperties": false}),
            json!({"a": 1, "b": 2}),
            vec!["at /: Additional properties are not allowed ('a', 'b' were unexpected)"],
        ),
        (
            json!({"unevaluatedProperties": false}),
            json!({"a": 1}),
            vec!["at /: Unevaluated properties are not allowed ('a' was unexpected)"],
        ),
        (
            json!({"unevaluatedItems": false}),
            json!([1]),
            vec!["at /: Unevaluated items are not allowed ('1' was unexpected)"],
        ),
        (
            json!({"propertyNames": {"maxLength": 1}}),
            json!({"ab": 1}),
            vec!["at /: \"ab\" is longer than 1 character"],
        ),
        (json!({"const": [1]}), json!(2), vec!["at /: [1] was expected"]),
        (json!({"enum": [1]}), json!(2), vec!["at /: 2 is not one of 1"]),
        (json!({"enum": [1, "a", null]}), json!(2), vec!["at /: 2 is not one of 1, \"a\" or null"]),
        (json!({"enum": [1, 3, 4, 5]}), json!(2), vec!["at /: 2 is not one of 1, 3 or 2 other candidates"]),
        (json!({"enum": []}), json!(2), vec!["at /: 2 is not allowed: the enum is empty"]),
        (
            json!({"not": {"type": "integer"}}),
            json!(1),
            vec!["at /: {\"type\":\"integer\"} is not allowed for 1"],
        ),
        (json!({"properties": {"a": false}}), json!({"a": 1}), vec!["at /a: False schema does not allow 1"]),
        (
            json!({"anyOf": [{"minimum": 1}, {"minimum": 2}]}),
            json!(0),
            vec!["at /: 0 is not valid under any of the schemas listed in the 'anyOf' keyword"],
        ),
        (
            json!({"oneOf": [{"minimum": 1}, {"minimum": 2}]}),
            json!(3),
            vec!["at /: 3 is valid under more than one of the schemas listed in the 'oneOf' keyword"],
        ),
        // If only one branch applies to the type, its own error is more useful.
        (
            json!({"properties": {"a": {"anyOf": [{"$ref": "#/$defs/o"}, {"type": "null"}]}}, "$defs": {"o": {"type": "object", "required": ["x"]}}}),
            json!({"a": {}}),
            vec!["at /a: \"x\" is a required property"],
        ),
        (
            json!({"oneOf": [{"type": "string", "minLength": 3}, {"type": "integer"}]}),
            json!("a"),
            vec!["at /: \"a\" is shorter than 3 characters"],
        ),
        (
            json!({"if": {"type": "integer"}, "then": {"minimum": 5}}),
            json!(1),
            vec!["at /: 1 is less than the minimum of 5"],
        ),
    ]);
}

#[test]
fn there_are_never_more_faults_than_asked_for_and_none_is_long() {
    let schema = Schema::compile(&json!({"items": {"type": "integer"}, "maxItems": 1})).unwrap();
    let value = json!(vec!["x".repeat(10_000); 100]);
    for max in [0, 1, 3, 50] {
        let faults = schema.errors(&value, max);
        assert_eq!(faults.len(), max.max(1));
        assert!(faults.iter().all(|fault| fault.reason().len() < 300), "{faults:?}");
    }
    let names = json!({"k".repeat(5_000): 1});
    let closed = Schema::compile(&json!({"additionalProperties": false})).unwrap();
    assert!(closed.check(&names).unwrap_err().reason().len() < 300);
}
