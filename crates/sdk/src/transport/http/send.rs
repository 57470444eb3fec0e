//! HTTP requests with provided headers, authentication and redirects.

use ::http::header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use ::http::{Method as Verb, Request as HttpRequest, Response, StatusCode};
use bytes::Bytes;
use linchpin_jsonrpc::{CallError, Message, Reply, parse};

use super::body::Reading;
use super::connection::Link;
use super::errors;
use super::options::{HeadersRequest, Http, checked};
use super::state::Way;
use crate::egress::{Body, EgressError, EgressErrorKind, ResponseBody, Target};
use crate::lock::lock;

/// Maximum number of bytes read from the body of an error response.
const REFUSAL: usize = 64 << 10;

/// An HTTP request and its target.
#[derive(Clone, Copy)]
pub(super) struct Outgoing<'a> {
    pub(super) verb: &'a Verb,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: &'a Bytes,
    pub(super) target: &'a Target,
}

impl Link {
    /// Returns the target of a request, if it is not the server URL.
    fn destination(&self, verb: &Verb) -> Option<Target> {
        match &lock(&self.state).way {
            Way::Sse(endpoint) if *verb == Verb::POST => Some(endpoint.clone()),
            _ => None,
        }
    }

    /// Sends a request and waits for the response head. If the server requires authentication and there is a headers
    /// provider, the request is sent once more.
    pub(super) async fn send(
        &self,
        verb: Verb,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Response<ResponseBody>, CallError> {
        let elsewhere = self.destination(&verb);
        let target = elsewhere.as_ref().unwrap_or(&self.target);
        let request = Outgoing { verb: &verb, headers, body: &body, target };
        if self.http.provider.is_some() {
            return Box::pin(self.send_provided(request)).await;
        }
        self.send_as(request).await
    }

    /// Sends a request with authentication, if it is configured.
    async fn send_as(&self, request: Outgoing<'_>) -> Result<Response<ResponseBody>, CallError> {
        match self.http.authorize.clone() {
            None => self.send_with(request).await,
            Some(authorize) => Box::pin(self.send_authorized(&*authorize, request)).await,
        }
    }

    async fn send_provided(&self, request: Outgoing<'_>) -> Result<Response<ResponseBody>, CallError> {
        let Outgoing { verb, headers, .. } = request;
        let first = self.provided(verb, headers, None).await?;
        let response = self.send_as(Outgoing { headers: &first, ..request }).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        let challenge = response.headers().get(WWW_AUTHENTICATE).map_or(&b""[..], HeaderValue::as_bytes);
        let challenge = String::from_utf8_lossy(challenge).into_owned();
        drop(response);
        self.diagnose(|| format!("{verb} was rejected with 401: requesting new headers"));
        let second = self.provided(verb, headers, Some(challenge)).await?;
        self.send_as(Outgoing { headers: &second, ..request }).await
    }

    /// Adds the headers of the provider.
    async fn provided(
        &self,
        verb: &Verb,
        headers: &HeaderMap,
        refused: Option<String>,
    ) -> Result<HeaderMap, CallError> {
        let mut headers = headers.clone();
        let Some(provider) = &self.http.provider else { return Ok(headers) };
        let given = provider(HeadersRequest { method: name_of(verb), url: self.url.clone(), refused });
        let given = crate::server::caught_future(given).await;
        for (name, value) in given.map_err(|error| errors::no_headers(&error.to_string()))? {
            let (name, value) = checked(&name, &value).map_err(|reason| errors::no_headers(&reason))?;
            headers.insert(name, value);
        }
        Ok(headers)
    }

    pub(super) async fn send_with(
        &self,
        outgoing: Outgoing<'_>,
    ) -> Result<Response<ResponseBody>, CallError> {
        let (request, target) = (|| outgoing.written(), outgoing.target);
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
        let Http { egress, redirects, .. } = &self.http;
        let (response, target) = egress.follow_from(response, request, target, *redirects).await?;
        if !response.status().is_redirection() {
            self.diagnose(|| format!("the server redirects to {target}"));
        }
        Ok(response)
    }

    /// Converts an error response into an error: the JSON-RPC error in its body, or its status.
    pub(super) async fn refusal(&self, response: Response<ResponseBody>) -> CallError {
        let status = response.status();
        let challenge = response.headers().get(WWW_AUTHENTICATE).cloned();
        let body = Reading::new(response.into_body(), self.http.read_timeout).beginning(REFUSAL).await;
        if let Ok(Message::Response { reply: Reply::Error(error), .. }) =
            parse(&body, linchpin_jsonrpc::Limits::default())
            && let Ok(error) = serde_json::from_str(error)
        {
            return CallError::Rejected(error);
        }
        errors::status(status, challenge.as_ref(), &self.without_secrets(&String::from_utf8_lossy(&body)))
    }
}

pub(super) fn name_of(verb: &Verb) -> &'static str {
    match *verb {
        Verb::GET => "GET",
        Verb::DELETE => "DELETE",
        _ => "POST",
    }
}

impl Outgoing<'_> {
    fn written(&self) -> HttpRequest<Body> {
        let mut request = HttpRequest::new(Body::from(self.body.clone()));
        *request.method_mut() = self.verb.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }
}
