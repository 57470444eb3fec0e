//! Conversion of return values of tool handlers into tool results.

use linchpin_protocol::model::{CallToolResult, Content, ResourceContents, ResourceLink, StructuredContent};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::content::{Audio, Image, IntoContent, blob};
use super::json::Json;
use crate::server::definitions::derived_schema::{self, DerivedSchema};
use crate::{Error, Result};

/// Type that a tool handler may return.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be returned from a tool",
    label = "this tool returns `{Self}`",
    note = "return String, &'static str, a number, bool, (), Vec<u8>, Json<T>, Image, Audio, ResourceLink, Content, \
            a Vec or Option of these, (content, Json<T>), serde_json::Value, ToolOutput, or Result<_, linchpin::Error>"
)]
pub trait IntoToolOutput {
    /// Converts the value into the result of the tool call.
    fn into_output(self) -> Result<CallToolResult>;

    /// Returns the schema of the structured content, if there is any.
    #[doc(hidden)]
    fn output_schema() -> Option<DerivedSchema> {
        None
    }
}

fn result_of_blocks(content: Vec<Content>) -> CallToolResult {
    CallToolResult { content, structured_content: None, is_error: Some(false), meta: None }
}

impl IntoToolOutput for CallToolResult {
    fn into_output(self) -> Result<CallToolResult> {
        Ok(self)
    }
}

impl<T: IntoToolOutput> IntoToolOutput for Result<T, Error> {
    fn into_output(self) -> Result<CallToolResult> {
        self?.into_output()
    }

    fn output_schema() -> Option<DerivedSchema> {
        T::output_schema()
    }
}

impl<T: IntoToolOutput> IntoToolOutput for Option<T> {
    fn into_output(self) -> Result<CallToolResult> {
        self.map_or_else(|| Ok(result_of_blocks(Vec::new())), T::into_output)
    }
}

impl IntoToolOutput for () {
    fn into_output(self) -> Result<CallToolResult> {
        Ok(result_of_blocks(Vec::new()))
    }
}

impl IntoToolOutput for u8 {
    fn into_output(self) -> Result<CallToolResult> {
        self.to_string().into_output()
    }
}

impl IntoToolOutput for Vec<u8> {
    fn into_output(self) -> Result<CallToolResult> {
        Ok(result_of_blocks(vec![blob(&self)]))
    }
}

impl<T: IntoContent> IntoToolOutput for Vec<T> {
    fn into_output(self) -> Result<CallToolResult> {
        Ok(result_of_blocks(self.into_iter().map(T::into_content).collect()))
    }
}

/// A JSON array of content blocks becomes a list of blocks.
impl IntoToolOutput for Value {
    fn into_output(self) -> Result<CallToolResult> {
        match self {
            Value::Array(items) if items.iter().all(is_block) && !items.is_empty() => items.into_output(),
            other => Ok(result_of_blocks(vec![other.into_content()])),
        }
    }
}

fn is_block(value: &Value) -> bool {
    value.get("type").is_some_and(Value::is_string)
}

impl<T: Serialize + JsonSchema> IntoToolOutput for Json<T> {
    fn into_output(self) -> Result<CallToolResult> {
        let json = self.raw()?;
        let mut result = result_of_blocks(vec![Content::text(json.get())]);
        result.structured_content = Some(StructuredContent::from(json));
        Ok(result)
    }

    fn output_schema() -> Option<DerivedSchema> {
        Some(derived_schema::output_schema::<T>())
    }
}

/// Custom content instead of the JSON text.
impl<C: IntoContent, T: Serialize + JsonSchema> IntoToolOutput for (C, Json<T>) {
    fn into_output(self) -> Result<CallToolResult> {
        let mut result = result_of_blocks(vec![self.0.into_content()]);
        result.structured_content = Some(StructuredContent::from(self.1.raw()?));
        Ok(result)
    }

    fn output_schema() -> Option<DerivedSchema> {
        Some(derived_schema::output_schema::<T>())
    }
}

macro_rules! as_one_block {
    ($($type:ty),*) => {$(
        impl IntoToolOutput for $type {
            fn into_output(self) -> Result<CallToolResult> {
                Ok(result_of_blocks(vec![self.into_content()]))
            }
        }
    )*};
}

as_one_block!(
    String,
    &'static str,
    Content,
    Image,
    Audio,
    ResourceLink,
    ResourceContents,
    bool,
    char,
    i8,
    i16,
    i32,
    i64,
    i128,
    isize,
    u16,
    u32,
    u64,
    u128,
    usize,
    f32,
    f64
);
