//! Arguments of handlers: types that decode from JSON and have a JSON Schema.

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Type of the arguments of a tool or prompt, or of the variables of a resource template.
///
/// Implemented by `#[args]` on a struct: `#[args] struct Add { a: i64, b: i64 }`. Doc comments on the fields become
/// descriptions in the schema.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the arguments of a handler",
    label = "this handler takes `{Self}`",
    note = "put `#[linchpin::args]` on the struct: `#[args] struct {Self} {{ … }}`",
    note = "a handler without arguments takes none, or `linchpin::NoArgs` before its `Context`"
)]
pub trait Args: DeserializeOwned + JsonSchema + Send + 'static {}

/// Argument type for handlers without arguments. Arguments that a client sends are ignored, because some clients send
/// placeholders.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub struct NoArgs {}

impl Args for NoArgs {}

impl JsonSchema for NoArgs {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NoArgs".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "object", "properties": {} })
    }
}

/// For tools with a hand-written schema.
impl Args for Map<String, Value> {}
