//! Sending of HTTP requests with provided headers, authentication and redirects.

use ::http::header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use ::http::{Method as Verb, Request as HttpRequest, Response, StatusCode};
use bytes::Bytes;
use linchpin_jsonrpc::{CallError, Message, ResponsePayload, parse};

use super::body::ResponseReader;
use super::connection::HttpConnection;
use super::errors;
use super::options::{HeadersRequest, HttpTransport, validate_header};
use super::state::HttpMode;
use crate::egress::{Body, EgressError, EgressErrorKind, ResponseBody, Target};
use crate::lock::lock;

/// Maximum number of bytes read from the body of an error response.
const MAX_ERROR_BODY_BYTES: usize = 64 << 10;

/// Parts of an HTTP request to be sent: verb, headers, body and target.
#[derive(Clone, Copy)]
pub(super) struct HttpSend<'a> {
    pub(super) verb: &'a Verb,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: &'a Bytes,
    pub(super) target: &'a Target,
}

impl HttpConnection {
    /// Returns the message endpoint of the HTTP+SSE transport for a POST; `None` if the request goes to the server URL.
    fn override_target(&self, verb: &Verb) -> Option<Target> {
        match &lock(&self.state).mode {
            HttpMode::Sse(endpoint) if *verb == Verb::POST => Some(endpoint.clone()),
            _ => None,
        }
    }

    /// Sends an HTTP request and waits for the response head. If the server requires authentication and there is a
    /// headers provider, the request is sent once more.
    pub(super) async fn send(
        &self,
        verb: Verb,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Response<ResponseBody>, CallError> {
        let endpoint = self.override_target(&verb);
        let target = endpoint.as_ref().unwrap_or(&self.target);
        let request = HttpSend { verb: &verb, headers, body: &body, target };
        if self.http.provider.is_some() {
            return Box::pin(self.send_with_provider(request)).await;
        }
        self.send_authenticated(request).await
    }

    /// Sends an HTTP request with authentication, if it is configured.
    async fn send_authenticated(&self, request: HttpSend<'_>) -> Result<Response<ResponseBody>, CallError> {
        match self.http.authorize.clone() {
            None => self.send_once(request).await,
            Some(authorize) => Box::pin(self.send_authorized(&*authorize, request)).await,
        }
    }

    async fn send_with_provider(&self, request: HttpSend<'_>) -> Result<Response<ResponseBody>, CallError> {
        let HttpSend { verb, headers, .. } = request;
        let first = self.provided_headers(verb, headers, None).await?;
        let response = self.send_authenticated(HttpSend { headers: &first, ..request }).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        let challenge = response.headers().get(WWW_AUTHENTICATE).map_or(&b""[..], HeaderValue::as_bytes);
        let challenge = String::from_utf8_lossy(challenge).into_owned();
        drop(response);
        self.report_diagnostic(|| format!("{verb} was rejected with 401: requesting new headers"));
        let second = self.provided_headers(verb, headers, Some(challenge)).await?;
        self.send_authenticated(HttpSend { headers: &second, ..request }).await
    }

    /// Adds the headers that the header provider of the application returns.
    async fn provided_headers(
        &self,
        verb: &Verb,
        headers: &HeaderMap,
        challenge: Option<String>,
    ) -> Result<HeaderMap, CallError> {
        let mut headers = headers.clone();
        let Some(provider) = &self.http.provider else { return Ok(headers) };
        let extra = provider(HeadersRequest { method: method_name(verb), url: self.url.clone(), challenge });
        let extra = crate::server::run_catching_panics(extra).await;
        for (name, value) in extra.map_err(|error| errors::headers_provider_failed(&error.to_string()))? {
            let (name, value) =
                validate_header(&name, &value).map_err(|reason| errors::headers_provider_failed(&reason))?;
            headers.insert(name, value);
        }
        Ok(headers)
    }

    pub(super) async fn send_once(
        &self,
        outgoing: HttpSend<'_>,
    ) -> Result<Response<ResponseBody>, CallError> {
        let (request, target) = (|| outgoing.http_request(), outgoing.target);
        let sent = match self.http.egress.send(request(), target).await {
            Ok(response) if response.status().is_redirection() => {
                Box::pin(self.follow_redirect(response, request(), target)).await
            }
            sent => sent,
        };
        sent.map_err(|error| match error.kind() {
            EgressErrorKind::Redirect => errors::bad_redirect(&error.to_string()),
            _ if error.may_have_been_sent() => CallError::Lost(error.to_string().into()),
            _ => errors::not_connected(error.to_string()),
        })
    }

    /// Follows a redirect response, if there is one. A request to another origin carries no credentials: they are
    /// all marked as sensitive.
    async fn follow_redirect(
        &self,
        response: Response<ResponseBody>,
        request: HttpRequest<Body>,
        target: &Target,
    ) -> Result<Response<ResponseBody>, EgressError> {
        let HttpTransport { egress, redirects, .. } = &self.http;
        let (response, target) = egress.follow_from(response, request, target, *redirects).await?;
        if !response.status().is_redirection() {
            self.report_diagnostic(|| format!("the server redirects to {target}"));
        }
        Ok(response)
    }

    /// Converts an error response into an error: the JSON-RPC error in its body, or its status.
    pub(super) async fn response_error(&self, response: Response<ResponseBody>) -> CallError {
        let status = response.status();
        let challenge = response.headers().get(WWW_AUTHENTICATE).cloned();
        let body = ResponseReader::new(response.into_body(), self.http.read_timeout)
            .read_start(MAX_ERROR_BODY_BYTES)
            .await;
        if let Ok(Message::Response { reply: ResponsePayload::Error(error), .. }) =
            parse(&body, linchpin_jsonrpc::Limits::default())
            && let Ok(error) = serde_json::from_str(error)
        {
            return CallError::Rejected(error);
        }
        errors::status(status, challenge.as_ref(), &self.redact(&String::from_utf8_lossy(&body)))
    }
}

pub(super) fn method_name(verb: &Verb) -> &'static str {
    match *verb {
        Verb::GET => "GET",
        Verb::DELETE => "DELETE",
        _ => "POST",
    }
}

impl HttpSend<'_> {
    fn http_request(&self) -> HttpRequest<Body> {
        let mut request = HttpRequest::new(Body::from(self.body.clone()));
        *request.method_mut() = self.verb.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }
}
