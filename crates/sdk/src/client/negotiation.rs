//! Era and revision negotiation. The stateless era is tried first, with a fallback to the session era.

use std::sync::Arc;
use std::time::Duration;

use linchpin_jsonrpc::CallError;
use linchpin_protocol::encode::to_vec;
use linchpin_protocol::model::{DiscoverResult, Implementation, InitializeParams, InitializeResult, key};
use linchpin_protocol::{Era, Method, Revision, code, wire};
use serde::Deserialize;
use serde_json::Value;

use super::core::{Agreed, Core, Options};
use super::error::ClientError;

/// Which eras to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening {
    /// The era of the server is not known: try both.
    Probe,
    /// The server last used this era.
    Known(Era),
}

impl Opening {
    /// Returns whether this era may be tried.
    fn allows(self, era: Era) -> bool {
        match self {
            Opening::Probe => true,
            Opening::Known(known) => known == era,
        }
    }
}

/// Outcome of `server/discover`.
enum Verdict {
    Stateless(Box<Agreed>),
    /// The server does not support the stateless era.
    Legacy,
}

/// Negotiates era and revision.
pub(super) async fn agree(core: &Arc<Core>, opening: Opening) -> Result<Agreed, ClientError> {
    let limit = core.settings.open_timeout;
    let agreed = tokio::select! {
        biased;
        agreed = within(core, limit, find_era(core, opening)) => agreed,
        () = core.stray.too_much() => None,
    };
    let agreed = agreed.unwrap_or_else(|| Err(CallError::TimedOut(limit).into()));
    match (agreed, core.stray.lines()) {
        (Err(ClientError::Call(CallError::TimedOut(_))), Some(lines)) => {
            Err(ClientError::StrayOutput { lines })
        }
        (agreed, _) => agreed,
    }
}

/// Runs a future with a timeout. The timeout does not expire while the peer is paused for user interaction.
async fn within<T>(core: &Core, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    let mut work = std::pin::pin!(work);
    loop {
        match tokio::time::timeout(limit, &mut work).await {
            Ok(done) => return Some(done),
            Err(_) if core.peer.is_paused() => {}
            Err(_) => return None,
        }
    }
}

async fn find_era(core: &Arc<Core>, opening: Opening) -> Result<Agreed, ClientError> {
    let newest = |era: Era| {
        let spoken = core.settings.revisions.iter().copied();
        spoken.filter(|revision| revision.era() == era && opening.allows(era)).max()
    };
    match (newest(Era::Stateless), newest(Era::Session)) {
        (Some(stateless), None) => match discover(core, stateless, core.settings.open_timeout).await? {
            Verdict::Stateless(agreed) => Ok(*agreed),
            Verdict::Legacy => Err(unsupported(core, vec!["initialize".into()])),
        },
        (Some(stateless), Some(session)) => probe(core, stateless, session).await,
        (None, Some(session)) => initialize(core, session).await,
        (None, None) => Err(unsupported(core, Vec::new())),
    }
}

async fn probe(core: &Arc<Core>, stateless: Revision, session: Revision) -> Result<Agreed, ClientError> {
    let mut discover = std::pin::pin!(discover(core, stateless, core.settings.open_timeout));
    match within(core, core.settings.probe_timeout, &mut discover).await {
        Some(Ok(Verdict::Stateless(agreed))) => return Ok(*agreed),
        Some(Ok(Verdict::Legacy)) => return initialize(core, session).await,
        Some(Err(error)) => return Err(error),
        None => {}
    }
    // No response: a session-era server that ignores unknown requests, or a slow start. Send `initialize` too; the
    // first response decides.
    let mut greeting = std::pin::pin!(initialize(core, session));
    tokio::select! {
        biased; // if both responses are ready, prefer the stateless era
        verdict = &mut discover => match verdict? {
            Verdict::Stateless(agreed) => Ok(*agreed),
            Verdict::Legacy => greeting.await,
        },
        greeted = &mut greeting => match greeted {
            Err(ClientError::Call(CallError::Rejected(_))) => match discover.await? {
                Verdict::Stateless(agreed) => Ok(*agreed),
                Verdict::Legacy => Err(unsupported(core, Vec::new())),
            },
            greeted => greeted,
        },
    }
}

fn unsupported(core: &Core, offered: Vec<String>) -> ClientError {
    ClientError::UnsupportedVersion { offered, spoken: core.settings.revisions.clone() }
}

/// Data of the unsupported-version error.
#[derive(Deserialize)]
struct Refusal {
    supported: Vec<String>,
}

/// Sends `server/discover`. If the server rejects the revision, tries once more with a common revision that it
/// offers.
async fn discover(core: &Arc<Core>, revision: Revision, limit: Duration) -> Result<Verdict, ClientError> {
    let offered = match discover_as(core, revision, limit).await? {
        Told::Verdict(verdict) => return Ok(verdict),
        Told::Offers(offered) => offered,
    };
    let offered = match common(core, &offered, Era::Stateless) {
        None => offered,
        Some(revision) => match discover_as(core, revision, limit).await? {
            Told::Verdict(verdict) => return Ok(verdict),
            Told::Offers(offered) => offered,
        },
    };
    if common(core, &offered, Era::Session).is_some() {
        Ok(Verdict::Legacy)
    } else {
        Err(unsupported(core, offered))
    }
}

/// Returns the newest revision of an era that both the server and this client support.
fn common(core: &Core, offered: &[String], era: Era) -> Option<Revision> {
    let known = offered.iter().filter_map(|version| Revision::find(version));
    known.filter(|revision| revision.era() == era && core.settings.revisions.contains(revision)).max()
}

/// Outcome of `server/discover` in one revision.
enum Told {
    Verdict(Verdict),
    /// The server rejects this revision and offers these.
    Offers(Vec<String>),
}

async fn discover_as(core: &Arc<Core>, revision: Revision, limit: Duration) -> Result<Told, ClientError> {
    let options = Options { timeout: Some(limit), ..Options::default() };
    let answer = core.ask(revision, Method::Discover.name(), b"{}", &options).await;
    Ok(match answer {
        Ok(text) => match wire::decode::<DiscoverResult>(&text) {
            Err(_) => Told::Verdict(Verdict::Legacy),
            Ok(result) if result.supported_versions.iter().any(|version| version == revision.as_str()) => {
                Told::Verdict(Verdict::Stateless(Box::new(discovered(revision, result))))
            }
            Ok(result) => Told::Offers(result.supported_versions),
        },
        Err(CallError::Rejected(error)) if error.code == code::UNSUPPORTED_VERSION => {
            let refusal = error.data.and_then(|data: Value| Refusal::deserialize(data).ok());
            Told::Offers(refusal.map(|refusal| refusal.supported).unwrap_or_default())
        }
        // These error codes exist only in the stateless era.
        Err(CallError::Rejected(error))
            if matches!(error.code, code::MISSING_CLIENT_CAPABILITY | code::HEADER_MISMATCH) =>
        {
            return Err(CallError::Rejected(error).into());
        }
        // Session-era servers respond to an unknown method in different ways.
        Err(CallError::Rejected(_) | CallError::Malformed(_) | CallError::TimedOut(_)) => {
            Told::Verdict(Verdict::Legacy)
        }
        Err(CallError::Transport { status: Some(status), .. }) if is_ignorance(status) => {
            Told::Verdict(Verdict::Legacy)
        }
        Err(error) => return Err(error.into()),
    })
}

/// Returns whether a status may come from a session-era server that does not know the method. Authentication,
/// rate-limit and gateway statuses do not show which era the server supports.
fn is_ignorance(status: u16) -> bool {
    !matches!(status, 401 | 403 | 407 | 408 | 429 | 502..=504)
}

fn discovered(revision: Revision, result: DiscoverResult) -> Agreed {
    let server = result.meta.as_ref().and_then(|meta| meta.get(key::SERVER_INFO));
    Agreed {
        revision,
        server: server.and_then(|server| Implementation::deserialize(server).ok()),
        capabilities: result.capabilities,
        instructions: result.instructions,
    }
}

async fn initialize(core: &Arc<Core>, revision: Revision) -> Result<Agreed, ClientError> {
    let params = InitializeParams {
        protocol_version: revision.as_str().to_owned(),
        capabilities: core.handlers.capabilities(),
        client_info: core.settings.info.clone(),
        meta: None,
    };
    let options = Options { timeout: Some(core.settings.open_timeout), ..Options::default() };
    let method = Method::Initialize.name();
    let text = core.ask(revision, method, &to_vec(&params, revision), &options).await?;
    let result: InitializeResult = wire::decode(&text)
        .map_err(|invalid| ClientError::Malformed { method: method.to_owned(), invalid })?;
    let agreed = Revision::find(&result.protocol_version)
        .filter(|revision| revision.era() == Era::Session && core.settings.revisions.contains(revision));
    let Some(revision) = agreed else { return Err(unsupported(core, vec![result.protocol_version])) };
    Ok(Agreed {
        revision,
        server: Some(result.server_info),
        capabilities: result.capabilities,
        instructions: result.instructions,
    })
}
