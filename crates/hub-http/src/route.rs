//! Route definitions: path, access, parameters, body and responses. The router and the `OpenAPI` document are both
//! generated from them, so that they cannot differ.

use std::pin::Pin;
use std::sync::Arc;

use axum::response::Response;
use http::Method;
use linchpin_hub_core::Permission;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::problem::Result;
use crate::query::{PAGING, Parameter};
use crate::request::ApiRequest;

/// Path prefix of the API.
pub(crate) const API: &str = "/api/v1";

/// Default maximum size of a request body in bytes.
const MAX_BODY: usize = 1 << 20;

/// Who may call a REST route: everyone, or authenticated callers with a permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Everyone, without authentication.
    Public,
    /// Authenticated callers with this permission.
    Requires(Permission),
}

impl From<Permission> for Access {
    fn from(permission: Permission) -> Self {
        Access::Requires(permission)
    }
}

type Handler =
    Arc<dyn Fn(ApiRequest) -> Pin<Box<dyn Future<Output = Result<Response>> + Send>> + Send + Sync>;
type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// Request body that a REST route accepts, for the router and the `OpenAPI` document.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestBodySpec {
    pub(crate) content_type: &'static str,
    pub(crate) schema: SchemaOf,
    /// Whether the request body may be omitted.
    pub(crate) is_optional: bool,
}

/// Response that a route may return, for the `OpenAPI` document.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResponseSpec {
    pub(crate) status: u16,
    pub(crate) description: &'static str,
    pub(crate) content: Option<(&'static str, SchemaOf)>,
}

/// REST route: method, path, access, parameters, responses and handler.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) summary: &'static str,
    pub(crate) access: Access,
    pub(crate) query: Vec<Parameter>,
    /// Whether all query parameters are accepted, because another party defines them.
    pub(crate) any_query: bool,
    pub(crate) body: Option<RequestBodySpec>,
    /// Maximum size of the body of requests to the route, in bytes.
    pub(crate) max_body: usize,
    pub(crate) responses: Vec<ResponseSpec>,
    pub(crate) handler: Handler,
}

pub(crate) const JSON: &str = "application/json";
pub(crate) const FORM: &str = "application/x-www-form-urlencoded";

/// Creates a route at a full path.
pub(crate) fn route<F>(
    access: impl Into<Access>,
    method: Method,
    path: &str,
    handler: fn(ApiRequest) -> F,
) -> Route
where
    F: Future<Output = Result<Response>> + Send + 'static,
{
    Route {
        method,
        path: path.to_owned(),
        summary: "",
        access: access.into(),
        query: Vec::new(),
        any_query: false,
        body: None,
        max_body: MAX_BODY,
        responses: Vec::new(),
        handler: Arc::new(move |request| Box::pin(handler(request))),
    }
}

macro_rules! verbs {
    ($($name:ident $method:ident),*) => {$(
        /// Creates a route with this method at a path below the prefix of the API.
        pub(crate) fn $name<F>(access: impl Into<Access>, path: &str, handler: fn(ApiRequest) -> F) -> Route
        where
            F: Future<Output = Result<Response>> + Send + 'static,
        {
            route(access, Method::$method, &format!("{API}{path}"), handler)
        }
    )*};
}

verbs!(get GET, post POST, put PUT, patch PATCH, delete DELETE);

impl Route {
    /// Sets the summary of the route in the `OpenAPI` document.
    pub(crate) fn summary(mut self, summary: &'static str) -> Self {
        self.summary = summary;
        self
    }

    /// Declares query parameters that the route accepts.
    pub(crate) fn query(mut self, query: &[Parameter]) -> Self {
        self.query.extend(query);
        self
    }

    /// Makes the route accept all query parameters.
    pub(crate) fn any_query(mut self) -> Self {
        self.any_query = true;
        self
    }

    /// Declares the query parameters for paging of a route that returns a list.
    pub(crate) fn paged(self) -> Self {
        self.query(&PAGING)
    }

    /// Requires a JSON request body with the schema of `T`.
    pub(crate) fn body<T: JsonSchema>(mut self) -> Self {
        self.body = Some(RequestBodySpec { content_type: JSON, schema: schema::<T>, is_optional: false });
        self
    }

    /// Declares an optional JSON body of requests to the route.
    pub(crate) fn optional_body<T: JsonSchema>(mut self) -> Self {
        self.body = Some(RequestBodySpec { content_type: JSON, schema: schema::<T>, is_optional: true });
        self
    }

    /// Requires an HTML form body.
    pub(crate) fn form_body<T: JsonSchema>(mut self) -> Self {
        self.body = Some(RequestBodySpec { content_type: FORM, schema: schema::<T>, is_optional: false });
        self
    }

    /// Sets the maximum size of the request body in bytes.
    pub(crate) fn max_body(mut self, max: usize) -> Self {
        self.max_body = max;
        self
    }

    /// Declares a 200 JSON response of the route in the `OpenAPI` document.
    pub(crate) fn returns<T: JsonSchema>(self) -> Self {
        self.responds::<T>(200, "Success", JSON)
    }

    /// Declares a 201 JSON response of the route in the `OpenAPI` document.
    pub(crate) fn creates<T: JsonSchema>(self) -> Self {
        self.responds::<T>(201, "Created", JSON)
    }

    /// Adds a response with this status and content type to the `OpenAPI` document.
    pub(crate) fn responds<T: JsonSchema>(
        mut self,
        status: u16,
        description: &'static str,
        kind: &'static str,
    ) -> Self {
        self.responses.push(ResponseSpec { status, description, content: Some((kind, schema::<T>)) });
        self
    }

    /// Declares a 204 response of the route in the `OpenAPI` document.
    pub(crate) fn no_content(mut self) -> Self {
        self.responses.push(ResponseSpec { status: 204, description: "Done", content: None });
        self
    }
}

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}
