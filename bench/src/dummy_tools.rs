//! Tools that give `tools/list` a realistic size.

use linchpin::{Register, Server, Tool};
use serde_json::{Map, Value, json};

/// Adds fifty dummy tools to a server.
pub fn add_dummy_tools(server: Server) -> Server {
    (0..50).fold(server, |server, number| server.add(dummy(number)))
}

fn dummy(number: usize) -> impl Register {
    let schema = json!({
        "type": "object",
        "properties": {
            "key": {"type": "string", "description": "The key to look up"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100, "description": "Most rows to return"},
            "fields": {"type": "array", "items": {"type": "string"}, "description": "Fields to return"},
            "order": {"type": "string", "enum": ["asc", "desc"], "description": "Sort order"}
        },
        "required": ["key"]
    });
    let description = format!(
        "Dummy tool number {number}. Looks a record up in the {number}th table by key and returns the fields asked \
         for; present only so that tools/list has a realistic size."
    );
    Tool::raw(format!("dummy_tool_{number:02}"), schema)
        .description(description)
        .handler(|_: Map<String, Value>| async { "dummy" })
}
