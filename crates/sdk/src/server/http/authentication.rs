//! Authentication and authorization of HTTP requests to a server, by OAuth tokens or by a function of the application.

use std::sync::Arc;

use ::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_MAX_AGE, CACHE_CONTROL, RETRY_AFTER, WWW_AUTHENTICATE,
};
use ::http::request::Parts;
use ::http::{HeaderValue, Method, StatusCode};
use linchpin_jsonrpc::{Limits, Message, parse};
use linchpin_protocol::Method as Protocol;
use tokio::time::Instant;

use super::super::auth::{ProtectedResource, Rejection};
use super::super::catalog::Catalog;
use super::super::{Connection, Identity};
use super::endpoint::Endpoint;
use super::options::PrincipalError;
use super::responses::{self, HttpResponse};
use crate::http::decode_string;

#[cfg(feature = "auth")]
impl super::HttpEndpoint {
    /// Requires a valid access token for every request. Serves the protected resource metadata at
    /// `/.well-known/oauth-protected-resource` and allows the host of the resource.
    ///
    /// Cannot be combined with [`Self::principal`].
    pub fn auth(mut self, auth: crate::server::Auth) -> Self {
        let clock = self.service.as_ref().map(|service| service.settings().clock.clone()).unwrap_or_default();
        match auth.build(clock) {
            Ok((resource, host)) if self.options.auth.is_none() => {
                self.options.auth = Some(Arc::new(resource));
                self.allow_host(host)
            }
            Ok(_) => {
                self.set_error("`auth` is set more than once".into());
                self
            }
            Err(fault) => {
                self.set_error(format!("invalid `auth`: {fault}"));
                self
            }
        }
    }
}

impl Endpoint {
    /// Authenticates a request and removes its credentials.
    pub(super) async fn authenticate(
        &self,
        parts: &mut Parts,
    ) -> Result<Option<Arc<str>>, Box<HttpResponse>> {
        let Some(auth) = &self.options.auth else {
            let Some(identify) = &self.options.principal_resolver else { return Ok(None) };
            return Ok(identify(parts).map_err(principal_error_response)?.map(Into::into));
        };
        let other_path = Some(parts.uri.path()).filter(|path| *path != self.options.path);
        let verified = auth.authenticate(parts, other_path).await.map_err(rejection_response)?;
        if parts.method != Method::POST {
            auth.check_scopes(&verified.identity, &[]).map_err(rejection_response)?; // the scopes of a POST are known only after parsing
        }
        ProtectedResource::strip_credentials(parts, &verified);
        Ok(Some(verified.principal))
    }

    /// Checks all scopes that a message needs, before anything is executed.
    pub(super) fn check_scopes(&self, parts: &Parts, message: &Message<'_>) -> Result<(), Box<HttpResponse>> {
        let Some(auth) = &self.options.auth else { return Ok(()) };
        let Some(identity) = parts.extensions.get::<Arc<Identity>>() else {
            return Err(principal_error_response(PrincipalError::Unauthorized));
        };
        let mut required = Vec::new();
        collect_scopes(&self.service.catalog(), message, self.service.settings().limits, &mut required);
        auth.check_scopes(identity, &required).map_err(rejection_response)
    }

    /// Returns the challenge for a request whose scopes were known only while it ran: it resumes a call, reads a task,
    /// or a layer selected another tool.
    pub(super) fn scope_challenge(&self, connection: &Connection) -> Option<HttpResponse> {
        let required = connection.insufficient_scopes()?;
        let permitted = self.options.auth.as_ref()?.check_scopes(connection.identity()?, required);
        permitted.err().map(|rejection| *rejection_response(rejection))
    }

    /// Ends an open-ended stream when the token that opened it expires.
    pub(super) fn end_at_token_expiry(&self, parts: &Parts, reply: &mut HttpResponse) {
        let Some((auth, identity)) = self.options.auth.as_ref().zip(parts.extensions.get::<Arc<Identity>>())
        else {
            return;
        };
        let end = auth.time_left(identity).and_then(|left| Instant::now().checked_add(left));
        if let Some(end) = end {
            reply.body_mut().end_at(end);
        }
    }

    /// Responds with the protected resource metadata if the request has its path. It is public, also for browsers.
    pub(super) fn metadata(&self, parts: &Parts) -> Option<HttpResponse> {
        let document = self.options.auth.as_ref()?.metadata_at(parts.uri.path())?;
        let mut reply = match parts.method {
            Method::GET => responses::json(StatusCode::OK, document.to_vec()),
            Method::HEAD => responses::json(StatusCode::OK, Vec::new()),
            Method::OPTIONS => {
                let mut reply = responses::empty(StatusCode::NO_CONTENT);
                let headers = reply.headers_mut();
                headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, HEAD"));
                headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("*"));
                headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
                reply
            }
            _ => responses::method_not_allowed("GET, HEAD, OPTIONS"),
        };
        let headers = reply.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
        Some(reply)
    }
}

/// Collects the scopes of all tools that a message calls.
fn collect_scopes(catalog: &Catalog, message: &Message<'_>, limits: Limits, required: &mut Vec<String>) {
    match message {
        Message::Request { method, params, .. } if *method == Protocol::CallTool.name() => {
            let tool = params.find("name").and_then(decode_string).and_then(|name| catalog.tools.find(&name));
            required.extend(tool.into_iter().flat_map(|tool| tool.scopes.iter().cloned()));
        }
        Message::Batch(messages) => {
            let messages = messages.iter().filter_map(|message| parse(message.as_bytes(), limits).ok());
            messages
                .filter(|message| !matches!(message, Message::Batch(_)))
                .for_each(|message| collect_scopes(catalog, &message, limits, required));
        }
        _ => {}
    }
}

fn rejection_response(rejection: Rejection) -> Box<HttpResponse> {
    let Rejection { status, text, challenges } = rejection;
    tracing::debug!(status = status.as_u16(), reason = &*text, "request rejected");
    let mut reply = responses::error(status, &text);
    for challenge in challenges {
        reply.headers_mut().append(WWW_AUTHENTICATE, challenge);
    }
    if status == StatusCode::SERVICE_UNAVAILABLE {
        reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
    }
    Box::new(reply)
}

fn principal_error_response(refusal: PrincipalError) -> Box<HttpResponse> {
    Box::new(match refusal {
        PrincipalError::Unauthorized => {
            let mut reply = responses::error(StatusCode::UNAUTHORIZED, "authentication required");
            reply.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            reply
        }
        PrincipalError::Forbidden => responses::error(StatusCode::FORBIDDEN, "access denied"),
    })
}
