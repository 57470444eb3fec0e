//! Parsed and validated REST request, as a handler receives it.

use std::sync::Arc;

use axum::body::Bytes;
use http::{HeaderMap, Method};
use linchpin_hub_core::Actor;
use linchpin_hub_core::hub::sessions::RequestClient;
use linchpin_hub_core::hub::{CallArguments, Hub};
use linchpin_hub_core::object_reader::ObjectReader;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::sync::Notify;

use crate::app::AppState;
use crate::authentication::Caller;
use crate::problem::{Problem, Result};
use crate::query::Query;

/// REST request with its caller, parameters and body.
pub(crate) struct ApiRequest {
    pub(crate) app: Arc<AppState>,
    pub(crate) caller: Option<Caller>,
    /// Address of the client, and the host that the request names.
    pub(crate) remote: RequestClient,
    /// Name of the session cookie.
    pub(crate) cookie: String,
    /// Parameters in the path, by name.
    pub(crate) path: Vec<(String, String)>,
    pub(crate) query: Query,
    /// Query string as it was sent.
    pub(crate) raw_query: String,
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    /// JSON body; an empty object if the request has none.
    pub(crate) body: Value,
    /// Body as it was received.
    pub(crate) received_body: Bytes,
    /// Signal that the handler no longer needs the body, so that its memory can be released.
    pub(crate) body_released: Arc<Notify>,
}

/// Request body of which only the member `arguments` is read, as its exact JSON text.
#[derive(Deserialize)]
struct BodyWithArguments<'a> {
    #[serde(borrow)]
    arguments: &'a RawValue,
}

impl ApiRequest {
    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.app.hub
    }

    /// Returns the authenticated caller; a 401 problem if there is none.
    pub(crate) fn caller(&self) -> Result<&Caller> {
        self.caller.as_ref().ok_or_else(Problem::unauthenticated)
    }

    /// Returns tenant and subject of the caller.
    pub(crate) fn actor(&self) -> Result<Actor> {
        Ok(self.caller()?.actor)
    }

    /// Returns a path parameter; empty if the route does not have it.
    pub(crate) fn path(&self, name: &str) -> &str {
        self.path.iter().find(|(parameter, _)| parameter == name).map_or("", |(_, value)| value)
    }

    /// Takes the request body, from JSON or an HTML form, as an object whose members can be read one by one.
    pub(crate) fn form_body(&mut self) -> Result<ObjectReader> {
        Ok(ObjectReader::new(self.body.take())?)
    }

    /// Takes the arguments of a tool from the request body, as they were received; an empty object if they are missing.
    pub(crate) fn take_arguments(&mut self, form: &mut ObjectReader) -> CallArguments {
        let Some(value) = form.value("arguments") else { return Value::from(Map::new()).into() };
        let body = std::mem::take(&mut self.received_body);
        match serde_json::from_slice::<BodyWithArguments<'_>>(&body) {
            Ok(received) => CallArguments::from_received(received.arguments, value),
            Err(_) => value.into(), // not a JSON body
        }
    }
}
