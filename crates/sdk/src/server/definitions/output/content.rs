//! Conversion of return values of handlers into one content block.

use linchpin_protocol::model::{Content, ResourceContents, ResourceLink};
use serde_json::Value;

/// Image: its bytes and its MIME type.
#[derive(Debug, Clone)]
pub struct Image(pub Vec<u8>, pub String);

/// Audio: its bytes and its MIME type.
#[derive(Debug, Clone)]
pub struct Audio(pub Vec<u8>, pub String);

/// Value that converts into one content block of a tool result or prompt.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a block of content",
    note = "return String, a number, bool, Image, Audio, ResourceLink, ResourceContents, serde_json::Value or Content"
)]
pub trait IntoContent {
    /// Converts the value into a content block.
    fn into_content(self) -> Content;
}

impl IntoContent for Content {
    fn into_content(self) -> Content {
        self
    }
}

impl IntoContent for String {
    fn into_content(self) -> Content {
        Content::text(self)
    }
}

impl IntoContent for &str {
    fn into_content(self) -> Content {
        Content::text(self)
    }
}

impl IntoContent for Image {
    fn into_content(self) -> Content {
        Content::image(self.0, self.1)
    }
}

impl IntoContent for Audio {
    fn into_content(self) -> Content {
        Content::audio(self.0, self.1)
    }
}

impl IntoContent for ResourceLink {
    fn into_content(self) -> Content {
        Content::ResourceLink(Box::new(self))
    }
}

impl IntoContent for ResourceContents {
    fn into_content(self) -> Content {
        Content::resource(self)
    }
}

/// An object with the `type` of a content block becomes that block; any other value becomes its JSON text.
impl IntoContent for Value {
    fn into_content(self) -> Content {
        if self.get("type").is_some_and(Value::is_string)
            && let Ok(content) = serde_json::from_value(self.clone())
        {
            return content;
        }
        Content::text(match self {
            Value::String(text) => text,
            other => other.to_string(),
        })
    }
}

/// Returns an embedded blob resource for bytes that have no URI.
pub(super) fn blob(bytes: &[u8]) -> Content {
    Content::resource(ResourceContents::blob("attachment:result", "application/octet-stream", bytes))
}

/// `u8` is omitted on purpose: a `Vec<u8>` is binary data, not a list of numbers.
macro_rules! as_text {
    ($($type:ty),*) => {$(
        impl IntoContent for $type {
            fn into_content(self) -> Content {
                Content::text(self.to_string())
            }
        }
    )*};
}

as_text!(bool, char, i8, i16, i32, i64, i128, isize, u16, u32, u64, u128, usize, f32, f64);
