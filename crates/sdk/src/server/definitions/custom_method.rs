//! Custom methods and notifications, and handlers that replace built-in ones.

use std::marker::PhantomData;
use std::sync::Arc;

use linchpin_protocol::wire::{InvalidValue, decode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::handler::Handler;
use super::output::Json;
use crate::server::BoxFuture;
use crate::server::request::scope::RequestScope;
use crate::{Error, Result};

/// Type that the handler of a custom method may return, converted to JSON.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the result of a custom method",
    note = "return serde_json::Value, Json<T>, () or Result<_, linchpin::Error>"
)]
pub trait IntoJson {
    #[doc(hidden)]
    fn into_json(self) -> Result<Box<RawValue>>;
}

impl IntoJson for Value {
    fn into_json(self) -> Result<Box<RawValue>> {
        Ok(serde_json::value::to_raw_value(&self)?)
    }
}

impl<T: Serialize> IntoJson for Json<T> {
    fn into_json(self) -> Result<Box<RawValue>> {
        Ok(serde_json::value::to_raw_value(&self.0)?)
    }
}

impl IntoJson for () {
    fn into_json(self) -> Result<Box<RawValue>> {
        Ok(RawValue::from_string("{}".into())?)
    }
}

impl<T: IntoJson> IntoJson for Result<T, Error> {
    fn into_json(self) -> Result<Box<RawValue>> {
        self?.into_json()
    }
}

pub(crate) type RequestHandler = Arc<dyn CustomRequest>;
pub(crate) type NotificationHandler = Arc<dyn CustomNotification>;

pub(crate) trait CustomRequest: Send + Sync {
    fn call(
        &self,
        params: &str,
        scope: &RequestScope<'_>,
    ) -> Result<BoxFuture<Result<Box<RawValue>>>, InvalidValue>;
}

pub(crate) trait CustomNotification: Send + Sync {
    fn call(&self, params: &str, scope: &RequestScope<'_>) -> Result<BoxFuture<()>, InvalidValue>;
}

pub(crate) struct TypedCustomHandler<H, Form>(pub(crate) H, pub(crate) PhantomData<fn() -> Form>);

impl<H, Form> CustomRequest for TypedCustomHandler<H, Form>
where
    H: Handler<Form>,
    H::Args: DeserializeOwned,
    H::Output: IntoJson,
{
    fn call(
        &self,
        params: &str,
        scope: &RequestScope<'_>,
    ) -> Result<BoxFuture<Result<Box<RawValue>>>, InvalidValue> {
        let work = self.0.call(decode(params)?, scope);
        Ok(Box::pin(async move { work.await.into_json() }))
    }
}

impl<H, Form> CustomNotification for TypedCustomHandler<H, Form>
where
    H: Handler<Form, Output = ()>,
    H::Args: DeserializeOwned,
{
    fn call(&self, params: &str, scope: &RequestScope<'_>) -> Result<BoxFuture<()>, InvalidValue> {
        Ok(Box::pin(self.0.call(decode(params)?, scope)))
    }
}
