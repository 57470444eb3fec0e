//! Runner of a flow: sends its requests through the egress module and redirects the user.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Method, Request, Response};

use super::account::{Account, Held};
use super::{Grant, Profile};
use crate::auth::error::{AuthError, AuthErrorKind};
use crate::auth::flow::dpop;
use crate::auth::flow::http::{Exchange, Purpose, Reply};
use crate::auth::flow::{Action, Event, Flow};
use crate::auth::scheme::header_value;
use crate::auth::secret::Secret;
use crate::auth::store::record::Record;
use crate::egress::{
    Body, Egress, EgressError, EgressErrorKind, Redirects, ResponseBody, Target, Trust, host_of,
};
use crate::http::header_names;

/// Timeout and maximum size of a response.
const PATIENCE: Duration = Duration::from_secs(10);
const MOST: usize = 1 << 20;
/// Maximum number of redirects followed for metadata, within one origin.
const REDIRECTS: usize = 3;

/// Completed step of an authorization.
#[derive(Debug)]
#[non_exhaustive]
pub struct AuthStep<'a> {
    /// Purpose of the request; `None` if the user was redirected to the authorization server.
    pub purpose: Option<Purpose>,
    /// The URL without its query.
    pub url: &'a str,
    /// The HTTP status, if a response was received.
    pub status: Option<u16>,
    /// The error, if no response was received.
    pub error: Option<&'a AuthError>,
    /// Duration of the step.
    pub took: Duration,
}

/// Executes flows.
pub(in crate::auth) struct Runner<'a> {
    pub(in crate::auth) profile: &'a Profile,
    /// The server from which the URLs were discovered.
    pub(in crate::auth) server: &'a Target,
    pub(in crate::auth) egress: &'a Egress,
    pub(in crate::auth) account: &'a Account,
    /// Number of completed operations before this one.
    pub(in crate::auth) attempt: u64,
    /// Lock against other processes. It is released before a sign-in, which may take long.
    pub(in crate::auth) lease: Option<Box<dyn Send>>,
    /// Locks against other operations in this process.
    pub(in crate::auth) held: &'a mut Held,
}

impl Runner<'_> {
    /// Runs a flow to completion. Returns `None` if another operation completed while this one waited to start a
    /// sign-in.
    pub(in crate::auth) async fn run(
        &mut self,
        flow: &mut Flow,
        first: Result<Action, AuthError>,
    ) -> Result<Option<Record>, AuthError> {
        let mut action = first?;
        loop {
            let event = match action {
                Action::Done(record) => return Ok(Some(*record)),
                Action::Send(exchange) => {
                    match send(&exchange, self.profile, self.server, self.egress).await {
                        Ok(reply) => Event::Replied(reply),
                        Err(error) => Event::Unreachable(error),
                    }
                }
                Action::Prepare => {
                    (self.lease, self.held.turn) = (None, None);
                    if self.held.asking.is_none() {
                        self.held.asking = Some(self.account.asking.clone().lock_owned().await);
                    }
                    if self.account.current().1 != self.attempt {
                        return Ok(None);
                    }
                    Event::Prepared(person(self.profile)?.redirect_uri().await?)
                }
                Action::Visit(url) => Event::Returned(self.visit(url, flow.away()?).await?),
                Action::Assert { audience } => Event::Asserted(assertion(self.profile, audience).await?),
            };
            action = flow.next(event, now(self.profile)).inspect_err(|error| {
                if let Some(host) = error.denied() {
                    self.egress.deny(host, None, "the authorization server metadata contains an unsafe URL");
                }
            })?;
        }
    }

    /// Redirects the user and waits for the redirect back, as long as a request waits for the token.
    async fn visit(&mut self, url: String, rest: Secret) -> Result<String, AuthError> {
        let (began, profile, mut waiting) = (Instant::now(), self.profile, self.account.waiting.subscribe());
        let shown = url.split('?').next().unwrap_or_default().to_owned();
        let given_up = |why: String| {
            AuthError::new(AuthErrorKind::Person, format!("no user signed in at `{shown}` {why}; try again"))
        };
        let result = tokio::select! {
            result = tokio::time::timeout(profile.patience, person(profile)?.lead(url, rest)) => match result {
                Ok(result) => result,
                Err(_) => Err(given_up(format!("within {} minutes", profile.patience.as_secs().div_ceil(60)))),
            },
            _ = waiting.wait_for(|count| *count == 0) => {
                self.account.is_abandoned.store(true, Ordering::Relaxed);
                Err(given_up("before the request was cancelled".to_owned()))
            }
        };
        let error = result.as_ref().err().filter(|error| error.kind() != AuthErrorKind::Away);
        tell(profile, &AuthStep { purpose: None, url: &shown, status: None, error, took: began.elapsed() });
        result
    }
}

pub(in crate::auth) fn now(profile: &Profile) -> u64 {
    profile.clock.since_epoch().as_secs()
}

/// Sends one request and reports it to `on_step`.
pub(in crate::auth) async fn send(
    exchange: &Exchange,
    profile: &Profile,
    server: &Target,
    egress: &Egress,
) -> Result<Reply, AuthError> {
    let began = Instant::now();
    let result = match tokio::time::timeout(PATIENCE, fetch(exchange, server, egress)).await {
        // Some servers send errors with a success status.
        Ok(Ok(reply)) if !reply.is_success() || reply.has_error() => Ok(exchange.without_secrets(reply)),
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(reason)) => Err(unreachable(exchange, &reason)),
        Err(_) => Err(unreachable(exchange, &format!("no response within {} seconds", PATIENCE.as_secs()))),
    };
    let url = exchange.url().split('?').next().unwrap_or_default();
    tracing::debug!(purpose = %exchange.purpose(), url, status = result.as_ref().ok().map(|reply| reply.status), "auth");
    tell(
        profile,
        &AuthStep {
            purpose: Some(exchange.purpose()),
            url,
            status: result.as_ref().ok().map(|reply| reply.status),
            error: result.as_ref().err(),
            took: began.elapsed(),
        },
    );
    result
}

fn tell(profile: &Profile, step: &AuthStep<'_>) {
    if let Some(told) = &profile.on_step {
        crate::client::guarded(|| told(step));
    }
}

fn unreachable(exchange: &Exchange, reason: &str) -> AuthError {
    let url = crate::auth::error::quoted(exchange.url().split('?').next().unwrap_or_default());
    AuthError::new(AuthErrorKind::Unreachable, format!("{} at `{url}` failed: {reason}", exchange.purpose()))
}

async fn fetch(exchange: &Exchange, server: &Target, egress: &Egress) -> Result<Reply, String> {
    let target =
        if exchange.is_typed() { Target::typed(exchange.url()) } else { server.learned(exchange.url()) };
    let target = target.map_err(|error| {
        egress.deny(&host_of(exchange.url()), None, &error.to_string());
        error.to_string()
    })?;
    let mut response = attempt(exchange, &target, egress).await?;
    if matches!(&response, Err(error) if matches!(error.kind(), EgressErrorKind::Refused(_)))
        && target.trust() == (Trust::Learned { home: None })
    {
        // The URL may be on the network of the server, which has not been contacted yet.
        egress.reach(server).await.map_err(|error| error.to_string())?;
        response = attempt(exchange, &target, egress).await?;
    }
    let response = response.map_err(|error| error.to_string())?;
    let status = response.status().as_u16();
    let nonce = response.headers().get(dpop::NONCE).and_then(|nonce| nonce.to_str().ok()).map(str::to_owned);
    let body = response.into_body().read_to_end(MOST).await.map_err(|error| error.to_string())?;
    Ok(Reply { status, body: body.to_vec(), nonce })
}

type Attempt = Result<Response<ResponseBody>, EgressError>;

async fn attempt(exchange: &Exchange, target: &Target, egress: &Egress) -> Result<Attempt, String> {
    let request = written(exchange)?;
    Ok(match exchange.method() {
        // A `POST` contains secrets, so its redirects are not followed.
        "POST" => egress.send(request, target).await,
        _ => egress
            .follow(request, target, Redirects::same_origin(REDIRECTS))
            .await
            .map(|(response, _)| response),
    })
}

fn written(exchange: &Exchange) -> Result<Request<Body>, String> {
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

fn person(profile: &Profile) -> Result<&dyn crate::auth::Person, AuthError> {
    let nobody = || AuthError::new(AuthErrorKind::Nobody, "sign-in required, but no redirect handler is set");
    profile.person.as_deref().ok_or_else(nobody)
}

async fn assertion(profile: &Profile, audience: String) -> Result<Secret, AuthError> {
    match &profile.grant {
        Grant::Workload(assertion) => assertion(audience).await,
        Grant::Enterprise(provider) => (provider.id_token)().await,
        Grant::Person | Grant::Client => {
            Err(AuthError::new(AuthErrorKind::Setup, "no assertion provider is configured for this client"))
        }
    }
}
