//! A route: what can be asked, who may ask, what is sent and what is answered. The router and the `OpenAPI` document are
//! both made of these, so that neither says what the other does not.

use std::pin::Pin;
use std::sync::Arc;

use axum::response::Response;
use http::Method;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::asked::Asked;
use crate::problem::Result;
use crate::query::{PAGING, Parameter};

/// Where the API begins.
pub(crate) const API: &str = "/api/v1";

/// The longest body, unless a route says otherwise.
const MOST: usize = 1 << 20;

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// Whoever comes.
    Anybody,
    /// People, and agents by their tokens.
    Known,
    /// People.
    Person,
}

type Handler = Arc<dyn Fn(Asked) -> Pin<Box<dyn Future<Output = Result<Response>> + Send>> + Send + Sync>;
type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// What a request sends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Takes {
    pub(crate) kind: &'static str,
    pub(crate) schema: SchemaOf,
    /// Whether it may be left out.
    pub(crate) is_optional: bool,
}

/// What is answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gives {
    pub(crate) status: u16,
    pub(crate) what: &'static str,
    pub(crate) content: Option<(&'static str, SchemaOf)>,
}

/// A route.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) summary: &'static str,
    pub(crate) who: Who,
    pub(crate) query: Vec<Parameter>,
    /// Whether others decide what the parameters are.
    pub(crate) any_query: bool,
    pub(crate) takes: Option<Takes>,
    /// The longest body.
    pub(crate) most: usize,
    pub(crate) gives: Vec<Gives>,
    pub(crate) handler: Handler,
}

pub(crate) const JSON: &str = "application/json";
pub(crate) const FORM: &str = "application/x-www-form-urlencoded";

/// A route for people. What it is for is said after it.
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
        /// A route of the API, by this method.
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
    /// What it does.
    pub(crate) fn says(mut self, summary: &'static str) -> Self {
        self.summary = summary;
        self
    }

    /// Agents may use it, too.
    pub(crate) fn known(mut self) -> Self {
        self.who = Who::Known;
        self
    }

    /// Whoever comes may use it.
    pub(crate) fn anybody(mut self) -> Self {
        self.who = Who::Anybody;
        self
    }

    /// It knows these parameters.
    pub(crate) fn query(mut self, query: &[Parameter]) -> Self {
        self.query.extend(query);
        self
    }

    /// Others decide what its parameters are.
    pub(crate) fn any_query(mut self) -> Self {
        self.any_query = true;
        self
    }

    /// It gives a list page by page.
    pub(crate) fn paged(self) -> Self {
        self.query(&PAGING)
    }

    /// It is sent this.
    pub(crate) fn takes<T: JsonSchema>(mut self) -> Self {
        self.takes = Some(Takes { kind: JSON, schema: schema::<T>, is_optional: false });
        self
    }

    /// It may be sent this.
    pub(crate) fn may_take<T: JsonSchema>(mut self) -> Self {
        self.takes = Some(Takes { kind: JSON, schema: schema::<T>, is_optional: true });
        self
    }

    /// It is sent a form of a page.
    pub(crate) fn takes_form<T: JsonSchema>(mut self) -> Self {
        self.takes = Some(Takes { kind: FORM, schema: schema::<T>, is_optional: false });
        self
    }

    /// Bodies may be so long.
    pub(crate) fn at_most(mut self, most: usize) -> Self {
        self.most = most;
        self
    }

    /// It answers with this.
    pub(crate) fn gives<T: JsonSchema>(self) -> Self {
        self.answers::<T>(200, "The answer", JSON)
    }

    /// It makes something new and answers with it.
    pub(crate) fn makes<T: JsonSchema>(self) -> Self {
        self.answers::<T>(201, "It is there now", JSON)
    }

    /// It answers with this.
    pub(crate) fn answers<T: JsonSchema>(
        mut self,
        status: u16,
        what: &'static str,
        kind: &'static str,
    ) -> Self {
        self.gives.push(Gives { status, what, content: Some((kind, schema::<T>)) });
        self
    }

    /// It answers that it is done.
    pub(crate) fn does(mut self) -> Self {
        self.gives.push(Gives { status: 204, what: "It is done", content: None });
        self
    }
}

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}
