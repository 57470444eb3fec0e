//! Declaration and validation of the query parameters of REST routes. Unknown and repeated parameters are rejected.

use http::StatusCode;
use jiff::Timestamp;
use linchpin::server::web::decode_form;
use linchpin_hub_core::store::{MAX_PAGE_SIZE, PageRequest};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::problem::{Problem, Result};

/// Default number of items on one page of a list.
const DEFAULT_PAGE_SIZE: usize = 50;

/// Query parameter that a REST route accepts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) kind: ParameterType,
}

/// Type of a query parameter, by which its value is validated.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ParameterType {
    Text,
    Flag,
    PageSize,
    Time,
    OneOf(&'static [&'static str]),
}

/// Query parameters of a route that returns a paged list.
pub(crate) const PAGING: [Parameter; 2] = [
    Parameter {
        name: "after",
        description: "Position to continue from: `next` of the previous page. Default: the first page",
        kind: ParameterType::Text,
    },
    Parameter {
        name: "limit",
        description: "Maximum number of items in the response. Default: 50",
        kind: ParameterType::PageSize,
    },
];

impl Parameter {
    pub(crate) const fn text(name: &'static str, description: &'static str) -> Self {
        Parameter { name, description, kind: ParameterType::Text }
    }

    pub(crate) const fn flag(name: &'static str, description: &'static str) -> Self {
        Parameter { name, description, kind: ParameterType::Flag }
    }

    pub(crate) const fn time(name: &'static str, description: &'static str) -> Self {
        Parameter { name, description, kind: ParameterType::Time }
    }

    pub(crate) const fn one_of(
        name: &'static str,
        description: &'static str,
        values: &'static [&'static str],
    ) -> Self {
        Parameter { name, description, kind: ParameterType::OneOf(values) }
    }

    /// Returns the JSON Schema of the query parameter for the `OpenAPI` document.
    pub(crate) fn schema(&self) -> Value {
        match self.kind {
            ParameterType::Text => json!({"type": "string"}),
            ParameterType::Flag => json!({"type": "boolean"}),
            ParameterType::PageSize => json!({"type": "integer", "minimum": 1, "maximum": MAX_PAGE_SIZE}),
            ParameterType::Time => json!({"type": "string", "format": "date-time"}),
            ParameterType::OneOf(values) => json!({"type": "string", "enum": values}),
        }
    }

    /// Returns why the value of a query parameter is invalid, or `None` if it is valid.
    fn invalid_reason(&self, value: &str) -> Option<String> {
        match self.kind {
            ParameterType::Text => {
                (value.chars().count() > 1_000).then(|| "must have at most 1000 characters".to_owned())
            }
            ParameterType::Flag => {
                (!matches!(value, "true" | "false")).then(|| "must be `true` or `false`".to_owned())
            }
            ParameterType::PageSize => {
                let in_range = value.parse().is_ok_and(|count| (1..=MAX_PAGE_SIZE).contains(&count));
                (!in_range).then(|| format!("must be an integer from 1 to {MAX_PAGE_SIZE}"))
            }
            ParameterType::Time => value
                .parse::<Timestamp>()
                .err()
                .map(|_| "must be a time such as 2026-01-31T12:00:00Z".to_owned()),
            ParameterType::OneOf(values) => {
                (!values.contains(&value)).then(|| format!("must be one of {}", values.join(", ")))
            }
        }
    }
}

/// Validated query parameters of a REST request.
#[derive(Debug, Default)]
pub(crate) struct Query(Vec<(&'static str, String)>);

impl Query {
    pub(crate) fn read(query: &str, known: &[Parameter]) -> Result<Self> {
        let invalid_parameter = |name: &str, text: String| {
            let name: String = name.chars().filter(|char| !char.is_control()).take(40).collect();
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_parameter", text).with_field(name)
        };
        let mut read: Vec<(&'static str, String)> = Vec::new();
        for (name, value) in decode_form(query) {
            let Some(parameter) = known.iter().find(|known| known.name == name) else {
                let names: Vec<_> = known.iter().map(|known| known.name).collect();
                let text = match &names[..] {
                    [] => "this path takes no query parameters: remove this one".to_owned(),
                    names => format!("unknown query parameter: use {}", names.join(", ")),
                };
                return Err(invalid_parameter(&name, text));
            };
            if read.iter().any(|(known, _)| *known == name) {
                return Err(invalid_parameter(
                    &name,
                    "must not be repeated: send the parameter only once".to_owned(),
                ));
            }
            if let Some(fault) = parameter.invalid_reason(&value) {
                return Err(invalid_parameter(&name, fault));
            }
            read.push((parameter.name, value.into_owned()));
        }
        Ok(Query(read))
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(parameter, _)| *parameter == name).map(|(_, value)| &**value)
    }

    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        self.text(name).map(|value| value == "true")
    }

    pub(crate) fn time(&self, name: &str) -> Option<Timestamp> {
        self.text(name)?.parse().ok()
    }

    /// Returns an enumerated query parameter as its Rust type.
    pub(crate) fn parsed<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_value(self.text(name)?.into()).ok()
    }

    pub(crate) fn paging(&self) -> PageRequest {
        let limit = self.text("limit").and_then(|limit| limit.parse().ok()).unwrap_or(DEFAULT_PAGE_SIZE);
        PageRequest { after: self.text("after").map(str::to_owned), limit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [Parameter; 4] = [
        Parameter::flag("enabled", ""),
        Parameter::one_of("state", "", &["new", "trusted"]),
        Parameter::time("since", ""),
        PAGING[1],
    ];

    #[test]
    fn what_is_known_is_read() {
        let query = "enabled=true&state=new&since=2026-01-31T12%3A00%3A00Z&limit=500";
        let query = Query::read(query, &KNOWN).unwrap();
        assert_eq!((query.flag("enabled"), query.text("state")), (Some(true), Some("new")));
        assert_eq!(query.time("since").unwrap().as_second(), 1_769_860_800);
        assert_eq!(query.paging(), PageRequest { after: None, limit: 500 });
        assert_eq!(Query::read("", &KNOWN).unwrap().paging().limit, 50);
    }

    #[test]
    fn anything_else_is_refused_by_its_name() {
        for (query, field) in [
            ("other=1", "other"),
            ("enabled=yes", "enabled"),
            ("enabled=", "enabled"),
            ("state=old", "state"),
            ("since=yesterday", "since"),
            ("limit=0", "limit"),
            ("limit=501", "limit"),
            ("limit=-1", "limit"),
            ("limit=x", "limit"),
            ("enabled=true&enabled=true", "enabled"),
            ("%1b%5b2J=1", "[2J"),
        ] {
            let problem = Query::read(query, &KNOWN).unwrap_err();
            assert_eq!((problem.status().as_u16(), problem.field()), (422, Some(field)), "{query}");
        }
        assert!(
            Query::read("a=1", &[])
                .unwrap_err()
                .detail()
                .ends_with("takes no query parameters: remove this one")
        );
    }
}
