//! HTTP endpoint: checks requests and routes them by path and method.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, AUTHORIZATION, COOKIE, Entry, ORIGIN,
    PROXY_AUTHORIZATION, VARY,
};
use ::http::request::Parts;
use ::http::{HeaderValue, Method, Request, StatusCode};
use bytes::Buf;
use http_body::Body as HttpBody;
use linchpin_protocol::wire::error_object;
use linchpin_protocol::{Era, Error as ProtocolError, Revision};
use tokio::runtime::Handle;

use super::super::{Service, spawn};
use super::body::BodyBudget;
use super::listener::RequestOrigin;
use super::mirrored_headers;
use super::options::EndpointOptions;
use super::requests::{get, legacy_sse, post};
use super::responses::{self, HttpResponse};
use super::sessions::SessionRegistry;
use super::sessions::id::SessionId;
use super::sessions::store;
use crate::http::header_names;

/// Maximum total size of the messages that are being received or processed, in bytes.
const MAX_TOTAL_BODY_BYTES: usize = 256 << 20;
const ALLOWED_METHODS: &str = "GET, POST, DELETE";

/// State of an MCP endpoint over HTTP, shared by all its requests.
pub(super) struct Endpoint {
    pub(super) service: Service,
    pub(super) options: EndpointOptions,
    pub(super) sessions: SessionRegistry,
    pub(super) legacy_sessions: legacy_sse::LegacySessions,
    pub(super) bodies: BodyBudget,
    is_reaping: AtomicBool,
}

impl Endpoint {
    pub(super) fn new(service: Service, mut options: EndpointOptions) -> Arc<Self> {
        if !service.settings().revisions.iter().any(|revision| revision.era() == Era::Session) {
            options.sessions = false;
            options.legacy = None;
        }
        let sessions = SessionRegistry::new(options.session_limits);
        let (legacy, is_reaping) = (legacy_sse::LegacySessions::default(), AtomicBool::new(false));
        let bodies =
            BodyBudget::new(MAX_TOTAL_BODY_BYTES.max(service.settings().max_message.saturating_mul(2)));
        Arc::new(Endpoint { service, options, sessions, legacy_sessions: legacy, bodies, is_reaping })
    }

    /// Serves one HTTP request to the endpoint: routes, authenticates and handles it. `origin` is its connection, if
    /// known and not among the extensions.
    pub(super) async fn handle<B>(
        self: &Arc<Self>,
        request: Request<B>,
        origin: Option<RequestOrigin>,
    ) -> HttpResponse
    where
        B: HttpBody<Data: Buf> + Send,
    {
        let (mut parts, body) = request.into_parts();
        let local = origin.as_ref().and_then(|origin| origin.addresses.local).map(|address| address.ip());
        for secret in [header_names::SESSION_ID, AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION] {
            if let Entry::Occupied(mut values) = parts.headers.entry(secret) {
                values.iter_mut().for_each(|value| value.set_sensitive(true));
            }
        }
        let metadata = self.metadata(&parts);
        let checked = match metadata {
            Some(_) => self.options.guard.check_host(&parts, local).map(drop),
            None => self.options.guard.check(&parts, local),
        };
        if let Err(error) = checked {
            return responses::error(StatusCode::FORBIDDEN, error.message());
        }
        if let Some(metadata) = metadata {
            return metadata;
        }
        match parts.headers.get(ORIGIN).filter(|origin| self.is_cors_origin(origin)).cloned() {
            None => self.route(parts, body, origin.as_ref()).await,
            Some(page) => {
                let mut reply = match parts.method {
                    Method::OPTIONS => preflight(),
                    _ => self.route(parts, body, origin.as_ref()).await,
                };
                let headers = reply.headers_mut();
                headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, page);
                headers.insert(
                    ACCESS_CONTROL_EXPOSE_HEADERS,
                    HeaderValue::from_static("mcp-session-id, www-authenticate"),
                );
                headers.append(VARY, HeaderValue::from_static("origin"));
                reply
            }
        }
    }

    fn is_cors_origin(&self, origin: &HeaderValue) -> bool {
        origin.to_str().is_ok_and(|origin| self.options.guard.is_origin_allowed(origin))
    }

    async fn route<B: HttpBody<Data: Buf> + Send>(
        self: &Arc<Self>,
        mut parts: Parts,
        body: B,
        origin: Option<&RequestOrigin>,
    ) -> HttpResponse {
        let path = parts.uri.path();
        let is_legacy = self.options.legacy.as_deref() == Some(path);
        if path != self.options.path && !is_legacy {
            return responses::not_found(&self.options.path);
        }
        let line = legacy_sse::take_session_id(self, &mut parts);
        let principal = match self.authenticate(&mut parts).await {
            Ok(principal) => principal,
            Err(refusal) => return *refusal,
        };
        match parts.method {
            Method::POST => post::post(self, parts, body, origin, line, principal).await,
            Method::GET => {
                let mut reply = get::get(self, &parts, principal).await;
                self.end_at_token_expiry(&parts, &mut reply);
                reply
            }
            Method::DELETE => self.delete(&parts, principal.as_deref()).await,
            _ => responses::method_not_allowed(ALLOWED_METHODS),
        }
    }

    /// Returns the session id of a GET or DELETE request, if it has one. Fails with an error response if its revision
    /// has no sessions or a header is invalid.
    pub(super) fn session_id<'a>(
        &self,
        parts: &'a Parts,
    ) -> Result<Option<&'a HeaderValue>, Box<HttpResponse>> {
        let supported = &self.service.settings().revisions;
        let named = mirrored_headers::named_revision(parts, supported).map_err(bad_request)?;
        if named.is_some_and(|revision| revision.era() == Era::Stateless) {
            return Err(Box::new(responses::method_not_allowed("POST")));
        }
        mirrored_headers::session_id(parts).map_err(bad_request)
    }

    async fn delete(&self, parts: &Parts, principal: Option<&str>) -> HttpResponse {
        if !self.options.sessions {
            return responses::method_not_allowed("POST");
        }
        let id = match self.session_id(parts) {
            Ok(Some(id)) => SessionId::parse(id.as_bytes()),
            Ok(None) => {
                let text = "the header Mcp-Session-Id is required to end a session";
                return responses::error(StatusCode::BAD_REQUEST, text);
            }
            Err(refusal) => return *refusal,
        };
        let Some(id) = id else { return session_not_found() };
        let is_local_session = self.sessions.find(&id, principal).is_some();
        if !is_local_session && !store::is_stored(self, &id, principal).await {
            return session_not_found();
        }
        store::end(self, &id);
        responses::empty(StatusCode::NO_CONTENT)
    }

    /// Returns the service for requests of this principal.
    pub(super) fn service_for(&self, principal: Option<&Arc<str>>) -> Service {
        principal
            .map_or_else(|| self.service.clone(), |principal| self.service.for_principal(principal.clone()))
    }

    /// Starts the task that ends idle sessions, when the first session is opened.
    pub(super) fn start_reaper(self: &Arc<Self>) {
        if !self.is_reaping.swap(true, Ordering::Relaxed) {
            spawn(&Handle::current(), reap(Arc::downgrade(self), self.options.session_limits.ttl));
        }
    }

    /// Ends all sessions and the streams of stateless clients.
    pub(super) fn end_sessions(&self) {
        for session in self.sessions.end_all() {
            self.options.events.delete(&session.key);
        }
        self.service.live_catalog().clients().iter().for_each(|caller| caller.close_streams());
        self.legacy_sessions.close(Duration::ZERO);
    }

    /// Ends all streams gracefully, for shutdown.
    pub(super) fn close(&self) {
        self.service.live_catalog().clients().iter().for_each(|caller| caller.close_streams());
        self.sessions.close_streams();
        self.legacy_sessions.close(self.service.settings().shutdown_timeout);
    }
}

/// Minimum interval at which idle sessions are searched.
const MIN_REAP_INTERVAL: Duration = Duration::from_secs(1);

async fn reap(endpoint: Weak<Endpoint>, ttl: Duration) {
    let delay = (ttl / 8).max(MIN_REAP_INTERVAL);
    loop {
        tokio::time::sleep(delay).await;
        let Some(endpoint) = endpoint.upgrade() else { return };
        for session in endpoint.sessions.reap() {
            endpoint.options.events.delete(&session.key);
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "used with map_err")]
fn bad_request(error: ProtocolError) -> Box<HttpResponse> {
    Box::new(responses::error_with(StatusCode::BAD_REQUEST, &error_object(&error, Revision::LATEST)))
}

/// Creates the response for a session that does not exist or belongs to another principal.
pub(super) fn session_not_found() -> HttpResponse {
    responses::error(
        StatusCode::NOT_FOUND,
        "unknown or expired session: open a new one with initialize, without Mcp-Session-Id",
    )
}

/// Creates the response to a CORS preflight request.
fn preflight() -> HttpResponse {
    let mut reply = responses::empty(StatusCode::NO_CONTENT);
    let headers = reply.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(ALLOWED_METHODS));
    headers.insert(
        ACCESS_CONTROL_ALLOW_HEADERS,
        // `*` does not cover Authorization, and old browsers do not support it.
        HeaderValue::from_static(
            "*, authorization, content-type, last-event-id, mcp-method, mcp-name, mcp-protocol-version, mcp-session-id",
        ),
    );
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    reply
}
