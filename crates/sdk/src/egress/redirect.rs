//! Redirects: followed only on request and one at a time; secrets never leave their origin.

use http::header::{AUTHORIZATION, COOKIE, LOCATION, PROXY_AUTHORIZATION};
use http::{HeaderMap, Method, Request, Response, StatusCode};

use super::body::{Body, ResponseBody};
use super::error::{EgressError, EgressErrorKind};
use super::pool::Egress;
use super::target::Target;
use crate::http::header_names::{LAST_EVENT_ID, NAME, PARAM_PREFIX, SESSION_ID};

/// Limits on the redirects that an outgoing request follows: their number, and whether to other origins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Redirects {
    max: usize,
    cross_origin: bool,
}

impl Redirects {
    /// Follows at most `max` redirects, all within the origin of the first request.
    pub fn same_origin(max: usize) -> Self {
        Redirects { max, cross_origin: false }
    }

    /// Follows at most `max` redirects, to any URL that the policy allows for discovered URLs.
    pub fn any_origin(max: usize) -> Self {
        Redirects { max, cross_origin: true }
    }
}

impl Egress {
    /// Sends an HTTP request and follows redirects. Returns the response and the target that sent it.
    ///
    /// `GET` and `HEAD` follow every kind of redirect; other methods only 307 and 308, which repeat the request
    /// unchanged. Redirects that do not apply are returned as the response. When a redirect leaves the origin,
    /// credentials, the session id, headers that mirror the body and all values marked as sensitive are removed for
    /// the rest of the chain.
    pub async fn follow(
        &self,
        request: Request<Body>,
        target: &Target,
        redirects: Redirects,
    ) -> Result<(Response<ResponseBody>, Target), EgressError> {
        let response = self.send(request.clone(), target).await?;
        self.follow_from(response, request, target, redirects).await
    }

    /// Like [`Self::follow`], for a request that was already sent and has this response.
    pub(crate) async fn follow_from(
        &self,
        mut response: Response<ResponseBody>,
        mut request: Request<Body>,
        target: &Target,
        redirects: Redirects,
    ) -> Result<(Response<ResponseBody>, Target), EgressError> {
        let mut target = target.clone();
        for redirect_count in 0.. {
            let next = redirect_target(&response, request.method(), &target);
            let next = next.inspect_err(|error| self.deny(&target.host(), None, &error.to_string()))?;
            let Some(next) = next else { return Ok((response, target)) };
            let stop = |reason: String| {
                let text = format!("`{}` redirects to `{}`: {reason}", target.origin(), next.origin());
                self.deny(&next.host(), None, &text);
                Err(EgressError::new(EgressErrorKind::Redirect, text))
            };
            if redirect_count == redirects.max {
                return stop(format!("too many redirects, at most {redirect_count} are followed"));
            }
            if !target.same_origin(&next) {
                if !redirects.cross_origin {
                    let text = "redirects to another origin are not followed; use the URL of that origin instead if you trust it";
                    return stop(text.into());
                }
                remove_secrets(request.headers_mut());
            }
            drop(response); // its connection may be reused
            target = next;
            response = self.send(request.clone(), &target).await?;
        }
        Err(EgressError::new(EgressErrorKind::Redirect, "too many redirects"))
    }
}

/// Returns the URL that a redirect response leads to, if the redirect is to be followed.
fn redirect_target(
    response: &Response<ResponseBody>,
    method: &Method,
    target: &Target,
) -> Result<Option<Target>, EgressError> {
    let is_redirect = match response.status() {
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND | StatusCode::SEE_OTHER => {
            *method == Method::GET || *method == Method::HEAD
        }
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => true,
        _ => false,
    };
    let Some(location) = response.headers().get(LOCATION).filter(|_| is_redirect) else { return Ok(None) };
    let next = location
        .to_str()
        .map_err(|_| "the location contains characters that are not allowed in a URL".to_owned());
    let next = next.and_then(|location| target.discovered(location).map_err(|error| error.to_string()));
    next.map(Some).map_err(|reason| {
        let text = format!("`{}` sent an invalid redirect: {reason}", target.host());
        EgressError::new(EgressErrorKind::Redirect, text)
    })
}

fn remove_secrets(headers: &mut HeaderMap) {
    for name in [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION, SESSION_ID, LAST_EVENT_ID, NAME] {
        headers.remove(name);
    }
    let others = headers
        .iter()
        .filter(|(name, value)| value.is_sensitive() || name.as_str().starts_with(PARAM_PREFIX))
        .map(|(name, _)| name.clone());
    for name in others.collect::<Vec<_>>() {
        headers.remove(name);
    }
}
