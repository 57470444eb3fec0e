//! Resources that a server offers.

use base64::Engine;
use serde_json::{Map, Value};

use super::results::results;
use super::{Annotations, CacheScope, Icon, Meta};
use crate::encode::model;

model! {
    /// A resource that can be read.
    #[derive(Default)]
    pub struct Resource {
        /// Where it is.
        uri: String = "uri",
        /// The name for programs.
        name: String = "name",
        /// The name for people.
        title: Option<String> = "title" since Titles,
        /// What it is.
        description: Option<String> = "description",
        /// Its type.
        mime_type: Option<String> = "mimeType",
        /// For whom, and how important.
        annotations: Option<Annotations> = "annotations",
        /// Its size in bytes.
        size: Option<u64> = "size",
        /// Pictures.
        icons: Option<Vec<Icon>> = "icons" since Icons,
        /// Metadata.
        meta: Option<Meta> = "_meta" since ItemMeta,
    }

    /// A pattern of resources that can be read.
    #[derive(Default)]
    pub struct ResourceTemplate {
        /// The pattern, as in RFC 6570.
        uri_template: String = "uriTemplate",
        /// The name for programs.
        name: String = "name",
        /// The name for people.
        title: Option<String> = "title" since Titles,
        /// What it is.
        description: Option<String> = "description",
        /// The type of all resources of this pattern.
        mime_type: Option<String> = "mimeType",
        /// For whom, and how important.
        annotations: Option<Annotations> = "annotations",
        /// Pictures.
        icons: Option<Vec<Icon>> = "icons" since Icons,
        /// Metadata.
        meta: Option<Meta> = "_meta" since ItemMeta,
    }

    /// Which resource.
    pub struct ReadResourceParams {
        /// Where it is.
        uri: String = "uri",
        /// Answers to questions that an earlier result asked.
        input_responses: Option<Map<String, Value>> = "inputResponses" since Stateless,
        /// What that result wanted back.
        request_state: Option<String> = "requestState" since Stateless,
        /// Metadata.
        meta: Option<Meta> = "_meta",
    }

    /// A resource, or a part of one: either text or blob is set.
    #[derive(Default)]
    pub struct ResourceContents {
        /// Where it is.
        uri: String = "uri",
        /// Its type.
        mime_type: Option<String> = "mimeType",
        /// What it says.
        text: Option<String> = "text",
        /// Its bytes in Base64.
        blob: Option<String> = "blob",
        /// Metadata.
        meta: Option<Meta> = "_meta" since ItemMeta,
    }

    /// A resource that has changed.
    pub struct ResourceUpdatedParams {
        /// Where it is.
        uri: String = "uri",
        /// Metadata.
        meta: Option<Meta> = "_meta",
    }
}

results! {
    /// What was read.
    pub struct ReadResourceResult {
        /// The resource, or its parts.
        contents: Vec<ResourceContents> = "contents",
        /// Milliseconds for which this counts as fresh.
        ttl_ms: Option<u64> = "ttlMs" since CacheHints,
        /// Who may keep it.
        cache_scope: Option<CacheScope> = "cacheScope" since CacheHints,
    }

    /// One page of resources.
    pub struct ListResourcesResult {
        /// The resources.
        resources: Vec<Resource> = "resources",
        /// Where the next page begins.
        next_cursor: Option<String> = "nextCursor",
        /// Milliseconds for which this counts as fresh.
        ttl_ms: Option<u64> = "ttlMs" since CacheHints,
        /// Who may keep it.
        cache_scope: Option<CacheScope> = "cacheScope" since CacheHints,
    }

    /// One page of resource templates.
    pub struct ListResourceTemplatesResult {
        /// The templates.
        resource_templates: Vec<ResourceTemplate> = "resourceTemplates",
        /// Where the next page begins.
        next_cursor: Option<String> = "nextCursor",
        /// Milliseconds for which this counts as fresh.
        ttl_ms: Option<u64> = "ttlMs" since CacheHints,
        /// Who may keep it.
        cache_scope: Option<CacheScope> = "cacheScope" since CacheHints,
    }
}

impl ResourceContents {
    /// Text at a URI.
    pub fn text(uri: impl Into<String>, mime_type: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            uri: uri.into(),
            mime_type: Some(mime_type.into()),
            text: Some(text.into()),
            ..Self::default()
        }
    }

    /// Bytes at a URI.
    pub fn blob(uri: impl Into<String>, mime_type: impl Into<String>, bytes: impl AsRef<[u8]>) -> Self {
        Self {
            uri: uri.into(),
            mime_type: Some(mime_type.into()),
            blob: Some(base64::engine::general_purpose::STANDARD.encode(bytes)),
            ..Self::default()
        }
    }
}
