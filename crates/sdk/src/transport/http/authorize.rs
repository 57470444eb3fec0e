//! Authentication of HTTP requests in the client: a rejected request is sent again with new credentials.

use ::http::header::WWW_AUTHENTICATE;
use ::http::{Method as Verb, Response, StatusCode};
use linchpin_jsonrpc::CallError;
use linchpin_protocol::Method;

use super::connection::HttpConnection;
use super::errors;
use super::send::{HttpSend, method_name};
use crate::auth::{AuthRejection, Authorize, Challenge, Request};
use crate::egress::ResponseBody;
use crate::http::header_names;
use crate::lock::lock;

/// Maximum number of resends of one request: for a nonce, for a token, and for more scopes.
const MAX_RESENDS: usize = 4;

impl HttpConnection {
    pub(super) async fn send_authorized(
        &self,
        authorize: &dyn Authorize,
        outgoing: HttpSend<'_>,
    ) -> Result<Response<ResponseBody>, CallError> {
        let (egress, HttpSend { verb, target, .. }) = (&self.http.egress, outgoing);
        let is_background = self.is_background(outgoing);
        let request =
            Request { method: method_name(verb), target, server: &self.target, egress, is_background };
        let mut resends = 0;
        loop {
            let paused = self.wire.pause_timeouts();
            let credentials = authorize.credentials(request).await;
            let credentials = credentials.map_err(|error| errors::not_authorized(&error, None))?;
            drop(paused);
            let mut headers = outgoing.headers.clone();
            for (name, value) in credentials.headers {
                headers.insert(name, value);
            }
            let response = self.send_once(HttpSend { headers: &headers, ..outgoing }).await?;
            authorize.on_response(
                request,
                credentials.generation,
                response.status().as_u16(),
                response.headers(),
            );
            let refusal = auth_rejection(&response, credentials.generation).filter(|_| resends < MAX_RESENDS);
            let Some(refusal) = refusal else { return Ok(response) };
            self.report_diagnostic(|| {
                format!("{verb} was rejected with {}: {}", refusal.status, describe_challenge(&refusal))
            });
            let _paused = self.wire.pause_timeouts(); // a user may have to sign in
            match authorize.on_rejected(request, refusal).await {
                Ok(true) => resends += 1,
                Ok(false) => return Ok(response),
                Err(error) => return Err(errors::not_authorized(&error, Some(response.status()))),
            }
        }
    }

    /// Returns whether a request runs in the background, so that no caller waits for it. During the negotiation a
    /// caller waits for it, and for the first stream of changes; later streams replace ended ones in the background.
    fn is_background(&self, outgoing: HttpSend<'_>) -> bool {
        let listens = || {
            outgoing.headers.get(header_names::METHOD).is_some_and(|method| method == Method::Listen.name())
        };
        let is_stream = *outgoing.verb != Verb::POST || listens() && lock(&self.state).has_listened;
        is_stream && self.wire.revision().is_some()
    }
}

fn auth_rejection(response: &Response<ResponseBody>, generation: u64) -> Option<AuthRejection> {
    let status = response.status();
    if status != StatusCode::UNAUTHORIZED && status != StatusCode::FORBIDDEN {
        return None;
    }
    let values = response.headers().get_all(WWW_AUTHENTICATE).iter();
    let values: Vec<_> = values.map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
    let challenge = Challenge::parse(values.iter().map(|value| &**value));
    Some(AuthRejection { status: status.as_u16(), challenge, generation })
}

/// Describes an authentication challenge for diagnostics, without values that the server chooses.
fn describe_challenge(refusal: &AuthRejection) -> &'static str {
    match refusal.challenge.error.as_deref() {
        Some("insufficient_scope") => "the token lacks a scope",
        Some("use_dpop_nonce") => "a DPoP nonce is required",
        Some(_) => "the token was rejected",
        None => "authentication is required",
    }
}
