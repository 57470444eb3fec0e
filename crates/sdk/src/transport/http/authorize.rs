//! Authenticated requests, resent after an authentication challenge.

use ::http::header::WWW_AUTHENTICATE;
use ::http::{Method as Verb, Response, StatusCode};
use linchpin_jsonrpc::CallError;
use linchpin_protocol::Method;

use super::connection::Link;
use super::errors;
use super::send::{Outgoing, name_of};
use crate::auth::{Authorize, Challenge, Refusal, Request};
use crate::egress::ResponseBody;
use crate::http::header_names;
use crate::lock::lock;

/// Maximum number of resends of one request: for a nonce, for a token, and for more scopes.
const MOST: usize = 4;

impl Link {
    pub(super) async fn send_authorized(
        &self,
        authorize: &dyn Authorize,
        outgoing: Outgoing<'_>,
    ) -> Result<Response<ResponseBody>, CallError> {
        let (egress, Outgoing { verb, target, .. }) = (&self.http.egress, outgoing);
        let is_background = self.is_background(outgoing);
        let request = Request { method: name_of(verb), target, server: &self.target, egress, is_background };
        let mut again = 0;
        loop {
            let paused = self.wire.pause();
            let credentials = authorize.credentials(request).await;
            let credentials = credentials.map_err(|error| errors::not_authorized(&error, None))?;
            drop(paused);
            let mut headers = outgoing.headers.clone();
            for (name, value) in credentials.headers {
                headers.insert(name, value);
            }
            let response = self.send_with(Outgoing { headers: &headers, ..outgoing }).await?;
            authorize.answered(request, credentials.mark, response.status().as_u16(), response.headers());
            let refusal = refusal(&response, credentials.mark).filter(|_| again < MOST);
            let Some(refusal) = refusal else { return Ok(response) };
            self.diagnose(|| format!("{verb} was rejected with {}: {}", refusal.status, wanted(&refusal)));
            let _paused = self.wire.pause(); // a user may have to sign in
            match authorize.refused(request, refusal).await {
                Ok(true) => again += 1,
                Ok(false) => return Ok(response),
                Err(error) => return Err(errors::not_authorized(&error, Some(response.status()))),
            }
        }
    }

    /// Returns whether no caller waits for a request. During the negotiation a caller waits for it, and for the
    /// first stream of changes; later streams replace ended ones in the background.
    fn is_background(&self, outgoing: Outgoing<'_>) -> bool {
        let listens = || {
            outgoing.headers.get(header_names::METHOD).is_some_and(|method| method == Method::Listen.name())
        };
        let is_stream = *outgoing.verb != Verb::POST || listens() && lock(&self.state).has_listened;
        is_stream && self.wire.revision().is_some()
    }
}

fn refusal(response: &Response<ResponseBody>, mark: u64) -> Option<Refusal> {
    let status = response.status();
    if status != StatusCode::UNAUTHORIZED && status != StatusCode::FORBIDDEN {
        return None;
    }
    let values = response.headers().get_all(WWW_AUTHENTICATE).iter();
    let values: Vec<_> = values.map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
    let challenge = Challenge::read(values.iter().map(|value| &**value));
    Some(Refusal { status: status.as_u16(), challenge, mark })
}

/// Describes the challenge, without values that the server chooses.
fn wanted(refusal: &Refusal) -> &'static str {
    match refusal.challenge.error.as_deref() {
        Some("insufficient_scope") => "the token lacks a scope",
        Some("use_dpop_nonce") => "a DPoP nonce is required",
        Some(_) => "the token was rejected",
        None => "authentication is required",
    }
}
