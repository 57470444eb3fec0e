//! What a handler takes: a type that decodes from JSON and describes itself.

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Arguments of a tool or prompt, or variables of a resource template.
///
/// Put `#[args]` on a struct to get it: `#[args] struct Add { a: i64, b: i64 }`. Doc comments on the fields
/// become descriptions.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the arguments of a handler",
    label = "this handler takes `{Self}`",
    note = "put `#[linchpin::args]` on the struct: `#[args] struct {Self} {{ … }}`",
    note = "a handler without arguments takes none, or `linchpin::NoArgs` before its `Context`"
)]
pub trait Args: DeserializeOwned + JsonSchema + Send + 'static {}

/// No arguments. Whatever a client sends is ignored, since some send fillers.
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

/// For tools with a schema written by hand.
impl Args for Map<String, Value> {}
