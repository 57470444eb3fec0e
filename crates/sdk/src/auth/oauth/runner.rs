//! Runner of the OAuth flow: sends its requests through the egress module and redirects the user.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Method, Request, Response};

use super::account::{Account, AccountLocks};
use super::{GrantType, OAuthConfig};
use crate::auth::error::{AuthError, AuthErrorKind};
use crate::auth::flow::dpop;
use crate::auth::flow::http::{FlowRequest, FlowResponse, Purpose};
use crate::auth::flow::{Flow, FlowAction, FlowEvent};
use crate::auth::scheme::header_value;
use crate::auth::secret::Secret;
use crate::auth::store::record::TokenRecord;
use crate::egress::{
    Body, Egress, EgressError, EgressErrorKind, Redirects, ResponseBody, Target, UrlSource, host_of,
};
use crate::http::header_names;

/// Timeout of a request of the authorization flow.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a response in the authorization flow, in bytes.
const MAX_RESPONSE_BYTES: usize = 1 << 20;
/// Maximum number of redirects followed for metadata, within one origin.
const MAX_REDIRECTS: usize = 3;

/// Completed step of an OAuth flow, for observers: an HTTP request, or the redirect of the user.
#[derive(Debug)]
#[non_exhaustive]
pub struct AuthStep<'a> {
    /// Purpose of the request; `None` if the user was redirected to the authorization server.
    pub purpose: Option<Purpose>,
    /// URL of the request without its query.
    pub url: &'a str,
    /// HTTP status of the response, if one was received.
    pub status: Option<u16>,
    /// Error of the request, if no response was received.
    pub error: Option<&'a AuthError>,
    /// Duration of the step.
    pub duration: Duration,
}

/// Runner of an OAuth flow: performs its HTTP requests and the redirects of the user.
pub(in crate::auth) struct Runner<'a> {
    pub(in crate::auth) profile: &'a OAuthConfig,
    /// MCP server from which the URLs of the flow were discovered.
    pub(in crate::auth) server: &'a Target,
    pub(in crate::auth) egress: &'a Egress,
    pub(in crate::auth) account: &'a Account,
    /// Number of token operations that were completed when this one began. If it has grown since, another operation has
    /// finished in the meantime.
    pub(in crate::auth) generation: u64,
    /// Lock of the token record against other processes. It is released before a sign-in, which may take long.
    pub(in crate::auth) lease: Option<Box<dyn Send>>,
    /// Locks against other operations in this process.
    pub(in crate::auth) locks: &'a mut AccountLocks,
}

impl Runner<'_> {
    /// Runs an OAuth flow until it has a token: sends its requests and redirects the user. Returns `None` if another
    /// operation completed while this one waited to start a sign-in.
    pub(in crate::auth) async fn run(
        &mut self,
        flow: &mut Flow,
        first: Result<FlowAction, AuthError>,
    ) -> Result<Option<TokenRecord>, AuthError> {
        let mut action = first?;
        loop {
            let event = match action {
                FlowAction::Done(record) => return Ok(Some(*record)),
                FlowAction::Send(exchange) => {
                    match send(&exchange, self.profile, self.server, self.egress).await {
                        Ok(reply) => FlowEvent::Response(reply),
                        Err(error) => FlowEvent::Unreachable(error),
                    }
                }
                FlowAction::GetRedirectUri => {
                    (self.lease, self.locks.update) = (None, None);
                    if self.locks.sign_in.is_none() {
                        self.locks.sign_in = Some(self.account.sign_in_lock.clone().lock_owned().await);
                    }
                    if self.account.current().1 != self.generation {
                        return Ok(None);
                    }
                    FlowEvent::RedirectUri(redirect_handler(self.profile)?.redirect_uri().await?)
                }
                FlowAction::RedirectUser(url) => {
                    FlowEvent::Redirect(self.redirect_user(url, flow.detach()?).await?)
                }
                FlowAction::GetAssertion { audience } => {
                    FlowEvent::Assertion(assertion(self.profile, audience).await?)
                }
            };
            action = flow.next(event, now(self.profile)).inspect_err(|error| {
                if let Some(host) = error.denied_host() {
                    self.egress.deny(host, None, "the authorization server metadata contains an unsafe URL");
                }
            })?;
        }
    }

    /// Redirects the user and waits for the redirect back, as long as a request waits for the token.
    async fn redirect_user(&mut self, url: String, flow_state: Secret) -> Result<String, AuthError> {
        let (started, profile, mut waiters) =
            (Instant::now(), self.profile, self.account.waiters.subscribe());
        let url_without_query = url.split('?').next().unwrap_or_default().to_owned();
        let abandoned_error = |reason: String| {
            AuthError::new(
                AuthErrorKind::UserAbandoned,
                format!("no user signed in at `{url_without_query}` {reason}; try again"),
            )
        };
        let result = tokio::select! {
            result = tokio::time::timeout(profile.sign_in_timeout, redirect_handler(profile)?.redirect_detached(url, flow_state)) => match result {
                Ok(result) => result,
                Err(_) => Err(abandoned_error(format!("within {} minutes", profile.sign_in_timeout.as_secs().div_ceil(60)))),
            },
            _ = waiters.wait_for(|count| *count == 0) => {
                self.account.is_abandoned.store(true, Ordering::Relaxed);
                Err(abandoned_error("before the request was cancelled".to_owned()))
            }
        };
        let error = result.as_ref().err().filter(|error| error.kind() != AuthErrorKind::Redirected);
        report_step(
            profile,
            &AuthStep {
                purpose: None,
                url: &url_without_query,
                status: None,
                error,
                duration: started.elapsed(),
            },
        );
        result
    }
}

pub(in crate::auth) fn now(profile: &OAuthConfig) -> u64 {
    profile.clock.since_epoch().as_secs()
}

/// Sends one HTTP request of the OAuth flow and reports it to `on_step`.
pub(in crate::auth) async fn send(
    exchange: &FlowRequest,
    profile: &OAuthConfig,
    server: &Target,
    egress: &Egress,
) -> Result<FlowResponse, AuthError> {
    let started = Instant::now();
    let result = match tokio::time::timeout(RESPONSE_TIMEOUT, fetch(exchange, server, egress)).await {
        // Some servers send errors with a success status.
        Ok(Ok(reply)) if !reply.is_success() || reply.has_error() => Ok(exchange.redact(reply)),
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(reason)) => Err(unreachable(exchange, &reason)),
        Err(_) => {
            Err(unreachable(exchange, &format!("no response within {} seconds", RESPONSE_TIMEOUT.as_secs())))
        }
    };
    let url = exchange.url().split('?').next().unwrap_or_default();
    tracing::debug!(purpose = %exchange.purpose(), url, status = result.as_ref().ok().map(|reply| reply.status), "auth");
    report_step(
        profile,
        &AuthStep {
            purpose: Some(exchange.purpose()),
            url,
            status: result.as_ref().ok().map(|reply| reply.status),
            error: result.as_ref().err(),
            duration: started.elapsed(),
        },
    );
    result
}

fn report_step(profile: &OAuthConfig, step: &AuthStep<'_>) {
    if let Some(on_step) = &profile.on_step {
        crate::client::catch_hook_panic(|| on_step(step));
    }
}

fn unreachable(exchange: &FlowRequest, reason: &str) -> AuthError {
    let url = crate::auth::error::sanitize(exchange.url().split('?').next().unwrap_or_default());
    AuthError::new(AuthErrorKind::Unreachable, format!("{} at `{url}` failed: {reason}", exchange.purpose()))
}

async fn fetch(exchange: &FlowRequest, server: &Target, egress: &Egress) -> Result<FlowResponse, String> {
    let target = if exchange.is_configured() {
        Target::configured(exchange.url())
    } else {
        server.discovered(exchange.url())
    };
    let target = target.map_err(|error| {
        egress.deny(&host_of(exchange.url()), None, &error.to_string());
        error.to_string()
    })?;
    let mut response = attempt(exchange, &target, egress).await?;
    if matches!(&response, Err(error) if matches!(error.kind(), EgressErrorKind::Refused(_)))
        && target.source() == (UrlSource::Discovered { reached_class: None })
    {
        // The URL may be on the network of the server, which has not been contacted yet.
        egress.preconnect(server).await.map_err(|error| error.to_string())?;
        response = attempt(exchange, &target, egress).await?;
    }
    let response = response.map_err(|error| error.to_string())?;
    let status = response.status().as_u16();
    let nonce =
        response.headers().get(dpop::NONCE_HEADER).and_then(|nonce| nonce.to_str().ok()).map(str::to_owned);
    let body =
        response.into_body().read_to_end(MAX_RESPONSE_BYTES).await.map_err(|error| error.to_string())?;
    Ok(FlowResponse { status, body: body.to_vec(), nonce })
}

type SendResult = Result<Response<ResponseBody>, EgressError>;

async fn attempt(exchange: &FlowRequest, target: &Target, egress: &Egress) -> Result<SendResult, String> {
    let request = http_request(exchange)?;
    Ok(match exchange.method() {
        // A `POST` contains secrets, so its redirects are not followed.
        "POST" => egress.send(request, target).await,
        _ => egress
            .follow(request, target, Redirects::same_origin(MAX_REDIRECTS))
            .await
            .map(|(response, _)| response),
    })
}

fn http_request(exchange: &FlowRequest) -> Result<Request<Body>, String> {
    let body = exchange.body().map(|(_, body)| Body::from(body.expose().to_owned()));
    let mut request = Request::new(body.unwrap_or_default());
    *request.method_mut() = if exchange.body().is_some() { Method::POST } else { Method::GET };
    let headers = request.headers_mut();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    let revision = HeaderValue::from_static(linchpin_protocol::Revision::LATEST.as_str());
    headers.insert(header_names::PROTOCOL_VERSION, revision);
    if let Some((content_type, _)) = exchange.body() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    for (name, value) in exchange.headers() {
        let value = header_value(value.expose()).map_err(|error| error.to_string())?;
        headers.insert(HeaderName::from_static(name), value);
    }
    Ok(request)
}

fn redirect_handler(profile: &OAuthConfig) -> Result<&dyn crate::auth::RedirectHandler, AuthError> {
    let no_handler_error =
        || AuthError::new(AuthErrorKind::SignInRequired, "sign-in required, but no redirect handler is set");
    profile.redirect_handler.as_deref().ok_or_else(no_handler_error)
}

async fn assertion(profile: &OAuthConfig, audience: String) -> Result<Secret, AuthError> {
    match &profile.grant {
        GrantType::Workload(assertion) => assertion(audience).await,
        GrantType::Enterprise(provider) => (provider.id_token)().await,
        GrantType::AuthorizationCode | GrantType::ClientCredentials => {
            Err(AuthError::new(AuthErrorKind::Setup, "no assertion provider is configured for this client"))
        }
    }
}
