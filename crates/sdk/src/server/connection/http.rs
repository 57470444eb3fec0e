//! Connection of a client over HTTP: one request, or a session of requests.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ::http::request::Parts;
use linchpin_jsonrpc::{Limits, Outbox, Params};
use linchpin_protocol::model::{LogLevel, RequestMeta};
use linchpin_protocol::{Era, Error as ProtocolError, Revision};

use super::super::identity::Identity;
use super::{ClientState, Connection, ReplyChannel, Service};
use crate::http::header_names;
use crate::server::http::{SessionStream, mirrored_headers};

impl Connection {
    pub(super) fn with_http_of(self, other: &Connection) -> Self {
        Connection { http: other.http.clone(), ..self }
    }

    /// Returns a connection for one HTTP request that shares the client state of the session.
    pub(crate) fn request_part(&self, outbox: Arc<Outbox>, http: Arc<Parts>) -> Arc<Self> {
        let part = Self::with_state(self.caller.clone(), outbox, ReplyChannel::Request);
        Arc::new(Connection { http: Some(http), ..part })
    }

    /// Creates a separate connection for one HTTP request.
    pub(crate) fn for_request(
        service: Service,
        outbox: Arc<Outbox>,
        reply_channel: ReplyChannel,
        http: Arc<Parts>,
    ) -> Arc<Self> {
        let caller = Arc::new(ClientState::new(service, outbox.clone()));
        Arc::new(Connection { http: Some(http), ..Self::with_state(caller, outbox, reply_channel) })
    }

    /// Restores the session state of this connection: the parameters of `initialize`, log level and subscriptions.
    /// Returns `None` if that is no longer possible.
    pub(crate) fn restore_session(
        &self,
        initialize: &str,
        level: LogLevel,
        subscriptions: Vec<String>,
    ) -> Option<()> {
        let params = Params::parse(initialize, Limits::default()).ok()?;
        self.open_session(&params).ok()?;
        let session = self.session()?;
        session.set_initialized();
        session.set_log_level(level);
        for uri in subscriptions {
            let _ = session.subscribe(uri); // within the limit when it was saved
        }
        self.service().live_catalog().subscriptions_changed();
        Some(())
    }

    /// Sets the resumable stream that carries the messages of the request.
    pub(in crate::server) fn set_stream(&self, stream: &Arc<SessionStream>) {
        let _ = self.stream.set(Arc::downgrade(stream));
    }

    /// Returns whether the client is connected, as far as the server can tell: not if the resumable stream of the request
    /// has lost its response.
    pub(crate) fn is_attached(&self) -> bool {
        let is_attached =
            |stream: &Weak<SessionStream>| stream.upgrade().is_some_and(|stream| stream.is_attached());
        self.stream.get().map_or_else(|| !self.outbox.is_finished(), is_attached)
    }

    /// Returns the HTTP request that is being served.
    pub(crate) fn http(&self) -> Option<&Arc<Parts>> {
        self.http.as_ref()
    }

    /// Returns the identity that was verified when the HTTP request was admitted.
    pub(super) fn http_identity(&self) -> Option<&Arc<Identity>> {
        self.http.as_ref()?.extensions.get()
    }

    /// Returns all scopes that the request requires, if its sender lacks any of them.
    pub(crate) fn insufficient_scopes(&self) -> Option<&[String]> {
        self.insufficient_scopes.get().map(Vec::as_slice)
    }

    /// Returns a copy of the connection for a message that arrived with this HTTP request.
    pub(crate) fn with_http_request(&self, http: Arc<Parts>) -> Arc<Self> {
        let part = Self::with_state(self.caller.clone(), self.outbox.clone(), self.reply_channel);
        Arc::new(Connection { http: Some(http), ..part })
    }

    /// Returns the outbox of messages that belong to no request.
    pub(crate) fn shared_outbox(&self) -> &Arc<Outbox> {
        &self.caller.outbox
    }

    /// Closes the stream of this request, for the client to reopen after `delay`.
    pub(crate) fn close_stream(&self, delay: Duration) {
        if self.reply_channel == ReplyChannel::Request {
            self.outbox.request_reconnect(delay);
        }
    }

    /// Returns the JSON-RPC code of the error response that was sent, if any.
    pub(crate) fn failure(&self) -> Option<i64> {
        Some(self.failure.load(Ordering::Acquire)).filter(|code| *code != 0)
    }

    /// Returns whether the request was rejected before its handler ran.
    pub(crate) fn was_rejected(&self) -> bool {
        self.is_rejected.load(Ordering::Relaxed)
    }

    /// Ends the sending of requests to the client.
    pub(crate) fn close_peer(&self, reason: &str) {
        self.caller.close_peer(reason);
    }

    /// Closes the outbox of this request, which ends its stream. The client may still be reachable on other streams.
    pub(crate) fn close_outbox(&self) {
        self.outbox.close();
    }

    /// Returns the revision in the `MCP-Protocol-Version` header.
    fn named_revision(&self) -> Option<Revision> {
        let version = self.http.as_ref()?.headers.get(&header_names::PROTOCOL_VERSION)?;
        Revision::find(version.to_str().ok()?)
    }

    /// Returns whether the headers name a revision of the stateless era.
    pub(super) fn claims_stateless(&self) -> bool {
        self.named_revision().is_some_and(|revision| revision.era() == Era::Stateless)
    }

    /// Returns the revision of a session-era request without a session.
    pub(crate) fn sessionless_revision(&self) -> Option<Revision> {
        self.http.as_ref().filter(|_| self.is_one_shot())?;
        let revision = self.named_revision().unwrap_or(Revision::HTTP_DEFAULT);
        Some(revision).filter(|revision| self.service().settings().revisions.contains(revision))
    }

    /// Checks that the version header matches the body.
    pub(super) fn check_version_header(&self, meta: &RequestMeta) -> Result<(), ProtocolError> {
        self.http.as_ref().map_or(Ok(()), |http| mirrored_headers::check_version(http, meta))
    }

    /// Checks that the headers that mirror the method, name and parameters match the body of the request.
    pub(super) fn check_headers(&self, method: &str, params: &Params<'_>) -> Result<(), ProtocolError> {
        let Some(http) = &self.http else { return Ok(()) };
        mirrored_headers::check(http, method, params, &self.service().catalog())
    }
}
