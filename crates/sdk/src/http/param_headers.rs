//! `Mcp-Param-*` headers: tool arguments mirrored into headers, so that intermediaries can route by them. The client
//! writes the headers, the server checks that they match the body.

use std::collections::HashMap;

use http::header::GetAll;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::value::RawValue;
use serde_json::{Number, Value};

use super::header_names::PARAM_PREFIX;
use super::{header_annotation, header_value};

/// Largest integer that every JSON implementation represents exactly.
const MAX_SAFE_INTEGER: i64 = (1 << 53) - 1;

/// Parameters of one tool that are mirrored into `Mcp-Param-*` headers. Empty for most tools, at no cost.
#[derive(Debug, Clone, Default)]
pub(crate) struct ParamHeaders {
    parameters: Box<[Parameter]>,
}

#[derive(Debug, Clone)]
struct Parameter {
    path: Box<[String]>,
    header: HeaderName,
}

/// Tool argument in the form of its `Mcp-Param-*` header, or the reason why it has none.
#[derive(Debug, PartialEq, Eq)]
enum HeaderForm {
    Text(String),
    Integer(i64),
    Boolean(bool),
    /// An integer beyond [`MAX_SAFE_INTEGER`].
    TooLarge,
    /// A value that cannot be in a header. Argument validation reports it.
    Unsupported,
}

impl ParamHeaders {
    /// Collects the mirrored parameters of an input schema. The error names the violation and its position.
    pub(crate) fn from_schema(schema: &Value) -> Result<ParamHeaders, String> {
        let parameters = header_annotation::find_annotations(schema)?.into_iter().map(|found| {
            let header = HeaderName::try_from(format!("{PARAM_PREFIX}{}", found.name));
            let header =
                header.map_err(|_| format!("`{:.40}…` is too long for the name of a header", found.name))?;
            Ok(Parameter { path: found.path.into(), header })
        });
        Ok(ParamHeaders { parameters: parameters.collect::<Result<_, String>>()? })
    }

    /// Returns whether no parameter of the tool is mirrored into a header.
    pub(crate) fn is_empty(&self) -> bool {
        self.parameters.is_empty()
    }

    /// Returns the headers that mirror the arguments of a tool call, given as a JSON object.
    pub(crate) fn headers(&self, arguments: &str) -> Vec<(HeaderName, HeaderValue)> {
        let mut headers = Vec::new();
        self.values(arguments, |parameter, value| {
            let value = match value {
                Some(HeaderForm::Text(text)) => HeaderValue::from_str(&header_value::encode(&text)).ok(),
                Some(HeaderForm::Integer(integer)) => Some(HeaderValue::from(integer)),
                Some(HeaderForm::Boolean(true)) => Some(HeaderValue::from_static("true")),
                Some(HeaderForm::Boolean(false)) => Some(HeaderValue::from_static("false")),
                Some(HeaderForm::TooLarge | HeaderForm::Unsupported) | None => None,
            };
            headers.extend(value.map(|value| (parameter.header.clone(), value)));
            Ok(())
        })
        .unwrap_or_default();
        headers
    }

    /// Checks the headers of a call against its arguments, a JSON object. The error does not contain values, since
    /// arguments must not be logged.
    pub(crate) fn check(&self, arguments: &str, headers: &HeaderMap) -> Result<(), String> {
        self.values(arguments, |parameter, value| {
            let mismatch = |reason: &str| {
                let (header, path) = (&parameter.header, parameter.path.join("."));
                Err(format!("Header mismatch: {header} for the argument `{path}`: {reason}"))
            };
            match (value, SentHeader::from_headers(&headers.get_all(&parameter.header))) {
                (_, SentHeader::Repeated) => mismatch("the header appears more than once"),
                (_, SentHeader::Invalid) => {
                    mismatch("the header has a value that is not allowed in a header")
                }
                (Some(HeaderForm::TooLarge), _) => {
                    mismatch(&format!("a header cannot carry integers beyond {MAX_SAFE_INTEGER}"))
                }
                (None | Some(HeaderForm::Unsupported), SentHeader::Missing) => Ok(()),
                (None, SentHeader::Text(_)) => mismatch("the header has a value, but the body has none"),
                (Some(_), SentHeader::Missing) => {
                    mismatch("the header is missing; it must repeat the value in the body")
                }
                (Some(value), SentHeader::Text(text)) => {
                    if value.matches(&text) {
                        Ok(())
                    } else {
                        mismatch("the header does not match the value in the body")
                    }
                }
            }
        })
    }

    /// Calls `visit` with each mirrored parameter and its header value; `None` if the argument is absent or `null`.
    fn values(
        &self,
        arguments: &str,
        mut visit: impl FnMut(&Parameter, Option<HeaderForm>) -> Result<(), String>,
    ) -> Result<(), String> {
        if self.is_empty() {
            return Ok(());
        }
        // Only mirrored members are decoded; the rest is skipped.
        let members: HashMap<String, &RawValue> = serde_json::from_str(arguments).unwrap_or_default();
        for parameter in &self.parameters {
            let value = parameter.path.split_first().and_then(|(first, rest)| {
                let member: Value = serde_json::from_str(members.get(first)?.get()).ok()?;
                let value = rest.iter().try_fold(&member, |value, step| value.as_object()?.get(step))?;
                HeaderForm::from_value(value)
            });
            visit(parameter, value)?;
        }
        Ok(())
    }
}

impl HeaderForm {
    fn from_value(value: &Value) -> Option<HeaderForm> {
        match value {
            Value::Null => None,
            Value::String(text) => Some(HeaderForm::Text(text.clone())),
            Value::Bool(value) => Some(HeaderForm::Boolean(*value)),
            Value::Number(number) => Some(HeaderForm::from_number(number)),
            Value::Array(_) | Value::Object(_) => Some(HeaderForm::Unsupported),
        }
    }

    fn from_number(number: &Number) -> HeaderForm {
        if let Some(integer) = number.as_i64() {
            let safe = (-MAX_SAFE_INTEGER..=MAX_SAFE_INTEGER).contains(&integer);
            return if safe { HeaderForm::Integer(integer) } else { HeaderForm::TooLarge };
        }
        match number.as_f64() {
            Some(float) if float.fract() != 0.0 => HeaderForm::Unsupported,
            // `42.0` is an integer too. A float without a fraction is written without a decimal point.
            Some(float) if float.abs() < 9.1e15 => match format!("{float:.0}").parse() {
                Ok(integer) if (-MAX_SAFE_INTEGER..=MAX_SAFE_INTEGER).contains(&integer) => {
                    HeaderForm::Integer(integer)
                }
                _ => HeaderForm::TooLarge,
            },
            _ => HeaderForm::TooLarge,
        }
    }

    /// Returns whether the text of a mirrored header equals this argument value. Numbers are compared numerically.
    fn matches(&self, text: &str) -> bool {
        match self {
            HeaderForm::Text(value) => value == text,
            HeaderForm::Boolean(value) => text == if *value { "true" } else { "false" },
            HeaderForm::Integer(_) => {
                serde_json::from_str(text).is_ok_and(|number| HeaderForm::from_number(&number) == *self)
            }
            HeaderForm::TooLarge | HeaderForm::Unsupported => false,
        }
    }
}

/// What a request sent for one `Mcp-Param-*` header: nothing, a text, an invalid value, or several values.
enum SentHeader<'a> {
    Missing,
    Text(std::borrow::Cow<'a, str>),
    Invalid,
    Repeated,
}

impl<'a> SentHeader<'a> {
    fn from_headers(values: &GetAll<'a, HeaderValue>) -> SentHeader<'a> {
        let mut values = values.iter();
        match (values.next(), values.next()) {
            (None, _) => SentHeader::Missing,
            (Some(_), Some(_)) => SentHeader::Repeated,
            (Some(value), None) => {
                header_value::decode(value.as_bytes()).map_or(SentHeader::Invalid, SentHeader::Text)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn mirror() -> ParamHeaders {
        ParamHeaders::from_schema(&json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "count": {"type": "integer", "x-mcp-header": "Count"},
            "dry": {"type": "boolean", "x-mcp-header": "Dry"},
            "deep": {"type": "object", "properties": {"er": {"type": "string", "x-mcp-header": "Deep"}}},
            "query": {"type": "string"},
        }}))
        .unwrap()
    }

    fn headers(arguments: &Value) -> Vec<(String, String)> {
        let headers = mirror().headers(&arguments.to_string());
        headers.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect()
    }

    fn check(arguments: &Value, headers: &[(&'static str, &str)]) -> Result<(), String> {
        let headers = headers.iter().map(|&(name, value)| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap())
        });
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name, value);
        }
        mirror().check(&arguments.to_string(), &map)
    }

    #[test]
    fn arguments_become_headers() {
        let all =
            json!({"query": "q", "region": "us-west1", "count": -7, "dry": false, "deep": {"er": "世"}});
        let expected = [
            ("mcp-param-region", "us-west1"),
            ("mcp-param-count", "-7"),
            ("mcp-param-dry", "false"),
            ("mcp-param-deep", "=?base64?5LiW?="),
        ];
        assert_eq!(headers(&all), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        for nothing in [
            json!({}),
            json!({"region": null, "count": null}),
            json!({"deep": {}}),
            json!({"deep": "er"}),
            json!({"deep": ["er"], "region": {}, "count": 1.5, "dry": []}),
            json!({"count": 1_u64 << 53}),
            json!({"count": -(1_i64 << 53)}),
            json!({"count": 1e300}),
            json!([]),
        ] {
            assert_eq!(headers(&nothing), [], "{nothing}");
        }
        assert!(mirror().headers("not JSON").is_empty());
    }

    #[test]
    fn an_integer_is_written_in_decimal() {
        for (count, text) in [
            (json!(42.0), "42"),
            (json!(-0.0), "0"),
            (json!(4.2e1), "42"),
            (json!(9_007_199_254_740_991_i64), "9007199254740991"),
            (json!(-9_007_199_254_740_991.0), "-9007199254740991"),
        ] {
            assert_eq!(headers(&json!({"count": count})), [("mcp-param-count".to_owned(), text.to_owned())]);
        }
    }

    #[test]
    fn headers_that_say_the_same_are_accepted() {
        let same: [(Value, &[(&str, &str)]); 8] = [
            (json!({}), &[("mcp-param-unknown", "x")]),
            (json!({"region": "a"}), &[("mcp-param-region", "a")]),
            (json!({"region": "a"}), &[("mcp-param-region", "=?base64?YQ==?=")]),
            (json!({"region": null, "count": 42}), &[("mcp-param-count", "42.0")]),
            (json!({"count": 42.0}), &[("mcp-param-count", "42")]),
            (json!({"dry": true}), &[("mcp-param-dry", "true")]),
            (json!({"deep": {"er": ""}}), &[("mcp-param-deep", "")]),
            (json!({"count": 1.5}), &[]),
        ];
        for (arguments, headers) in same {
            assert_eq!(check(&arguments, headers), Ok(()), "{arguments} {headers:?}");
        }
    }

    #[test]
    fn headers_that_say_something_else_are_refused() {
        let cases = [
            (
                json!({"region": "a"}),
                vec![],
                "mcp-param-region for the argument `region`: the header is missing; it must repeat the value in the body",
            ),
            (json!({"region": "a"}), vec![("mcp-param-region", "A")], "does not match"),
            (
                json!({"region": "a"}),
                vec![("mcp-param-region", "a"), ("mcp-param-region", "a")],
                "more than once",
            ),
            (json!({"region": "é"}), vec![("mcp-param-region", "é")], "not allowed"),
            (json!({"region": "a"}), vec![("mcp-param-region", "=?base64?YQ?=")], "not allowed"),
            (json!({}), vec![("mcp-param-region", "a")], "the body has none"),
            (json!({"region": null}), vec![("mcp-param-region", "null")], "the body has none"),
            (json!({"count": 42}), vec![("mcp-param-count", "43")], "does not match"),
            (json!({"count": 42}), vec![("mcp-param-count", "0x2a")], "does not match"),
            (json!({"count": 42}), vec![("mcp-param-count", "")], "does not match"),
            (
                json!({"count": 1_u64 << 53}),
                vec![("mcp-param-count", "9007199254740992")],
                "beyond 9007199254740991",
            ),
            (json!({"count": 1.5}), vec![("mcp-param-count", "1.5")], "does not match"),
            (json!({"dry": true}), vec![("mcp-param-dry", "True")], "does not match"),
            (json!({"deep": {"er": "a"}}), vec![("mcp-param-deep", "b")], "the argument `deep.er`"),
        ];
        for (arguments, headers, expected) in cases {
            let text = check(&arguments, &headers).expect_err(&arguments.to_string());
            assert!(text.starts_with("Header mismatch: mcp-param-") && text.contains(expected), "{text}");
        }
    }

    #[test]
    fn most_tools_mirror_nothing() {
        let nothing =
            ParamHeaders::from_schema(&json!({"type": "object", "properties": {"a": {"type": "number"}}}))
                .unwrap();
        assert!(nothing.is_empty());
        assert!(nothing.headers("{\"a\":1}").is_empty());
        assert_eq!(nothing.check("not even JSON", &HeaderMap::new()), Ok(()));
        assert!(!mirror().is_empty());
    }

    #[test]
    fn a_schema_that_breaks_a_rule_is_refused() {
        let mismatch = |name: String| {
            ParamHeaders::from_schema(&json!({"properties": {"a": {"type": "string", "x-mcp-header": name}}}))
        };
        assert!(mismatch("a b".into()).is_err());
        assert!(mismatch("x".repeat(70_000)).unwrap_err().contains("too long"));
    }

    proptest! {
        #[test]
        fn what_a_client_sends_a_server_accepts(
            region in any::<Option<String>>(), count in any::<Option<i64>>(), dry in any::<Option<bool>>(),
        ) {
            let count = count.map(|count| count >> 10);
            let arguments = json!({"region": region, "count": count, "dry": dry, "deep": {"er": region}}).to_string();
            let headers: HeaderMap = mirror().headers(&arguments).into_iter().collect();
            prop_assert_eq!(mirror().check(&arguments, &headers), Ok(()));
        }
    }
}
