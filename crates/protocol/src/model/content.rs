//! Content blocks of tool results, prompts and sampling messages.

mod decode;

use base64::Engine;
use serde_json::{Map, Value};

use super::{Meta, Resource, ResourceContents, StructuredContent};
use crate::encode::{Encode, Encoder, model, words};
use crate::version::Feature;

words! {
    /// User or model (`assistant`), as the sender of a message or as the audience of content.
    pub enum Role {
        /// The user, as opposed to the model.
        User = "user",
        /// The assistant: the model.
        Assistant = "assistant",
    }
}

model! {
    /// Annotations of content: intended audience, priority and time of the last change.
    #[derive(Default)]
    pub struct Annotations {
        /// Intended audience.
        audience: Option<Vec<Role>> = "audience",
        /// Priority from 0 (optional) to 1 (required).
        priority: Option<f64> = "priority",
        /// Time of the last change of the content, as ISO 8601.
        last_modified: Option<String> = "lastModified" since LastModified,
    }

    /// Content block with text.
    #[derive(Default)]
    pub struct TextContent {
        /// Text of the block.
        text: String = "text",
        /// Audience, priority and time of the last change.
        annotations: Option<Box<Annotations>> = "annotations",
        /// Metadata of the content block (`_meta`).
        meta: Option<Box<Meta>> = "_meta" since ItemMeta,
    }

    /// Content block with an image.
    pub struct ImageContent {
        /// Image data in Base64.
        data: String = "data",
        /// MIME type.
        mime_type: String = "mimeType",
        /// Audience, priority and time of the last change.
        annotations: Option<Box<Annotations>> = "annotations",
        /// Metadata of the content block (`_meta`).
        meta: Option<Box<Meta>> = "_meta" since ItemMeta,
    }

    /// Content block with audio data.
    pub struct AudioContent {
        /// Audio data in Base64.
        data: String = "data",
        /// MIME type.
        mime_type: String = "mimeType",
        /// Audience, priority and time of the last change.
        annotations: Option<Box<Annotations>> = "annotations",
        /// Metadata of the content block (`_meta`).
        meta: Option<Box<Meta>> = "_meta" since ItemMeta,
    }

    /// Content block that contains a resource.
    pub struct EmbeddedResource {
        /// Content of the resource.
        resource: ResourceContents = "resource",
        /// Audience, priority and time of the last change.
        annotations: Option<Box<Annotations>> = "annotations",
        /// Metadata of the content block (`_meta`).
        meta: Option<Box<Meta>> = "_meta" since ItemMeta,
    }

    /// Content block in which a model calls a tool during sampling.
    pub struct ToolUseContent {
        /// Id of the tool use.
        id: String = "id",
        /// Name of the tool.
        name: String = "name",
        /// Arguments of the tool.
        input: Map<String, Value> = "input",
        /// Metadata of the content block (`_meta`).
        meta: Option<Box<Meta>> = "_meta",
    }

    /// Content block with the result of a tool that a model called during sampling.
    pub struct ToolResultContent {
        /// Id of the tool use.
        tool_use_id: String = "toolUseId",
        /// Content for the model.
        content: Vec<Content> = "content",
        /// Structured result.
        structured_content: Option<StructuredContent> = "structuredContent",
        /// Whether the tool call failed.
        is_error: Option<bool> = "isError",
        /// Metadata of the content block (`_meta`).
        meta: Option<Box<Meta>> = "_meta",
    }
}

/// Content block that links to a resource: the description of the resource.
pub type ResourceLink = Resource;

/// Content block of a tool result or a prompt message.
///
/// Fallback forms, in revisions without the block type: audio becomes an embedded resource, and a resource link becomes
/// a line of text.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// Text block.
    Text(TextContent),
    /// Image.
    Image(ImageContent),
    /// Audio.
    Audio(AudioContent),
    /// Link to a resource.
    ResourceLink(Box<ResourceLink>),
    /// Embedded resource.
    Resource(Box<EmbeddedResource>),
    /// Request of a model to call a tool (sampling only).
    ToolUse(Box<ToolUseContent>),
    /// Result of a tool use (sampling only).
    ToolResult(Box<ToolResultContent>),
}

impl Content {
    /// Creates a text block.
    pub fn text(text: impl Into<String>) -> Self {
        Content::Text(TextContent { text: text.into(), annotations: None, meta: None })
    }

    /// Creates an image block. The bytes are encoded in Base64.
    pub fn image(bytes: impl AsRef<[u8]>, mime_type: impl Into<String>) -> Self {
        let (data, mime_type) = (base64(bytes), mime_type.into());
        Content::Image(ImageContent { data, mime_type, annotations: None, meta: None })
    }

    /// Creates an audio block. The bytes are encoded in Base64.
    pub fn audio(bytes: impl AsRef<[u8]>, mime_type: impl Into<String>) -> Self {
        let (data, mime_type) = (base64(bytes), mime_type.into());
        Content::Audio(AudioContent { data, mime_type, annotations: None, meta: None })
    }

    /// Creates a block with an embedded resource.
    pub fn resource(resource: ResourceContents) -> Self {
        Content::Resource(Box::new(EmbeddedResource { resource, annotations: None, meta: None }))
    }

    /// Returns the text of a text block.
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
