//! Files of a skill of a server: where their contents come from, and their MIME types.

use std::marker::PhantomData;
use std::sync::Arc;

use linchpin_protocol::model::{ReadResourceResult, ResourceContents};

use crate::server::definitions::handler::Handler;
use crate::server::definitions::output::IntoResource;
use crate::server::definitions::resource::{ResourceArgs, ResourceFuture, ResourceHandler};
use crate::server::request::scope::RequestScope;

/// Where the contents of one file of a skill come from.
pub(super) enum SkillFileSource {
    /// Fixed contents of the file.
    Bytes(Vec<u8>),
    /// Contents that a handler generates when the file is read.
    Generated(Arc<dyn ResourceHandler>),
}

/// Resource handler that returns the fixed contents of a file of a skill.
pub(super) struct StaticFile(pub(super) ResourceContents);

impl ResourceHandler for StaticFile {
    fn read(&self, _: &str, _: &RequestScope<'_>) -> ResourceFuture {
        let contents = vec![self.0.clone()];
        let result = ReadResourceResult { contents, ttl_ms: None, cache_scope: None, meta: None };
        Box::pin(std::future::ready(Ok(result)))
    }
}

/// Resource handler of a skill file whose contents another handler generates.
pub(super) struct GeneratedFile<H, Form> {
    pub(super) handler: H,
    pub(super) mime_type: &'static str,
    pub(super) form: PhantomData<fn() -> Form>,
}

impl<H, Form> ResourceHandler for GeneratedFile<H, Form>
where
    H: Handler<Form>,
    H::Args: ResourceArgs,
    H::Output: IntoResource,
{
    fn read(&self, uri: &str, scope: &RequestScope<'_>) -> ResourceFuture {
        let work = self.handler.call(H::Args::from_scope(scope), scope);
        let (uri, mime_type) = (uri.to_owned(), self.mime_type);
        Box::pin(async move { work.await.into_result(&uri, Some(mime_type)) })
    }
}

/// Returns bytes as text if they are UTF-8, else as a blob. The digest covers the same bytes in both cases.
pub(super) fn contents(uri: &str, mime_type: &str, bytes: &[u8]) -> ResourceContents {
    match std::str::from_utf8(bytes) {
        Ok(text) => ResourceContents::text(uri, mime_type, text),
        Err(_) => ResourceContents::blob(uri, mime_type, bytes),
    }
}

/// Returns the MIME type for a file name; `text` decides for unknown extensions.
pub(super) fn mime_type(path: &str, text: bool) -> &'static str {
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension).to_ascii_lowercase();
    match &*extension {
        "md" | "markdown" => "text/markdown",
        "txt" => "text/plain",
        "html" | "htm" => "text/html",
        "css" => "text/css",
        "csv" => "text/csv",
        "js" | "mjs" => "text/javascript",
        "py" => "text/x-python",
        "sh" => "application/x-sh",
        "json" => "application/json",
        "xml" => "application/xml",
        "yaml" | "yml" => "application/yaml",
        "toml" => "application/toml",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "svg" => "image/svg+xml",
        _ if text => "text/plain",
        _ => "application/octet-stream",
    }
}
