//! Wrapper with which handlers return structured values.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::Error;

/// Structured value: `structuredContent` with its schema, and the same JSON as text for clients without support for it.
#[derive(Debug, Clone)]
pub struct Json<T>(pub T);

impl<T: Serialize + JsonSchema> Json<T> {
    pub(super) fn raw(&self) -> Result<Box<RawValue>, Error> {
        Ok(serde_json::value::to_raw_value(&self.0)?)
    }
}
