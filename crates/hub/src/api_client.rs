//! REST client with which commands of the CLI call a running hub. Requests go through the egress of the SDK, like all
//! other connections.

use std::fmt::Write as _;

use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use linchpin::auth::Secret;
use linchpin::egress::{Body, Egress, EgressErrorKind, Policy, ResponseBody, Target};
use serde_json::{Value, json};

use crate::config::{HubPaths, LocationArgs, env_variable};
use crate::error::{CliError, CliErrorKind};

/// Maximum size of a response of the hub's API.
const MAX_RESPONSE_BYTES: usize = 64 << 20;
/// Page size with which lists of the hub's API are read.
const PAGE_SIZE: usize = 500;

/// REST client of a running hub, with the URL of the hub and the caller's token.
pub(crate) struct ApiClient {
    egress: Egress,
    base: Target,
    token: Secret,
}

impl ApiClient {
    /// Creates a REST client for the hub at the URL `hub`, else for the hub that runs on the data directory.
    pub(crate) fn find(location: &LocationArgs, hub: Option<&str>) -> Result<Self, CliError> {
        let (base, token) = if let Some(url) = hub {
            let missing =
                "--hub requires an API token: create one with `linchpin token add` and set LINCHPIN_TOKEN";
            let token = env_variable("LINCHPIN_TOKEN").and_then(|token| token.into_string().ok());
            (parse_hub_url(url)?, Secret::new(token.ok_or_else(|| CliError::usage(missing))?))
        } else {
            let paths = HubPaths::resolve(location, &env_variable)?;
            let running = paths.running().ok_or_else(|| no_running_hub(&paths))?;
            let base = Target::configured(&running.url)
                .map_err(|error| CliError::new(CliErrorKind::Other, error.to_string()))?;
            (base, running.token)
        };
        let egress = Egress::builder().policy(Policy::default()).build();
        let egress = egress.map_err(|error| CliError::new(CliErrorKind::Other, error.to_string()))?;
        Ok(ApiClient { egress, base, token })
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, CliError> {
        self.send(Method::GET, path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Value, CliError> {
        self.send(Method::POST, path, Some(body)).await
    }

    /// Sends a POST request without a body to the REST API.
    pub(crate) async fn post_empty(&self, path: &str) -> Result<Value, CliError> {
        self.send(Method::POST, path, None).await
    }

    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Result<Value, CliError> {
        self.send(Method::PATCH, path, Some(body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Result<Value, CliError> {
        self.send(Method::PUT, path, Some(body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<Value, CliError> {
        self.send(Method::DELETE, path, None).await
    }

    /// Reads all pages of a list, up to `max` items.
    pub(crate) async fn list(&self, path: &str, max: usize) -> Result<Vec<Value>, CliError> {
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let sign = if path.contains('?') { '&' } else { '?' };
            let page =
                self.get(&format!("{path}{sign}limit={}{after}", PAGE_SIZE.min(max - all.len()))).await?;
            let Value::Array(items) = page["items"].clone() else {
                return Err(CliError::new(
                    CliErrorKind::Protocol,
                    "invalid response of the hub: `items` must be a list",
                ));
            };
            all.extend(items);
            match page["next"].as_str().filter(|_| all.len() < max) {
                None => return Ok(all),
                Some(next) => after = format!("&after={}", percent_encode(next)),
            }
        }
    }

    /// Opens the event stream of the hub.
    pub(crate) async fn events(&self) -> Result<HubEvents, CliError> {
        let response = self.respond(Method::GET, "/events", None).await?;
        if response.status().is_success() {
            return Ok(HubEvents { body: response.into_body(), text: Vec::new() });
        }
        self.parse(response).await.and_then(|_| Err(self.not_a_hub_error()))
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, CliError> {
        self.parse(self.respond(method, path, body).await?).await
    }

    async fn respond(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Response<ResponseBody>, CliError> {
        let broken = |error: &dyn std::fmt::Display| CliError::new(CliErrorKind::Other, error.to_string());
        let mut request = Request::new(body.map(|body| Body::from(body.to_string())).unwrap_or_default());
        *request.method_mut() = method;
        let mut token = HeaderValue::try_from(format!("Bearer {}", self.token.expose()))
            .map_err(|error| broken(&error))?;
        token.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, token);
        if body.is_some() {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let target = self.base.at(&format!("/api/v1{path}")).map_err(|error| broken(&error))?;
        self.egress.send(request, &target).await.map_err(|error| match error.kind() {
            EgressErrorKind::Connect | EgressErrorKind::Timeout => {
                let text =
                    format!("no hub reachable at {}: {error}\nstart one with `linchpin`", self.base.origin());
                CliError::new(CliErrorKind::Connection, text)
            }
            _ => CliError::new(CliErrorKind::Connection, error.to_string()),
        })
    }

    /// Reads a response of the REST API: its JSON, or the error.
    async fn parse(&self, response: Response<ResponseBody>) -> Result<Value, CliError> {
        let status = response.status();
        let bytes = response.into_body().read_to_end(MAX_RESPONSE_BYTES).await;
        let bytes = bytes.map_err(|error| CliError::new(CliErrorKind::Connection, error.to_string()))?;
        match (status.is_success(), serde_json::from_slice(&bytes)) {
            (true, Ok(parsed)) => Ok(parsed),
            (true, Err(_)) if status == StatusCode::NO_CONTENT && bytes.is_empty() => Ok(Value::Null),
            (true, Err(_)) => Err(self.not_a_hub_error()),
            (false, problem) => Err(api_error(status, &problem.unwrap_or_default())),
        }
    }

    fn not_a_hub_error(&self) -> CliError {
        let text = format!("the server at {} is not a Linchpin hub: check --hub", self.base.origin());
        CliError::new(CliErrorKind::Protocol, text)
    }
}

/// Event of the hub.
pub(crate) struct HubEvent {
    pub(crate) kind: String,
    pub(crate) body: Value,
}

/// Event stream of the hub.
pub(crate) struct HubEvents {
    body: ResponseBody,
    /// Received bytes of events that are not complete.
    text: Vec<u8>,
}

impl HubEvents {
    /// Returns the next event; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<HubEvent> {
        loop {
            while let Some(end) = self.text.windows(2).position(|bytes| bytes == b"\n\n") {
                let event: Vec<u8> = self.text.drain(..end + 2).collect();
                if let Some(event) = HubEvent::parse(&String::from_utf8_lossy(&event)) {
                    return Some(event);
                }
            }
            if self.text.len() > MAX_RESPONSE_BYTES {
                return None;
            }
            self.text.extend_from_slice(&self.body.chunk().await?.ok()?);
        }
    }
}

impl HubEvent {
    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let body = serde_json::from_str(field("data:")?).ok()?;
        Some(HubEvent { kind: field("event:")?.to_owned(), body })
    }
}

/// Parses the URL of `--hub`, which must be an origin: the API path is appended to it.
fn parse_hub_url(url: &str) -> Result<Target, CliError> {
    let invalid_url = |reason: &dyn std::fmt::Display| {
        let text = "give only scheme, host and port, for example https://hub.example:7420";
        CliError::usage(format!("--hub: {reason}: {text}"))
    };
    let base = Target::configured(url).map_err(|error| invalid_url(&error))?;
    if url.contains('#') || base.url() != format!("{}/", base.origin()) {
        return Err(invalid_url(&"path, query and fragment are not supported"));
    }
    Ok(base)
}

/// Creates the error for a data directory without a running hub.
fn no_running_hub(paths: &HubPaths) -> CliError {
    if let Some(reason) = paths.insecure_permissions() {
        let text = format!("ignoring `{}/hub.json`: {reason}", paths.data().display());
        return CliError::new(CliErrorKind::Connection, text);
    }
    let text = format!(
        "no hub runs on `{}`: start one with `linchpin` in another terminal, or select a hub with --data-dir or --hub",
        paths.data().display()
    );
    CliError::new(CliErrorKind::Connection, text)
}

/// Creates the error for an error response of the hub.
fn api_error(status: StatusCode, problem: &Value) -> CliError {
    let text = |name: &str| problem[name].as_str().map(crate::terminal::sanitize);
    let detail = text("detail").unwrap_or_else(|| format!("the hub returned {status}"));
    let message = match text("field") {
        Some(field) => format!("`{field}`: {detail}"),
        None if status == StatusCode::UNAUTHORIZED => format!("the hub rejected the token: {detail}"),
        None => detail,
    };
    CliError::from_problem(message, status.as_u16(), text("code"), text("field"))
}

/// Percent-encodes a path segment or query value.
pub(crate) fn percent_encode(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte.into());
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// Builds a query string from the parts that have a value; empty if there are none.
pub(crate) fn query_string<'a>(parts: impl IntoIterator<Item = (&'a str, Option<String>)>) -> String {
    let parts =
        parts.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", percent_encode(&value?))));
    let query = parts.collect::<Vec<_>>().join("&");
    if query.is_empty() { query } else { format!("?{query}") }
}

/// Builds a JSON object from the members that have a value.
pub(crate) fn json_object<'a>(members: impl IntoIterator<Item = (&'a str, Option<Value>)>) -> Value {
    let present = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    json!(present.collect::<serde_json::Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_name_changes_the_path() {
        assert_eq!(percent_encode("a/b?c=d&é%"), "a%2Fb%3Fc%3Dd%26%C3%A9%25");
        assert_eq!(
            query_string([("a", None), ("b", Some("x y".into())), ("c", Some("1".into()))]),
            "?b=x%20y&c=1"
        );
        assert_eq!(query_string([("a", None)]), "");
    }

    #[test]
    fn a_hub_is_named_by_its_origin_alone() {
        for url in ["http://127.0.0.1:7420", "https://hub.example/"] {
            assert_eq!(parse_hub_url(url).unwrap().origin(), url.trim_end_matches('/'));
        }
        for url in [
            "https://hub.example/prefix",
            "https://hub.example/?a=b",
            "https://hub.example#a",
            "https://ada:x@hub.example",
            "hub",
        ] {
            let failure = parse_hub_url(url).err().unwrap();
            assert_eq!(failure.kind, CliErrorKind::Usage, "{url}");
            assert!(
                failure
                    .to_string()
                    .ends_with("give only scheme, host and port, for example https://hub.example:7420")
            );
        }
    }

    #[test]
    fn what_the_hub_refuses_is_told_with_its_field() {
        let problem = json!({"code": "invalid_field", "field": "timeout_ms", "detail": "must be an integer"});
        let failure = api_error(StatusCode::UNPROCESSABLE_ENTITY, &problem);
        assert_eq!(failure.to_string(), "`timeout_ms`: must be an integer");
        let expected = json!({"error": {
            "kind": "hub", "message": "`timeout_ms`: must be an integer", "status": 422,
            "code": "invalid_field", "field": "timeout_ms",
        }});
        assert_eq!((failure.to_json(), failure.exit_code()), (expected, 1));
        assert_eq!(
            api_error(StatusCode::BAD_GATEWAY, &Value::Null).to_string(),
            "the hub returned 502 Bad Gateway"
        );
    }
}
