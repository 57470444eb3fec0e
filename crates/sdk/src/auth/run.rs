//! Carries out what a flow wants: requests by the egress module, a person by whoever can ask one.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Method, Request, Response};

use super::account::{Account, Held};
use super::dpop;
use super::error::{AuthError, AuthErrorKind};
use super::exchange::{Exchange, Purpose, Reply};
use super::flow::{Action, Event, Flow};
use super::oauth::{Grant, Profile};
use super::record::Record;
use super::scheme::header_value;
use super::secret::Secret;
use crate::egress::{
    Body, Egress, EgressError, EgressErrorKind, Redirects, ResponseBody, Target, Trust, host_of,
};
use crate::http::names;

/// How long one answer may take, and how long it may be.
const PATIENCE: Duration = Duration::from_secs(10);
const MOST: usize = 1 << 20;
/// Redirects of metadata that are followed, within its origin.
const REDIRECTS: usize = 3;

/// A step of signing in that is over.
#[derive(Debug)]
#[non_exhaustive]
pub struct AuthStep<'a> {
    /// What it was for; `None` when a person was led to the authorization server.
    pub purpose: Option<Purpose>,
    /// Where, without the query.
    pub url: &'a str,
    /// The status of HTTP, if there was an answer.
    pub status: Option<u16>,
    /// Why there was none.
    pub error: Option<&'a AuthError>,
    /// How long it took.
    pub took: Duration,
}

/// Carries out flows.
pub(super) struct Runner<'a> {
    pub(super) profile: &'a Profile,
    /// Where everything was learned from.
    pub(super) server: &'a Target,
    pub(super) egress: &'a Egress,
    pub(super) account: &'a Account,
    /// What was tried before this.
    pub(super) attempt: u64,
    /// What keeps other processes away. It is given back before a person is asked, who may take long.
    pub(super) lease: Option<Box<dyn Send>>,
    /// The same for others in this process.
    pub(super) held: &'a mut Held,
}

impl Runner<'_> {
    /// Runs a flow to its end. Nothing comes of it when it would have asked a person whom another one asked.
    pub(super) async fn run(
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
                    self.egress.deny(host, None, "what signs people in leads to a place that is not safe");
                }
            })?;
        }
    }

    /// Leads a person there, for as long as somebody waits for them.
    async fn visit(&mut self, url: String, rest: Secret) -> Result<String, AuthError> {
        let (began, profile, mut waiting) = (Instant::now(), self.profile, self.account.waiting.subscribe());
        let shown = url.split('?').next().unwrap_or_default().to_owned();
        let given_up = |why: String| {
            AuthError::new(AuthErrorKind::Person, format!("nobody signed in at `{shown}` {why}; try again"))
        };
        let result = tokio::select! {
            result = tokio::time::timeout(profile.patience, person(profile)?.lead(url, rest)) => match result {
                Ok(result) => result,
                Err(_) => Err(given_up(format!("in {} minutes", profile.patience.as_secs().div_ceil(60)))),
            },
            _ = waiting.wait_for(|count| *count == 0) => {
                self.account.is_abandoned.store(true, Ordering::Relaxed);
                Err(given_up("before whoever wanted it gave up".to_owned()))
            }
        };
        let error = result.as_ref().err().filter(|error| error.kind() != AuthErrorKind::Away);
        tell(profile, &AuthStep { purpose: None, url: &shown, status: None, error, took: began.elapsed() });
        result
    }
}

pub(super) fn now(profile: &Profile) -> u64 {
    profile.clock.since_epoch().as_secs()
}

/// Sends one request and tells whoever wants to know.
pub(super) async fn send(
    exchange: &Exchange,
    profile: &Profile,
    server: &Target,
    egress: &Egress,
) -> Result<Reply, AuthError> {
    let began = Instant::now();
    let result = match tokio::time::timeout(PATIENCE, fetch(exchange, server, egress)).await {
        // Some refuse with a status that says the opposite.
        Ok(Ok(reply)) if !reply.is_success() || reply.has_error() => Ok(exchange.without_secrets(reply)),
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(reason)) => Err(unreachable(exchange, &reason)),
        Err(_) => {
            Err(unreachable(exchange, &format!("there was no answer in {} seconds", PATIENCE.as_secs())))
        }
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
    let url = super::error::quoted(exchange.url().split('?').next().unwrap_or_default());
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
        // It may be where the server is, which nobody has asked yet.
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
        // What is posted holds secrets and stays where it was sent.
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
    headers.insert(names::PROTOCOL_VERSION, revision);
    if let Some((content_type, _)) = exchange.body() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    for (name, value) in exchange.headers() {
        let value = header_value(value.expose()).map_err(|error| error.to_string())?;
        headers.insert(HeaderName::from_static(name), value);
    }
    Ok(request)
}

fn person(profile: &Profile) -> Result<&dyn super::Person, AuthError> {
    let nobody = || AuthError::new(AuthErrorKind::Nobody, "somebody has to sign in, and nobody can be asked");
    profile.person.as_deref().ok_or_else(nobody)
}

async fn assertion(profile: &Profile, audience: String) -> Result<Secret, AuthError> {
    match &profile.grant {
        Grant::Workload(assertion) => assertion(audience).await,
        Grant::Enterprise(provider) => (provider.id_token)().await,
        Grant::Person | Grant::Client => {
            Err(AuthError::new(AuthErrorKind::Setup, "nobody can say who this client is"))
        }
    }
}
