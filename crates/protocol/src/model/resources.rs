//! Resources and resource templates that a server offers: definitions, parameters and results.

use base64::Engine;
use serde_json::{Map, Value};

use super::results::results;
use super::{Annotations, CacheScope, Icon, Meta};
use crate::encode::model;

model! {
    /// Resource of a server, as listed.
    #[derive(Default)]
    pub struct Resource {
        /// URI of the resource.
        uri: String = "uri",
        /// Programmatic name.
        name: String = "name",
        /// Display name.
        title: Option<String> = "title" since Titles,
        /// Description of the resource.
        description: Option<String> = "description",
        /// MIME type.
        mime_type: Option<String> = "mimeType",
        /// Audience, priority and time of the last change.
        annotations: Option<Annotations> = "annotations",
        /// Size of the resource in bytes.
        size: Option<u64> = "size",
        /// Icons to display.
        icons: Option<Vec<Icon>> = "icons" since Icons,
        /// Metadata of the resource (`_meta`).
        meta: Option<Meta> = "_meta" since ItemMeta,
    }

    /// Resource template of a server, as listed: a URI with variables.
    #[derive(Default)]
    pub struct ResourceTemplate {
        /// URI template of the resources (RFC 6570).
        uri_template: String = "uriTemplate",
        /// Programmatic name.
        name: String = "name",
        /// Display name.
        title: Option<String> = "title" since Titles,
        /// Description of the resources.
        description: Option<String> = "description",
        /// MIME type, if all resources of the template have the same one.
        mime_type: Option<String> = "mimeType",
        /// Audience, priority and time of the last change.
        annotations: Option<Annotations> = "annotations",
        /// Icons to display.
        icons: Option<Vec<Icon>> = "icons" since Icons,
        /// Metadata of the template (`_meta`).
        meta: Option<Meta> = "_meta" since ItemMeta,
    }

    /// Parameters of `resources/read`.
    pub struct ReadResourceParams {
        /// URI of the resource to read.
        uri: String = "uri",
        /// Responses to the input requests of an earlier `input_required` result.
        input_responses: Option<Map<String, Value>> = "inputResponses" since Stateless,
        /// Request state of the earlier `input_required` result, sent back unchanged.
        request_state: Option<String> = "requestState" since Stateless,
        /// Metadata of the request (`_meta`).
        meta: Option<Meta> = "_meta",
    }

    /// Content of a resource or of a part of one: either text or blob.
    #[derive(Default)]
    pub struct ResourceContents {
        /// URI of the resource.
        uri: String = "uri",
        /// MIME type.
        mime_type: Option<String> = "mimeType",
        /// Content of the resource, if it is text.
        text: Option<String> = "text",
        /// Binary content in Base64.
        blob: Option<String> = "blob",
        /// Metadata of the contents (`_meta`).
        meta: Option<Meta> = "_meta" since ItemMeta,
    }

    /// Parameters of `notifications/resources/updated`.
    pub struct ResourceUpdatedParams {
        /// URI of the resource that has changed.
        uri: String = "uri",
        /// Metadata of the notification (`_meta`).
        meta: Option<Meta> = "_meta",
    }
}

results! {
    /// Result of `resources/read`.
    pub struct ReadResourceResult {
        /// Contents of the resource.
        contents: Vec<ResourceContents> = "contents",
        /// Time for which the result is fresh, in milliseconds.
        ttl_ms: Option<u64> = "ttlMs" since CacheHints,
        /// Who may cache the result.
        cache_scope: Option<CacheScope> = "cacheScope" since CacheHints,
    }

    /// Result of `resources/list`: one page of resources.
    pub struct ListResourcesResult {
        /// Resources of the page.
        resources: Vec<Resource> = "resources",
        /// Cursor of the next page. Absent on the last page.
        next_cursor: Option<String> = "nextCursor",
        /// Time for which the result is fresh, in milliseconds.
        ttl_ms: Option<u64> = "ttlMs" since CacheHints,
        /// Who may cache the result.
        cache_scope: Option<CacheScope> = "cacheScope" since CacheHints,
    }

    /// Result of `resources/templates/list`: one page of resource templates.
    pub struct ListResourceTemplatesResult {
        /// Resource templates of the page.
        resource_templates: Vec<ResourceTemplate> = "resourceTemplates",
        /// Cursor of the next page. Absent on the last page.
        next_cursor: Option<String> = "nextCursor",
        /// Time for which the result is fresh, in milliseconds.
        ttl_ms: Option<u64> = "ttlMs" since CacheHints,
        /// Who may cache the result.
        cache_scope: Option<CacheScope> = "cacheScope" since CacheHints,
    }
}

impl ResourceContents {
    /// Creates text content.
    pub fn text(uri: impl Into<String>, mime_type: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            uri: uri.into(),
            mime_type: Some(mime_type.into()),
            text: Some(text.into()),
            ..Self::default()
        }
    }

    /// Creates binary content. The bytes are encoded in Base64.
    pub fn blob(uri: impl Into<String>, mime_type: impl Into<String>, bytes: impl AsRef<[u8]>) -> Self {
        Self {
            uri: uri.into(),
            mime_type: Some(mime_type.into()),
            blob: Some(base64::engine::general_purpose::STANDARD.encode(bytes)),
            ..Self::default()
        }
    }
}
