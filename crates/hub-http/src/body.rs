//! Request bodies: size limit, content type check and strict parsing, so that a body has exactly one reading.

use axum::body::Body;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use linchpin::server::web::{BodyReadError, Limits, ParseErrorKind, ReadBody, check_json, decode_form};
use linchpin_hub_core::number::find_wide_integer;
use serde_json::{Map, Value};

use crate::app::AppState;
use crate::authentication::Caller;
use crate::problem::{Problem, Result};
use crate::route::{Access, FORM, JSON, Route};

/// Reads a request body, with the memory reservation that it holds until the request has finished. Returns an empty
/// object for an empty body. The fields of an HTML form are strings.
pub(crate) async fn read<'a>(
    app: &'a AppState,
    route: &Route,
    parts: &Parts,
    body: Body,
    caller: Option<&Caller>,
) -> Result<(Value, ReadBody<'a>)> {
    // A public route without a body reads nothing: an unauthenticated client must not use memory of the hub.
    let max = if route.body.is_none() && route.access == Access::Public { 0 } else { route.max_body };
    // The memory is shared by all callers: count per caller, so that one of them cannot use all of it.
    let read = match caller.map(|caller| caller.actor) {
        Some(actor) => {
            let subject = format!("{} {}", actor.tenant(), actor.subject());
            app.bodies.read_from(subject, parts, body, max).await
        }
        None => app.bodies.read(parts, body, max).await,
    };
    let read_body = read.map_err(|error| body_error(error, max))?;
    Ok((parse_body(route, parts, &read_body.bytes)?, read_body))
}

fn parse_body(route: &Route, parts: &Parts, bytes: &[u8]) -> Result<Value> {
    let kind = route.body.map_or(JSON, |body| body.content_type);
    let is_needed = route.body.is_some_and(|body| !body.is_optional);
    if bytes.is_empty() && !is_needed {
        return Ok(Map::new().into());
    }
    let mut types = parts.headers.get_all(CONTENT_TYPE).iter();
    if !(types.next().is_some_and(|content_type| matches_content_type(content_type, kind))
        && types.next().is_none())
    {
        let text = format!("unsupported content type: send {kind}, and set the header Content-Type");
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "wrong_content_type", text));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        Problem::bad_request("not_utf8", format!("the request body must be UTF-8: {error}"))
    })?;
    if kind == FORM {
        return parse_form(text);
    }
    check_json(text, Limits::default()).map_err(|error| {
        let code = match error.kind {
            ParseErrorKind::DuplicateKey => "duplicate_key",
            ParseErrorKind::Limit => "json_limit",
            _ => "not_json",
        };
        Problem::bad_request(code, format!("the request body is not supported JSON: {error}"))
    })?;
    if let Some(number) = find_wide_integer(text) {
        let number: String = number.chars().take(40).collect();
        let text = format!(
            "the number {number} has more than 64 bits and would be changed: send it as a string, if the tool accepts one"
        );
        return Err(Problem::bad_request("number_too_wide", text));
    }
    serde_json::from_str(text)
        .map_err(|error| Problem::bad_request("not_json", format!("the request body is not JSON: {error}")))
}

/// Returns whether a `Content-Type` header has this media type, with an optional UTF-8 charset parameter.
fn matches_content_type(content_type: &HeaderValue, kind: &str) -> bool {
    let Ok(content_type) = content_type.to_str() else { return false };
    let (media, parameter) = content_type.split_once(';').unwrap_or((content_type, ""));
    let parameter = parameter.trim().to_ascii_lowercase().replace('"', "");
    media.trim().eq_ignore_ascii_case(kind) && matches!(&*parameter, "" | "charset=utf-8" | "charset=utf8")
}

fn parse_form(text: &str) -> Result<Value> {
    let mut fields = Map::new();
    for (name, value) in decode_form(text) {
        if fields.insert(name.into_owned(), Value::String(value.into_owned())).is_some() {
            return Err(Problem::bad_request("duplicate_key", "the form contains a field twice"));
        }
    }
    Ok(fields.into())
}

fn body_error(error: BodyReadError, max: usize) -> Problem {
    match error {
        BodyReadError::TooLarge => {
            let text = format!("the request body is larger than the limit of {max} bytes");
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", text)
        }
        BodyReadError::TooSlow => Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "body_too_slow",
            "the request body did not arrive in time: send it again",
        ),
        BodyReadError::Incomplete => {
            Problem::bad_request("body_broken", "the request body is incomplete: send it again")
        }
        BodyReadError::BudgetExceeded => {
            let text = "too many large requests at the same time: try again in a moment";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "no_room", text)
        }
    }
}
