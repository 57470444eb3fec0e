//! Decoding of content blocks from JSON. Most blocks are text with `type` as the first member: a fast path decodes them
//! without space for the members of other blocks.

use std::fmt;

use serde::Deserialize;
use serde::de::DeserializeSeed;
use serde::de::value::{MapAccessDeserializer, StringDeserializer};
use serde::de::{Deserializer, Error, IgnoredAny, IntoDeserializer, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::{
    Annotations, AudioContent, Content, EmbeddedResource, ImageContent, TextContent, ToolResultContent,
    ToolUseContent,
};
use crate::model::{Icon, Meta, Resource, ResourceContents, StructuredContent};

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a content block")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Content, A::Error> {
        let first: Option<ContentMember> = map.next_key()?;
        let kind = match &first {
            Some(ContentMember::Type) => Some(map.next_value::<ContentKind>()?),
            _ => None,
        };
        match (kind, first) {
            (Some(ContentKind::Text), _) => decode_text(map),
            (kind, first) => {
                let rest = RemainingMembers { key: first, kind, map };
                let raw = RawContent::deserialize(MapAccessDeserializer::new(rest))?;
                Content::try_from(raw).map_err(A::Error::custom)
            }
        }
    }
}

/// Decodes the members of a text block after its type.
fn decode_text<'de, A: MapAccess<'de>>(mut map: A) -> Result<Content, A::Error> {
    let (mut text, mut annotations, mut meta) = (None, None, None);
    while let Some(member) = map.next_key::<ContentMember>()? {
        match member {
            ContentMember::Text => text = map.next_value()?,
            ContentMember::Annotations => annotations = map.next_value()?,
            ContentMember::Meta => meta = map.next_value()?,
            ContentMember::Type | ContentMember::Other(_) => drop(map.next_value::<IgnoredAny>()?),
        }
    }
    let text = text.ok_or_else(|| A::Error::custom("a content block of type text needs \"text\""))?;
    Ok(Content::Text(TextContent { text, annotations, meta }))
}

/// Member name of a content block: one of those that a text block has, or any other.
enum ContentMember {
    Type,
    Text,
    Annotations,
    Meta,
    Other(String),
}

impl ContentMember {
    fn into_name(self) -> String {
        match self {
            ContentMember::Type => "type".into(),
            ContentMember::Text => "text".into(),
            ContentMember::Annotations => "annotations".into(),
            ContentMember::Meta => "_meta".into(),
            ContentMember::Other(name) => name,
        }
    }
}

/// Type of a content block: text, which has a fast path, or the name of any other type.
enum ContentKind {
    Text,
    Other(String),
}

macro_rules! from_text {
    ($( $name:ident: |$text:ident| $value:expr; )*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;

                impl Visitor<'_> for Text {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("a string")
                    }

                    fn visit_str<E: Error>(self, $text: &str) -> Result<$name, E> {
                        Ok($value)
                    }
                }

                deserializer.deserialize_str(Text)
            }
        }
    )*};
}

from_text! {
    ContentMember: |text| match text {
        "type" => ContentMember::Type,
        "text" => ContentMember::Text,
        "annotations" => ContentMember::Annotations,
        "_meta" => ContentMember::Meta,
        other => ContentMember::Other(other.to_owned()),
    };
    ContentKind: |text| if text == "text" { ContentKind::Text } else { ContentKind::Other(text.to_owned()) };
}

/// Rest of a content block after its first key (and, if that is `type`, its value) was read.
struct RemainingMembers<A> {
    key: Option<ContentMember>,
    kind: Option<ContentKind>,
    map: A,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for RemainingMembers<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        match self.key.take() {
            Some(key) => {
                let name: StringDeserializer<A::Error> = key.into_name().into_deserializer();
                seed.deserialize(name).map(Some)
            }
            None => self.map.next_key_seed(seed),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        match self.kind.take() {
            Some(ContentKind::Other(kind)) => {
                let kind: StringDeserializer<A::Error> = kind.into_deserializer();
                seed.deserialize(kind)
            }
            _ => self.map.next_value_seed(seed),
        }
    }
}

/// Members of content blocks of all types, before the type is applied. Decoded in one pass; only `type` determines the
/// kind of block.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "a content block")]
struct RawContent {
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

impl TryFrom<RawContent> for Content {
    type Error = String;

    fn try_from(raw: RawContent) -> Result<Self, String> {
        let RawContent { annotations, meta, .. } = raw;
        let kind = &*raw.r#type;
        let missing_member = |member: &str| format!("a content block of type {kind} needs \"{member}\"");
        Ok(match kind {
            "text" => Content::Text(TextContent {
                text: raw.text.ok_or_else(|| missing_member("text"))?,
                annotations,
                meta,
            }),
            "image" | "audio" => {
                let data = raw.data.ok_or_else(|| missing_member("data"))?;
                let mime_type = raw.mime_type.ok_or_else(|| missing_member("mimeType"))?;
                if kind == "image" {
                    Content::Image(ImageContent { data, mime_type, annotations, meta })
                } else {
                    Content::Audio(AudioContent { data, mime_type, annotations, meta })
                }
            }
            "resource_link" => Content::ResourceLink(Box::new(Resource {
                uri: raw.uri.ok_or_else(|| missing_member("uri"))?,
                name: raw.name.ok_or_else(|| missing_member("name"))?,
                title: raw.title,
                description: raw.description,
                mime_type: raw.mime_type,
                annotations: annotations.map(|annotations| *annotations),
                size: raw.size,
                icons: raw.icons,
                meta: meta.map(|meta| *meta),
            })),
            "resource" => {
                let resource = raw.resource.ok_or_else(|| missing_member("resource"))?;
                Content::Resource(Box::new(EmbeddedResource { resource, annotations, meta }))
            }
            "tool_use" => Content::ToolUse(Box::new(ToolUseContent {
                id: raw.id.ok_or_else(|| missing_member("id"))?,
                name: raw.name.ok_or_else(|| missing_member("name"))?,
                input: raw.input.ok_or_else(|| missing_member("input"))?,
                meta,
            })),
            "tool_result" => Content::ToolResult(Box::new(ToolResultContent {
                tool_use_id: raw.tool_use_id.ok_or_else(|| missing_member("toolUseId"))?,
                content: raw.content.ok_or_else(|| missing_member("content"))?,
                structured_content: raw.structured_content,
                is_error: raw.is_error,
                meta,
            })),
            other => return Err(format!("unknown content block type {other}")),
        })
    }
}
