//! Connections that are one request by HTTP, or a session of such.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ::http::request::Parts;
use linchpin_jsonrpc::{Limits, Outbox, Params};
use linchpin_protocol::model::{LogLevel, RequestMeta};
use linchpin_protocol::{Era, Error as ProtocolError, Revision};

use super::super::http::headers;
use super::super::identity::Identity;
use super::{Caller, Connection, Reach, Service};
use crate::http::names;

impl Connection {
    pub(super) fn with_http_of(self, other: &Connection) -> Self {
        Connection { http: other.http.clone(), ..self }
    }

    /// The same client's connection, for one request.
    pub(crate) fn request_part(&self, outbox: Arc<Outbox>, http: Arc<Parts>) -> Arc<Self> {
        let part = Self::of(self.caller.clone(), outbox, Reach::Request);
        Arc::new(Connection { http: Some(http), ..part })
    }

    /// A connection of its own for one request.
    pub(crate) fn for_request(
        service: Service,
        outbox: Arc<Outbox>,
        reach: Reach,
        http: Arc<Parts>,
    ) -> Arc<Self> {
        let caller = Arc::new(Caller::new(service, outbox.clone()));
        Arc::new(Connection { http: Some(http), ..Self::of(caller, outbox, reach) })
    }

    /// Opens a session again, as it was opened before; `None` if that is not possible any more.
    pub(crate) fn reopen(&self, initialize: &str, level: LogLevel, subscriptions: Vec<String>) -> Option<()> {
        let params = Params::parse(initialize, Limits::default()).ok()?;
        self.open(&params).ok()?;
        let session = self.session()?;
        session.set_initialized();
        session.set_log_level(level);
        for uri in subscriptions {
            let _ = session.subscribe(uri); // there were no more than may be
        }
        Some(())
    }

    /// The HTTP request that is being served.
    pub(crate) fn http(&self) -> Option<&Arc<Parts>> {
        self.http.as_ref()
    }

    /// Who sends the HTTP request, as was found out when it was let in.
    pub(super) fn http_identity(&self) -> Option<&Arc<Identity>> {
        self.http.as_ref()?.extensions.get()
    }

    /// The scopes that the request turned out to need and its sender lacks.
    pub(crate) fn lacking_scopes(&self) -> Option<&[String]> {
        self.lacking.get().map(Vec::as_slice)
    }

    /// The same connection, as a message sees it that came by this request.
    pub(crate) fn by(&self, http: Arc<Parts>) -> Arc<Self> {
        let part = Self::of(self.caller.clone(), self.outbox.clone(), self.reach);
        Arc::new(Connection { http: Some(http), ..part })
    }

    /// Where messages go that belong to no request.
    pub(crate) fn lasting(&self) -> &Arc<Outbox> {
        &self.caller.outbox
    }

    /// Asks that the stream of this request is let go, for the client to come back to it.
    pub(crate) fn hang_up(&self, pause: Duration) {
        if self.reach == Reach::Request {
            self.outbox.hang_up(pause);
        }
    }

    /// The code of the error that was answered.
    pub(crate) fn failure(&self) -> Option<i64> {
        Some(self.failure.load(Ordering::Acquire)).filter(|code| *code != 0)
    }

    /// Whether the request was refused before anything was done.
    pub(crate) fn was_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// The client can no longer be asked.
    pub(crate) fn close_peer(&self, reason: &str) {
        self.caller.close_peer(reason);
    }

    /// From now on nothing of this request can reach its client, who may be reached in other ways.
    pub(crate) fn cut(&self) {
        self.outbox.close();
    }

    /// The revision that the headers name.
    fn named_revision(&self) -> Option<Revision> {
        let version = self.http.as_ref()?.headers.get(&names::PROTOCOL_VERSION)?;
        Revision::find(version.to_str().ok()?)
    }

    /// Whether the headers say that the request is of the stateless era.
    pub(super) fn claims_stateless(&self) -> bool {
        self.named_revision().is_some_and(|revision| revision.era() == Era::Stateless)
    }

    /// The revision of a request of the session era that stands alone.
    pub(crate) fn lone_revision(&self) -> Option<Revision> {
        self.http.as_ref().filter(|_| self.is_one_shot())?;
        let revision = self.named_revision().unwrap_or(Revision::WITHOUT_HEADER);
        Some(revision).filter(|revision| self.service().settings().revisions.contains(revision))
    }

    /// Whether the version header says what the body says.
    pub(super) fn check_version_header(&self, meta: &RequestMeta) -> Result<(), ProtocolError> {
        self.http.as_ref().map_or(Ok(()), |http| headers::check_version(http, meta))
    }

    /// Whether the other headers say what the body says.
    pub(super) fn check_headers(&self, method: &str, params: &Params<'_>) -> Result<(), ProtocolError> {
        let Some(http) = &self.http else { return Ok(()) };
        headers::check(http, method, params, &self.service().catalog())
    }
}
