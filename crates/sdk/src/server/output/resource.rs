//! What a resource may return.

use linchpin_protocol::model::ResourceContents;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::json::Json;
use crate::{Error, Result};

/// A value that a resource may return.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be returned from a resource",
    label = "this resource returns `{Self}`",
    note = "return String, &'static str, Vec<u8>, Json<T>, serde_json::Value, ResourceContents, a Vec of these \
            contents, or Result<_, linchpin::Error>"
)]
pub trait IntoResource {
    /// What is at `uri`; `mime_type` is what was registered.
    fn into_contents(self, uri: &str, mime_type: Option<&str>) -> Result<Vec<ResourceContents>>;
}

impl<T: IntoResource> IntoResource for Result<T, Error> {
    fn into_contents(self, uri: &str, mime_type: Option<&str>) -> Result<Vec<ResourceContents>> {
        self?.into_contents(uri, mime_type)
    }
}

/// `None`: there is no such resource.
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
