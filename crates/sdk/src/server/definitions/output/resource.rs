//! Conversion of return values of resource handlers into resource contents.

use linchpin_protocol::model::{ReadResourceResult, ResourceContents};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::json::Json;
use crate::{Error, Result};

/// Type that a resource handler may return.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be returned from a resource",
    label = "this resource returns `{Self}`",
    note = "return String, &'static str, Vec<u8>, Json<T>, serde_json::Value, ResourceContents, a Vec of these \
            contents, model::ReadResourceResult, or Result<_, linchpin::Error>"
)]
pub trait IntoResource {
    /// Converts the value into the contents of `uri`; `mime_type` is the registered MIME type.
    fn into_contents(self, uri: &str, mime_type: Option<&str>) -> Result<Vec<ResourceContents>>;

    /// Converts the value into the whole result of `resources/read`, including cache hints and metadata.
    #[doc(hidden)]
    fn into_result(self, uri: &str, mime_type: Option<&str>) -> Result<ReadResourceResult>
    where
        Self: Sized,
    {
        let contents = self.into_contents(uri, mime_type)?;
        Ok(ReadResourceResult { contents, ttl_ms: None, cache_scope: None, meta: None })
    }
}

impl<T: IntoResource> IntoResource for Result<T, Error> {
    fn into_contents(self, uri: &str, mime_type: Option<&str>) -> Result<Vec<ResourceContents>> {
        self?.into_contents(uri, mime_type)
    }

    fn into_result(self, uri: &str, mime_type: Option<&str>) -> Result<ReadResourceResult> {
        self?.into_result(uri, mime_type)
    }
}

/// `None` means that the resource does not exist.
impl<T: IntoResource> IntoResource for Option<T> {
    fn into_contents(self, uri: &str, mime_type: Option<&str>) -> Result<Vec<ResourceContents>> {
        self.ok_or_else(|| Error::resource_not_found(uri))?.into_contents(uri, mime_type)
    }
}

impl IntoResource for String {
    fn into_contents(self, uri: &str, mime_type: Option<&str>) -> Result<Vec<ResourceContents>> {
        Ok(vec![ResourceContents::text(uri, mime_type.unwrap_or("text/plain"), self)])
    }
}

impl IntoResource for &'static str {
    fn into_contents(self, uri: &str, mime_type: Option<&str>) -> Result<Vec<ResourceContents>> {
        self.to_owned().into_contents(uri, mime_type)
    }
}

impl IntoResource for Vec<u8> {
    fn into_contents(self, uri: &str, mime_type: Option<&str>) -> Result<Vec<ResourceContents>> {
        Ok(vec![ResourceContents::blob(uri, mime_type.unwrap_or("application/octet-stream"), self)])
    }
}

impl IntoResource for Value {
    fn into_contents(self, uri: &str, mime_type: Option<&str>) -> Result<Vec<ResourceContents>> {
        self.to_string().into_contents(uri, mime_type.or(Some("application/json")))
    }
}

impl<T: Serialize + JsonSchema> IntoResource for Json<T> {
    fn into_contents(self, uri: &str, mime_type: Option<&str>) -> Result<Vec<ResourceContents>> {
        self.raw()?.get().to_owned().into_contents(uri, mime_type.or(Some("application/json")))
    }
}

/// Full control over the result, including cache hints and metadata.
impl IntoResource for ReadResourceResult {
    fn into_contents(self, _: &str, _: Option<&str>) -> Result<Vec<ResourceContents>> {
        Ok(self.contents)
    }

    fn into_result(self, _: &str, _: Option<&str>) -> Result<ReadResourceResult> {
        Ok(self)
    }
}

impl IntoResource for ResourceContents {
    fn into_contents(self, _: &str, _: Option<&str>) -> Result<Vec<ResourceContents>> {
        Ok(vec![self])
    }
}

impl IntoResource for Vec<ResourceContents> {
    fn into_contents(self, _: &str, _: Option<&str>) -> Result<Vec<ResourceContents>> {
        Ok(self)
    }
}
