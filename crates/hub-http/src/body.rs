//! What a request sends: up to a cap, of the kind that it says, and readable in one way only.

use axum::body::Body;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use linchpin::server::web::{Limits, ParseErrorKind, Unread, check_json, decode_form};
use serde_json::{Map, Value};

use crate::app::App;
use crate::problem::{Problem, Result};
use crate::route::{FORM, JSON, Route};

/// Reads what a request sends; an empty object if it sends nothing. The fields of a form are texts.
pub(crate) async fn read(app: &App, route: &Route, parts: &Parts, body: Body) -> Result<Value> {
    let whole = app.bodies.read(parts, body, route.most).await.map_err(|why| unread(why, route.most))?;
    let kind = route.takes.map_or(JSON, |takes| takes.kind);
    let is_needed = route.takes.is_some_and(|takes| !takes.is_optional);
    if whole.bytes.is_empty() && !is_needed {
        return Ok(Map::new().into());
    }
    if parts.headers.get_all(CONTENT_TYPE).iter().map(HeaderValue::as_bytes).ne([kind.as_bytes()]) {
        let text = format!("what is sent here is of the type {kind}: say so in the header Content-Type");
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "wrong_content_type", text));
    }
    let text = std::str::from_utf8(&whole.bytes)
        .map_err(|error| Problem::malformed("not_utf8", format!("the body is no UTF-8 text: {error}")))?;
    if kind == FORM {
        return form(text);
    }
    check_json(text, Limits::default()).map_err(|error| {
        let code = match error.kind {
            ParseErrorKind::DuplicateKey => "duplicate_key",
            ParseErrorKind::Limit => "json_limit",
            _ => "not_json",
        };
        Problem::malformed(code, format!("the body is not JSON as it is read here: {error}"))
    })?;
    serde_json::from_str(text)
        .map_err(|error| Problem::malformed("not_json", format!("the body is not JSON: {error}")))
}

fn form(text: &str) -> Result<Value> {
    let mut fields = Map::new();
    for (name, value) in decode_form(text) {
        if fields.insert(name.into_owned(), Value::String(value.into_owned())).is_some() {
            return Err(Problem::malformed("duplicate_key", "the form has two fields of one name"));
        }
    }
    Ok(fields.into())
}

fn unread(why: Unread, most: usize) -> Problem {
    match why {
        Unread::TooLarge => {
            let text = format!("the body is longer than {most} bytes");
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", text)
        }
        Unread::TooSlow => {
            Problem::new(StatusCode::REQUEST_TIMEOUT, "body_too_slow", "the body did not come in time")
        }
        Unread::Broken => Problem::malformed("body_broken", "the body breaks off"),
        Unread::NoRoom => {
            let text = "too much is being sent at once: try again in a moment";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "no_room", text)
        }
    }
}
