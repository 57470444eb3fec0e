//! Cost of validating the arguments of a typical tool, compared with another validator:
//! `cargo run --release -p linchpin-schema --example cost`. Compare the columns, not two runs.
#![expect(clippy::print_stdout, reason = "a program that reports")]

use std::hint::black_box;
use std::time::Instant;

use linchpin_schema::Schema;
use serde_json::{Value, json};

const ROUNDS: u32 = 20;

fn main() {
    let schema = json!({
        "type": "object",
        "properties": {
            "query": {"type": "string", "minLength": 1, "maxLength": 500},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100},
            "order": {"type": "string", "enum": ["asc", "desc"]},
            "fields": {"type": "array", "items": {"type": "string", "pattern": "^[a-z_]+$"}, "maxItems": 20},
            "filter": {"$ref": "#/$defs/filter"},
        },
        "required": ["query"],
        "additionalProperties": false,
        "$defs": {"filter": {"anyOf": [{"type": "null"}, {"type": "object", "additionalProperties": {"type": "number"}}]}},
    });
    let good = json!({"query": "lighthouses", "limit": 20, "order": "asc", "fields": ["name", "height"], "filter": {"min": 1.5}});
    let bad = json!({"query": "", "limit": 0, "order": "up", "fields": ["Name"], "filter": 5});
    let (Ok(ours), Ok(other)) = (Schema::compile(&schema), jsonschema::validator_for(&schema)) else {
        println!("the schema is broken");
        return;
    };
    println!("{:<28}{:>12}{:>12}", "nanoseconds", "ours", "jsonschema");
    let row = |name: &str, ours: u128, other: u128| println!("{name:<28}{ours:>12}{other:>12}");
    row(
        "compile",
        time(500, || Schema::compile(black_box(&schema)).is_ok()),
        time(50, || jsonschema::validator_for(black_box(&schema)).is_ok()),
    );
    let valid = |value: &Value| time(50_000, || ours.is_valid(black_box(value)));
    let other_valid = |value: &Value| time(50_000, || other.is_valid(black_box(value)));
    row("is it valid: yes", valid(&good), other_valid(&good));
    row("is it valid: no", valid(&bad), other_valid(&bad));
    let faults = |value: &Value| time(20_000, || ours.errors(black_box(value), 5).is_empty());
    let other_faults = |value: &Value| {
        time(20_000, || other.iter_errors(black_box(value)).take(5).all(|error| error.to_string().is_empty()))
    };
    row("faults: none", faults(&good), other_faults(&good));
    row("faults: five", faults(&bad), other_faults(&bad));
}

/// Returns the best of several rounds, in nanoseconds per call.
fn time(calls: u32, mut call: impl FnMut() -> bool) -> u128 {
    let rounds = (0..ROUNDS).map(|_| {
        let begin = Instant::now();
        for _ in 0..calls {
            black_box(call());
        }
        begin.elapsed().as_nanos() / u128::from(calls)
    });
    rounds.min().unwrap_or_default()
}
