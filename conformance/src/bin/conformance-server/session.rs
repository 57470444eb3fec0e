//! Tools that send requests or notifications to the client during a call. Without a session, the same calls are multi
//! round-trip requests.

use std::time::Duration;

use linchpin::model::{CreateMessageParams, ElicitParams, ElicitResult, SamplingMessage};
use linchpin::{Content, Context, LogLevel, NoArgs, Result, Server, args};
use serde_json::{Value, json};

/// Pause between messages, so that they are separate.
const STEP_DELAY: Duration = Duration::from_millis(20);
/// Delay before the client of `test_reconnection` reconnects.
const RECONNECT_DELAY: Duration = Duration::from_millis(100);

#[args]
struct Prompt {
    /// The prompt for the model
    prompt: String,
}

#[args]
struct Message {
    /// The message to the user
    message: String,
}

async fn with_logging(_: NoArgs, cx: Context) -> &'static str {
    for text in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
        cx.log(LogLevel::Info, text);
        tokio::time::sleep(STEP_DELAY).await;
    }
    "Logged."
}

async fn sampling(Prompt { prompt }: Prompt, cx: Context) -> Result<String> {
    let question = CreateMessageParams::new([SamplingMessage::user(Content::text(prompt))], 100);
    Ok(format!("LLM response: {}", cx.sample(question).await?.to_text()))
}

/// Creates an elicitation form from a hand-written schema.
pub(crate) fn form(message: &str, properties: &Value, required: &[&str]) -> Result<ElicitParams> {
    let schema = json!({ "type": "object", "properties": properties, "required": required });
    Ok(serde_json::from_value(json!({ "mode": "form", "message": message, "requestedSchema": schema }))?)
}

pub(crate) fn format_elicit_result(result: ElicitResult) -> String {
    let content = Value::Object(result.content.unwrap_or_default());
    format!("action={}, content={content}", result.action.as_str())
}

async fn elicitation(Message { message }: Message, cx: Context) -> Result<String> {
    let fields = json!({ "response": { "type": "string", "description": "User's response" } });
    let answer = cx.elicit_with(form(&message, &fields, &["response"])?).await?;
    Ok(format!("User response: {}", format_elicit_result(answer)))
}

async fn defaults(_: NoArgs, cx: Context) -> Result<String> {
    let fields = json!({
        "name": { "type": "string", "description": "User name", "default": "John Doe" },
        "age": { "type": "integer", "description": "User age", "default": 30 },
        "score": { "type": "number", "description": "User score", "default": 95.5 },
        "status": {
            "type": "string", "description": "User status",
            "enum": ["active", "inactive", "pending"], "default": "active"
        },
        "verified": { "type": "boolean", "description": "Verification status", "default": true }
    });
    let answer =
        cx.elicit_with(form("Please review and update the form fields with defaults", &fields, &[])?).await?;
    Ok(format!("Elicitation completed: {}", format_elicit_result(answer)))
}

async fn choices(_: NoArgs, cx: Context) -> Result<String> {
    let titled = |names: [&str; 3]| -> Vec<Value> {
        let values = ["value1", "value2", "value3"];
        values
            .into_iter()
            .zip(names)
            .map(|(value, title)| json!({ "const": value, "title": title }))
            .collect()
    };
    let options = ["option1", "option2", "option3"];
    let fields = json!({
        "untitledSingle": { "type": "string", "description": "Select one option", "enum": options },
        "titledSingle": {
            "type": "string", "description": "Select one option with titles",
            "oneOf": titled(["First Option", "Second Option", "Third Option"])
        },
        "legacyEnum": {
            "type": "string", "description": "Select one option (legacy)",
            "enum": ["opt1", "opt2", "opt3"], "enumNames": ["Option One", "Option Two", "Option Three"]
        },
        "untitledMulti": {
            "type": "array", "description": "Select multiple options", "minItems": 1, "maxItems": 3,
            "items": { "type": "string", "enum": options }
        },
        "titledMulti": {
            "type": "array", "description": "Select multiple options with titles", "minItems": 1, "maxItems": 3,
            "items": { "anyOf": titled(["First Choice", "Second Choice", "Third Choice"]) }
        }
    });
    let answer = cx.elicit_with(form("Please select options from the enum fields", &fields, &[])?).await?;
    Ok(format!("Elicitation completed: {}", format_elicit_result(answer)))
}

async fn reconnection(_: NoArgs, cx: Context) -> &'static str {
    cx.close_stream(RECONNECT_DELAY);
    tokio::time::sleep(RECONNECT_DELAY).await;
    "The client reconnected."
}

pub(crate) fn add(server: Server) -> Server {
    server
        .tool("test_tool_with_logging", "Logs three messages", with_logging)
        .tool("test_sampling", "Samples the client's model", sampling)
        .tool("test_elicitation", "Elicits input from the user", elicitation)
        .tool("test_elicitation_sep1034_defaults", "Elicits input with default values", defaults)
        .tool("test_elicitation_sep1330_enums", "Elicits a choice", choices)
        .tool("test_reconnection", "Closes the connection during the call", reconnection)
}
