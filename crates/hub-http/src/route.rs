//! Route definitions: path, access, parameters, body and responses. The router and the `OpenAPI` document are both
//! generated from them, so that they cannot differ.

use std::pin::Pin;
use std::sync::Arc;

use axum::response::Response;
use http::Method;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::problem::Result;
use crate::query::{PAGING, Parameter};
use crate::request::Asked;

/// Path prefix of the API.
pub(crate) const API: &str = "/api/v1";

/// Default maximum body size in bytes.
const MOST: usize = 1 << 20;

/// Access level of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// No authentication.
    Anybody,
    /// Users and agents.
    Known,
    /// Users only.
    Person,
}

type Handler = Arc<dyn Fn(Asked) -> Pin<Box<dyn Future<Output = Result<Response>> + Send>> + Send + Sync>;
type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// Request body of a route.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Takes {
    pub(crate) kind: &'static str,
    pub(crate) schema: SchemaOf,
    /// Whether the body may be omitted.
    pub(crate) is_optional: bool,
}

/// Response of a route.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gives {
    pub(crate) status: u16,
    pub(crate) what: &'static str,
    pub(crate) content: Option<(&'static str, SchemaOf)>,
}

/// Route definition.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) summary: &'static str,
    pub(crate) who: Who,
    pub(crate) query: Vec<Parameter>,
    /// Whether all query parameters are accepted, because another party defines them.
    pub(crate) any_query: bool,
    pub(crate) takes: Option<Takes>,
    /// Maximum body size in bytes.
    pub(crate) most: usize,
    pub(crate) gives: Vec<Gives>,
    pub(crate) handler: Handler,
}

pub(crate) const JSON: &str = "application/json";
pub(crate) const FORM: &str = "application/x-www-form-urlencoded";

/// Creates a route for users. Builder methods set the rest.
pub(crate) fn route<F>(method: Method, path: &str, handler: fn(Asked) -> F) -> Route
where
    F: Future<Output = Result<Response>> + Send + 'static,
{
    Route {
        method,
        path: path.to_owned(),
        summary: "",
        who: Who::Person,
        query: Vec::new(),
        any_query: false,
        takes: None,
        most: MOST,
        gives: Vec::new(),
        handler: Arc::new(move |asked| Box::pin(handler(asked))),
    }
}

macro_rules! verbs {
    ($($name:ident $method:ident),*) => {$(
        /// Creates an API route with this method.
        pub(crate) fn $name<F>(path: &str, handler: fn(Asked) -> F) -> Route
        where
            F: Future<Output = Result<Response>> + Send + 'static,
        {
            route(Method::$method, &format!("{API}{path}"), handler)
        }
    )*};
}

verbs!(get GET, post POST, put PUT, patch PATCH, delete DELETE);

impl Route {
    /// Sets the summary.
    pub(crate) fn says(mut self, summary: &'static str) -> Self {
        self.summary = summary;
        self
    }

    /// Allows users and agents.
    pub(crate) fn known(mut self) -> Self {
        self.who = Who::Known;
        self
    }

    /// Makes the route public.
    pub(crate) fn anybody(mut self) -> Self {
        self.who = Who::Anybody;
        self
    }

    /// Adds query parameters.
    pub(crate) fn query(mut self, query: &[Parameter]) -> Self {
        self.query.extend(query);
        self
    }

    /// Accepts all query parameters.
    pub(crate) fn any_query(mut self) -> Self {
        self.any_query = true;
        self
    }

    /// Adds the paging parameters.
    pub(crate) fn paged(self) -> Self {
        self.query(&PAGING)
    }

    /// Requires a JSON body.
    pub(crate) fn takes<T: JsonSchema>(mut self) -> Self {
        self.takes = Some(Takes { kind: JSON, schema: schema::<T>, is_optional: false });
        self
    }

    /// Allows an optional JSON body.
    pub(crate) fn may_take<T: JsonSchema>(mut self) -> Self {
        self.takes = Some(Takes { kind: JSON, schema: schema::<T>, is_optional: true });
        self
    }

    /// Requires an HTML form body.
    pub(crate) fn takes_form<T: JsonSchema>(mut self) -> Self {
        self.takes = Some(Takes { kind: FORM, schema: schema::<T>, is_optional: false });
        self
    }

    /// Sets the maximum body size in bytes.
    pub(crate) fn at_most(mut self, most: usize) -> Self {
        self.most = most;
        self
    }

    /// Adds a 200 JSON response.
    pub(crate) fn gives<T: JsonSchema>(self) -> Self {
        self.answers::<T>(200, "Success", JSON)
    }

    /// Adds a 201 JSON response.
    pub(crate) fn makes<T: JsonSchema>(self) -> Self {
        self.answers::<T>(201, "Created", JSON)
    }

    /// Adds a response.
    pub(crate) fn answers<T: JsonSchema>(
        mut self,
        status: u16,
        what: &'static str,
        kind: &'static str,
    ) -> Self {
        self.gives.push(Gives { status, what, content: Some((kind, schema::<T>)) });
        self
    }

    /// Adds a 204 response.
    pub(crate) fn does(mut self) -> Self {
        self.gives.push(Gives { status: 204, what: "Done", content: None });
        self
    }
}

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}
