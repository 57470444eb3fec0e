//! Negotiation of the era and revision between client and server. The stateless era is tried first, with a fallback to
//! the session era.

use std::sync::Arc;
use std::time::Duration;

use linchpin_jsonrpc::CallError;
use linchpin_protocol::encode::to_vec;
use linchpin_protocol::model::{DiscoverResult, Implementation, InitializeParams, InitializeResult, key};
use linchpin_protocol::{Era, Method, Revision, code, wire};
use serde::Deserialize;
use serde_json::Value;

use super::core::{ClientCore, Negotiated, RequestOptions};
use super::error::ClientError;

/// Which eras of the protocol to try with a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EraHint {
    /// The era of the server is not known: try both.
    Unknown,
    /// The server last used this era.
    Known(Era),
}

impl EraHint {
    /// Returns whether the negotiation may try this era, given what is known about the server.
    fn allows(self, era: Era) -> bool {
        match self {
            EraHint::Unknown => true,
            EraHint::Known(known_era) => known_era == era,
        }
    }
}

/// Outcome of `server/discover`: the negotiated revision, or that the server does not support the stateless era.
enum DiscoverOutcome {
    Stateless(Box<Negotiated>),
    /// The server does not support the stateless era.
    Unsupported,
}

/// Negotiates the era and the protocol revision with the server.
pub(super) async fn negotiate(core: &Arc<ClientCore>, era_hint: EraHint) -> Result<Negotiated, ClientError> {
    let limit = core.settings.open_timeout;
    let negotiated = tokio::select! {
        biased;
        negotiated = with_timeout(core, limit, negotiate_era(core, era_hint)) => negotiated,
        () = core.stray.limit_exceeded() => None,
    };
    let negotiated = negotiated.unwrap_or_else(|| Err(CallError::TimedOut(limit).into()));
    match (negotiated, core.stray.lines()) {
        (Err(ClientError::Call(CallError::TimedOut(_))), Some(lines)) => {
            Err(ClientError::StrayOutput { lines })
        }
        (negotiated, _) => negotiated,
    }
}

/// Runs a part of the negotiation with a timeout. The timeout does not expire while the peer is paused for user
/// interaction.
async fn with_timeout<T>(core: &ClientCore, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    let mut work = std::pin::pin!(work);
    loop {
        match tokio::time::timeout(limit, &mut work).await {
            Ok(done) => return Some(done),
            Err(_) if core.peer.has_paused_timeouts() => {}
            Err(_) => return None,
        }
    }
}

async fn negotiate_era(core: &Arc<ClientCore>, era_hint: EraHint) -> Result<Negotiated, ClientError> {
    let newest = |era: Era| {
        let supported = core.settings.revisions.iter().copied();
        supported.filter(|revision| revision.era() == era && era_hint.allows(era)).max()
    };
    match (newest(Era::Stateless), newest(Era::Session)) {
        (Some(stateless), None) => match discover(core, stateless, core.settings.open_timeout).await? {
            DiscoverOutcome::Stateless(negotiated) => Ok(*negotiated),
            DiscoverOutcome::Unsupported => Err(unsupported(core, vec!["initialize".into()])),
        },
        (Some(stateless), Some(session)) => probe(core, stateless, session).await,
        (None, Some(session)) => initialize(core, session).await,
        (None, None) => Err(unsupported(core, Vec::new())),
    }
}

async fn probe(
    core: &Arc<ClientCore>,
    stateless: Revision,
    session: Revision,
) -> Result<Negotiated, ClientError> {
    let mut discover = std::pin::pin!(discover(core, stateless, core.settings.open_timeout));
    match with_timeout(core, core.settings.probe_timeout, &mut discover).await {
        Some(Ok(DiscoverOutcome::Stateless(negotiated))) => return Ok(*negotiated),
        Some(Ok(DiscoverOutcome::Unsupported)) => return initialize(core, session).await,
        Some(Err(error)) => return Err(error),
        None => {}
    }
    // No response: a session-era server that ignores unknown requests, or a slow start. Send `initialize` too; the
    // first response decides.
    let mut initialize = std::pin::pin!(initialize(core, session));
    tokio::select! {
        biased; // if both responses are ready, prefer the stateless era
        outcome = &mut discover => match outcome? {
            DiscoverOutcome::Stateless(negotiated) => Ok(*negotiated),
            DiscoverOutcome::Unsupported => initialize.await,
        },
        initialized = &mut initialize => match initialized {
            Err(ClientError::Call(CallError::Rejected(_))) => match discover.await? {
                DiscoverOutcome::Stateless(negotiated) => Ok(*negotiated),
                DiscoverOutcome::Unsupported => Err(unsupported(core, Vec::new())),
            },
            initialized => initialized,
        },
    }
}

fn unsupported(core: &ClientCore, supported: Vec<String>) -> ClientError {
    ClientError::UnsupportedVersion { offered: supported, supported: core.settings.revisions.clone() }
}

/// Data of the error for an unsupported protocol version: the revisions that the server supports.
#[derive(Deserialize)]
struct UnsupportedVersionData {
    supported: Vec<String>,
}

/// Sends `server/discover` to find out whether the server supports the stateless era. If the server rejects the
/// revision, tries once more with a common revision that it offers.
async fn discover(
    core: &Arc<ClientCore>,
    revision: Revision,
    limit: Duration,
) -> Result<DiscoverOutcome, ClientError> {
    let supported = match discover_as(core, revision, limit).await? {
        DiscoverReply::Outcome(outcome) => return Ok(outcome),
        DiscoverReply::Rejected(supported) => supported,
    };
    let supported = match newest_common(core, &supported, Era::Stateless) {
        None => supported,
        Some(revision) => match discover_as(core, revision, limit).await? {
            DiscoverReply::Outcome(outcome) => return Ok(outcome),
            DiscoverReply::Rejected(supported) => supported,
        },
    };
    if newest_common(core, &supported, Era::Session).is_some() {
        Ok(DiscoverOutcome::Unsupported)
    } else {
        Err(unsupported(core, supported))
    }
}

/// Returns the newest revision of an era that both the server and this client support.
fn newest_common(core: &ClientCore, supported: &[String], era: Era) -> Option<Revision> {
    let common = supported.iter().filter_map(|version| Revision::find(version));
    common.filter(|revision| revision.era() == era && core.settings.revisions.contains(revision)).max()
}

/// Response to one `server/discover` request: an outcome, or the revisions to try instead of the rejected one.
enum DiscoverReply {
    Outcome(DiscoverOutcome),
    /// The server rejects this revision and offers the listed ones.
    Rejected(Vec<String>),
}

async fn discover_as(
    core: &Arc<ClientCore>,
    revision: Revision,
    limit: Duration,
) -> Result<DiscoverReply, ClientError> {
    let options = RequestOptions { timeout: Some(limit), ..RequestOptions::default() };
    let response = core.request(revision, Method::Discover.name(), b"{}", &options).await;
    Ok(match response {
        Ok(text) => match wire::decode::<DiscoverResult>(&text) {
            Err(_) => DiscoverReply::Outcome(DiscoverOutcome::Unsupported),
            Ok(result) if result.supported_versions.iter().any(|version| version == revision.as_str()) => {
                DiscoverReply::Outcome(DiscoverOutcome::Stateless(Box::new(from_discover_result(
                    revision, result,
                ))))
            }
            Ok(result) => DiscoverReply::Rejected(result.supported_versions),
        },
        Err(CallError::Rejected(error)) if error.code == code::UNSUPPORTED_VERSION => {
            let refusal = error.data.and_then(|data: Value| UnsupportedVersionData::deserialize(data).ok());
            DiscoverReply::Rejected(refusal.map(|refusal| refusal.supported).unwrap_or_default())
        }
        // These error codes exist only in the stateless era.
        Err(CallError::Rejected(error))
            if matches!(error.code, code::MISSING_CLIENT_CAPABILITY | code::HEADER_MISMATCH) =>
        {
            return Err(CallError::Rejected(error).into());
        }
        // Session-era servers respond to an unknown method in different ways.
        Err(CallError::Rejected(_) | CallError::Malformed(_) | CallError::TimedOut(_)) => {
            DiscoverReply::Outcome(DiscoverOutcome::Unsupported)
        }
        Err(CallError::Transport { status: Some(status), .. }) if may_be_unknown_method(status) => {
            DiscoverReply::Outcome(DiscoverOutcome::Unsupported)
        }
        Err(error) => return Err(error.into()),
    })
}

/// Returns whether an HTTP status may come from a session-era server that does not know the method. Authentication,
/// rate-limit and gateway statuses do not show which era the server supports.
fn may_be_unknown_method(status: u16) -> bool {
    !matches!(status, 401 | 403 | 407 | 408 | 429 | 502..=504)
}

fn from_discover_result(revision: Revision, result: DiscoverResult) -> Negotiated {
    let server = result.meta.as_ref().and_then(|meta| meta.get(key::SERVER_INFO));
    Negotiated {
        revision,
        server: server.and_then(|server| Implementation::deserialize(server).ok()),
        capabilities: result.capabilities,
        instructions: result.instructions,
    }
}

async fn initialize(core: &Arc<ClientCore>, revision: Revision) -> Result<Negotiated, ClientError> {
    let params = InitializeParams {
        protocol_version: revision.as_str().to_owned(),
        capabilities: core.handlers.capabilities(),
        client_info: core.settings.info.clone(),
        meta: None,
    };
    let options = RequestOptions { timeout: Some(core.settings.open_timeout), ..RequestOptions::default() };
    let method = Method::Initialize.name();
    let text = core.request(revision, method, &to_vec(&params, revision), &options).await?;
    let result: InitializeResult = wire::decode(&text)
        .map_err(|invalid| ClientError::Malformed { method: method.to_owned(), invalid })?;
    let revision = Revision::find(&result.protocol_version)
        .filter(|revision| revision.era() == Era::Session && core.settings.revisions.contains(revision));
    let Some(revision) = revision else { return Err(unsupported(core, vec![result.protocol_version])) };
    Ok(Negotiated {
        revision,
        server: Some(result.server_info),
        capabilities: result.capabilities,
        instructions: result.instructions,
    })
}
