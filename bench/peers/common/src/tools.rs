//! Tools of all compared servers: `echo`, `add` and fifty dummies that are only listed.

use serde_json::{Value, json};

/// Number of dummy tools.
pub const DUMMIES: usize = 50;

/// Tool as listed by `tools/list`.
pub struct ToolDefinition {
    pub name: String,
    pub description: String,
    pub input_schema: Value,
}

/// Returns the dummy tools.
pub fn dummy_tools() -> Vec<ToolDefinition> {
    (0..DUMMIES)
        .map(|i| ToolDefinition {
            name: format!("dummy_tool_{i:02}"),
            description: format!(
                "Dummy tool number {i}. Looks a record up in the {i}th table by key and returns the \
                 fields asked for; present only so that tools/list has a realistic size."
            ),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "key": {"type": "string", "description": "The key to look up"},
                    "limit": {"type": "integer", "minimum": 1, "maximum": 100, "description": "Most rows to return"},
                    "fields": {"type": "array", "items": {"type": "string"}, "description": "Fields to return"},
                    "order": {"type": "string", "enum": ["asc", "desc"], "description": "Sort order"}
                },
                "required": ["key"]
            }),
        })
        .collect()
}

/// Returns the complete `tools/list` result as text, for servers that precompute it.
pub fn tools_list_result() -> String {
    let mut tools = vec![
        json!({
            "name": "echo",
            "description": "Echo the message back",
            "inputSchema": {
                "type": "object",
                "properties": {"message": {"type": "string", "description": "The message to echo"}},
                "required": ["message"]
            }
        }),
        json!({
            "name": "add",
            "description": "Add two numbers",
            "inputSchema": {
                "type": "object",
                "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
                "required": ["a", "b"]
            },
            "outputSchema": {
                "type": "object",
                "properties": {"sum": {"type": "number"}},
                "required": ["sum"]
            }
        }),
    ];
    for tool in dummy_tools() {
        tools.push(
            json!({"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}),
        );
    }
    json!({ "tools": tools }).to_string()
}
