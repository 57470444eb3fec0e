//! Tools that return each kind of content.

use std::time::Duration;

use linchpin::{Audio, Content, Context, Error, Image, NoArgs, ResourceContents, Result, Server, Tool, args};
use serde_json::{Map, Value, json};

/// Image of one red pixel.
pub(crate) const PNG: &[u8] = &[
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44, 0x52, 0x00,
    0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x02, 0x00, 0x00, 0x00, 0x90, 0x77, 0x53, 0xde, 0x00,
    0x00, 0x00, 0x0c, 0x49, 0x44, 0x41, 0x54, 0x78, 0x9c, 0x63, 0xf8, 0xcf, 0xc0, 0x00, 0x00, 0x03, 0x01,
    0x01, 0x00, 0xc9, 0xfe, 0x92, 0xef, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60,
    0x82,
];

/// Empty audio clip: 8 kHz, one channel, 16 bits.
const WAV: &[u8] =
    b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x10\0data\0\0\0\0";

/// Pause between progress notifications, so that they are separate messages.
const STEP_DELAY: Duration = Duration::from_millis(20);

#[args]
struct Region {
    /// The region to search
    region: String,
}

async fn with_progress(_: NoArgs, cx: Context) -> &'static str {
    for done in [0.0, 50.0, 100.0] {
        cx.progress((done, 100.0, format!("Completed step {done} of 100")));
        tokio::time::sleep(STEP_DELAY).await;
    }
    "Completed in three steps."
}

fn mixed() -> Vec<Content> {
    vec![
        Content::text("Several kinds of content:"),
        Content::image(PNG, "image/png"),
        Content::resource(ResourceContents::text(
            "test://mixed",
            "application/json",
            r#"{"test":"data","value":123}"#,
        )),
    ]
}

/// Input schema that the suite expects to find unchanged in the list.
fn dialect() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": { "street": { "type": "string" }, "city": { "type": "string" } }
            }
        },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" }
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false
    })
}

pub(crate) fn add(server: Server) -> Server {
    server
        .tool("test_simple_text", "Returns text", || async { "This is a simple text response for testing." })
        .tool("test_image_content", "Returns an image", || async { Image(PNG.to_vec(), "image/png".into()) })
        .tool("test_audio_content", "Returns audio", || async { Audio(WAV.to_vec(), "audio/wav".into()) })
        .tool("test_embedded_resource", "Returns a resource", || async {
            ResourceContents::text(
                "test://embedded-resource",
                "text/plain",
                "This is an embedded resource content.",
            )
        })
        .tool("test_multiple_content_types", "Returns text, an image and a resource", || async { mixed() })
        .tool("test_tool_with_progress", "Reports progress", with_progress)
        .tool("test_error_handling", "Always fails", || async {
            Result::<&str>::Err(Error::tool("This tool intentionally returns an error for testing"))
        })
        .add(
            Tool::raw("json_schema_2020_12_tool", dialect())
                .description("Has a schema with many keywords of JSON Schema 2020-12")
                .handler(|given: Map<String, Value>| async move { Value::Object(given).to_string() }),
        )
        .add(
            Tool::new("test_header_parameter")
                .description("Has a parameter that is mirrored into a header")
                .header("region", "Region")
                .handler(|Region { region }| async move { format!("Searched {region}") }),
        )
}
