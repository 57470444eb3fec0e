//! Content blocks: what tools return, prompts hold and models say.

use base64::Engine;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Icon, Meta, Resource, ResourceContents, StructuredContent};
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
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Wide")]
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

/// All members that any block has: one pass, then the type decides. No guessing from shapes.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "a content block")]
struct Wide {
    r#type: String,
    text: Option<String>,
    data: Option<String>,
    mime_type: Option<String>,
    uri: Option<String>,
    name: Option<String>,
    title: Option<String>,
    description: Option<String>,
    size: Option<u64>,
    icons: Option<Vec<Icon>>,
    resource: Option<ResourceContents>,
    id: Option<String>,
    input: Option<Map<String, Value>>,
    tool_use_id: Option<String>,
    content: Option<Vec<Content>>,
    structured_content: Option<StructuredContent>,
    is_error: Option<bool>,
    annotations: Option<Box<Annotations>>,
    #[serde(rename = "_meta")]
    meta: Option<Box<Meta>>,
}

impl TryFrom<Wide> for Content {
    type Error = String;

    fn try_from(wide: Wide) -> Result<Self, String> {
        let Wide { annotations, meta, .. } = wide;
        let kind = &*wide.r#type;
        let need = |member: &str| format!("a content block of type {kind} needs \"{member}\"");
        Ok(match kind {
            "text" => {
                Content::Text(TextContent { text: wide.text.ok_or_else(|| need("text"))?, annotations, meta })
            }
            "image" | "audio" => {
                let data = wide.data.ok_or_else(|| need("data"))?;
                let mime_type = wide.mime_type.ok_or_else(|| need("mimeType"))?;
                if kind == "image" {
                    Content::Image(ImageContent { data, mime_type, annotations, meta })
                } else {
                    Content::Audio(AudioContent { data, mime_type, annotations, meta })
                }
            }
            "resource_link" => Content::ResourceLink(Box::new(Resource {
                uri: wide.uri.ok_or_else(|| need("uri"))?,
                name: wide.name.ok_or_else(|| need("name"))?,
                title: wide.title,
                description: wide.description,
                mime_type: wide.mime_type,
                annotations: annotations.map(|annotations| *annotations),
                size: wide.size,
                icons: wide.icons,
                meta: meta.map(|meta| *meta),
            })),
            "resource" => {
                let resource = wide.resource.ok_or_else(|| need("resource"))?;
                Content::Resource(Box::new(EmbeddedResource { resource, annotations, meta }))
            }
            "tool_use" => Content::ToolUse(Box::new(ToolUseContent {
                id: wide.id.ok_or_else(|| need("id"))?,
                name: wide.name.ok_or_else(|| need("name"))?,
                input: wide.input.ok_or_else(|| need("input"))?,
                meta,
            })),
            "tool_result" => Content::ToolResult(Box::new(ToolResultContent {
                tool_use_id: wide.tool_use_id.ok_or_else(|| need("toolUseId"))?,
                content: wide.content.ok_or_else(|| need("content"))?,
                structured_content: wide.structured_content,
                is_error: wide.is_error,
                meta,
            })),
            other => return Err(format!("there is no content block of type {other}")),
        })
    }
}
