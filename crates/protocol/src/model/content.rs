//! Content blocks: what tools return, prompts hold and models say.

mod decode;

use base64::Engine;
use serde_json::{Map, Value};

use super::{Meta, Resource, ResourceContents, StructuredContent};
use crate::encode::{Encode, Encoder, model, words};
use crate::version::Feature;

words! {
    /// Who speaks, or for whom something is.
    pub enum Role {
        /// The person.
        User = "user",
        /// The model.
        Assistant = "assistant",
    }
}

model! {
    /// For whom something is, and how important.
    #[derive(Default)]
    pub struct Annotations {
        /// For whom.
        audience: Option<Vec<Role>> = "audience",
        /// From 0 (optional) to 1 (required).
        priority: Option<f64> = "priority",
        /// When it changed last, as ISO 8601.
        last_modified: Option<String> = "lastModified" since LastModified,
    }

    /// Text.
    #[derive(Default)]
    pub struct TextContent {
        /// The text.
        text: String = "text",
        /// For whom.
        annotations: Option<Box<Annotations>> = "annotations",
        /// Metadata.
        meta: Option<Box<Meta>> = "_meta" since ItemMeta,
    }

    /// A picture.
    pub struct ImageContent {
        /// Its bytes in Base64.
        data: String = "data",
        /// Its type.
        mime_type: String = "mimeType",
        /// For whom.
        annotations: Option<Box<Annotations>> = "annotations",
        /// Metadata.
        meta: Option<Box<Meta>> = "_meta" since ItemMeta,
    }

    /// Sound.
    pub struct AudioContent {
        /// Its bytes in Base64.
        data: String = "data",
        /// Its type.
        mime_type: String = "mimeType",
        /// For whom.
        annotations: Option<Box<Annotations>> = "annotations",
        /// Metadata.
        meta: Option<Box<Meta>> = "_meta" since ItemMeta,
    }

    /// A resource inside the content.
    pub struct EmbeddedResource {
        /// The resource.
        resource: ResourceContents = "resource",
        /// For whom.
        annotations: Option<Box<Annotations>> = "annotations",
        /// Metadata.
        meta: Option<Box<Meta>> = "_meta" since ItemMeta,
    }

    /// The wish of a model to call a tool.
    pub struct ToolUseContent {
        /// The name of this wish.
        id: String = "id",
        /// The tool.
        name: String = "name",
        /// Its arguments.
        input: Map<String, Value> = "input",
        /// Metadata.
        meta: Option<Box<Meta>> = "_meta",
    }

    /// What came of such a wish.
    pub struct ToolResultContent {
        /// The wish it answers.
        tool_use_id: String = "toolUseId",
        /// For the model.
        content: Vec<Content> = "content",
        /// For programs.
        structured_content: Option<StructuredContent> = "structuredContent",
        /// Whether it failed.
        is_error: Option<bool> = "isError",
        /// Metadata.
        meta: Option<Box<Meta>> = "_meta",
    }
}

/// A link to a resource: the resource's own description.
pub type ResourceLink = Resource;

/// One block of content.
///
/// Fallback forms: audio becomes an embedded resource, and a resource link becomes a line of text, in revisions
/// without them.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// Text.
    Text(TextContent),
    /// A picture.
    Image(ImageContent),
    /// Sound.
    Audio(AudioContent),
    /// A link to a resource.
    ResourceLink(Box<ResourceLink>),
    /// A resource itself.
    Resource(Box<EmbeddedResource>),
    /// A model wants to call a tool (sampling only).
    ToolUse(Box<ToolUseContent>),
    /// What came of it (sampling only).
    ToolResult(Box<ToolResultContent>),
}

impl Content {
    /// Text.
    pub fn text(text: impl Into<String>) -> Self {
        Content::Text(TextContent { text: text.into(), annotations: None, meta: None })
    }

    /// A picture.
    pub fn image(bytes: impl AsRef<[u8]>, mime_type: impl Into<String>) -> Self {
        let (data, mime_type) = (base64(bytes), mime_type.into());
        Content::Image(ImageContent { data, mime_type, annotations: None, meta: None })
    }

    /// Sound.
    pub fn audio(bytes: impl AsRef<[u8]>, mime_type: impl Into<String>) -> Self {
        let (data, mime_type) = (base64(bytes), mime_type.into());
        Content::Audio(AudioContent { data, mime_type, annotations: None, meta: None })
    }

    /// A resource itself.
    pub fn resource(resource: ResourceContents) -> Self {
        Content::Resource(Box::new(EmbeddedResource { resource, annotations: None, meta: None }))
    }

    /// The text, if it is text.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Content::Text(content) => Some(&content.text),
            _ => None,
        }
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Content::text(text)
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Content::text(text)
    }
}

fn base64(bytes: impl AsRef<[u8]>) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

impl Encode for Content {
    fn encode(&self, to: &mut Encoder<'_>) {
        match self {
            Content::Audio(audio) if !to.revision.has(Feature::Audio) => {
                let resource = ResourceContents {
                    uri: "attachment:audio".into(),
                    mime_type: Some(audio.mime_type.clone()),
                    blob: Some(audio.data.clone()),
                    ..ResourceContents::default()
                };
                let annotations = audio.annotations.clone();
                let embedded = EmbeddedResource { resource, annotations, meta: None };
                return Content::Resource(Box::new(embedded)).encode(to);
            }
            Content::ResourceLink(link) if !to.revision.has(Feature::ResourceLinks) => {
                let text = format!("{}: {}", link.name, link.uri);
                let annotations = link.annotations.clone().map(Box::new);
                return Content::Text(TextContent { text, annotations, meta: None }).encode(to);
            }
            _ => {}
        }
        to.object(|fields| match self {
            Content::Text(content) => {
                fields.field("type", "text");
                content.encode_fields(fields);
            }
            Content::Image(content) => {
                fields.field("type", "image");
                content.encode_fields(fields);
            }
            Content::Audio(content) => {
                fields.field("type", "audio");
                content.encode_fields(fields);
            }
            Content::ResourceLink(content) => {
                fields.field("type", "resource_link");
                content.encode_fields(fields);
            }
            Content::Resource(content) => {
                fields.field("type", "resource");
                content.encode_fields(fields);
            }
            Content::ToolUse(content) => {
                fields.field("type", "tool_use");
                content.encode_fields(fields);
            }
            Content::ToolResult(content) => {
                fields.field("type", "tool_result");
                content.encode_fields(fields);
            }
        });
    }
}
