//! Middleware of every request: host and origin check, trace span, metrics and security headers.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use linchpin::server::web::{ConnectionAddresses, OriginError};

use linchpin_hub_core::telemetry::TARGET;
use tracing::Instrument as _;
use tracing::field::Empty;

use crate::app::AppState;
use crate::problem::{Problem, Result};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
/// Header with the W3C trace context of the client.
pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const CONTENT_POLICY: &str =
    "default-src 'self'; script-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'";

/// Checks a request, runs its handler and adds security headers to the response.
pub(crate) async fn middleware(State(app): State<Arc<AppState>>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let (parts, body) = request.into_parts();
    let route = route.as_ref().map_or("none", |route| route.as_str());
    let span = tracing::trace_span!(
        target: TARGET,
        "request",
        otel.name = %format_args!("{} {route}", parts.method),
        otel.kind = "server",
        otel.status_code = Empty,
        traceparent = parts.headers.get(TRACEPARENT).and_then(|value| value.to_str().ok()),
        http.request.method = parts.method.as_str(),
        http.route = route,
        http.response.status_code = Empty,
    );
    let mut response = match check_source(&app, &parts) {
        Ok(()) => next.run(Request::from_parts(parts, body)).instrument(span.clone()).await,
        Err(problem) => problem.into_response(),
    };
    add_security_headers(response.headers_mut());
    if response.status().is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
    span.record("http.response.status_code", response.status().as_u16());
    app.metrics.record_request(route, response.status(), started.elapsed());
    response
}

fn check_source(app: &AppState, parts: &Parts) -> Result<()> {
    let local = parts.extensions.get::<ConnectionAddresses>().and_then(|addresses| addresses.local);
    let local = local.map(|address| address.ip());
    let has_header =
        |name: &HeaderName, value: &str| parts.headers.get(name).is_some_and(|header| header == value);
    let forbidden = |error: OriginError| {
        let code = match error {
            OriginError::Host => "host_not_served",
            OriginError::Origin => "origin_not_allowed",
        };
        Problem::new(StatusCode::FORBIDDEN, code, error.message())
    };
    if !parts.method.is_safe() && has_header(&SEC_FETCH_SITE, "cross-site") {
        return Err(forbidden(OriginError::Origin));
    }
    // A navigation from another site is allowed: it is a safe request, and the other site cannot read the response.
    let is_visit = parts.method.is_safe() && has_header(&SEC_FETCH_MODE, "navigate");
    let checked =
        if is_visit { app.guard.check_host(parts, local).map(drop) } else { app.guard.check(parts, local) };
    checked.map_err(forbidden)
}

/// Adds the security headers to a response, such as `Content-Security-Policy` and `nosniff`.
fn add_security_headers(headers: &mut HeaderMap) {
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(REFERRER_POLICY).or_insert(HeaderValue::from_static("no-referrer"));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}
