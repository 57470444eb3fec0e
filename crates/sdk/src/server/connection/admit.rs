//! Admission of requests: revision, sender, and order in the session.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use linchpin_jsonrpc::{Id, Params};
use linchpin_protocol::model::{InitializeResult, RequestMeta};
use linchpin_protocol::wire::{session_era, stateless_era};
use linchpin_protocol::{Era, Error as ProtocolError, Method, Revision};

use super::super::identity::{Identity, check_scopes};
use super::{Connection, PendingRequest, UNKNOWN_CLIENT};
use crate::http::decode_string;
use crate::lock::lock;
use crate::server::definitions::tool::ToolEntry;
use crate::server::request::context::ClientInfo;

/// Admitted request: its revision and client, or the session that it opened.
pub(super) enum Admitted {
    Request(Revision, Arc<ClientInfo>),
    /// The request opened the session; contains the revision and the result of `initialize`.
    SessionOpened(Revision, Box<InitializeResult>),
}

impl Connection {
    /// Determines the protocol revision and the sender of a request before it is dispatched.
    pub(super) fn admit(
        &self,
        id: &Id<'_>,
        method: &str,
        params: &Params<'_>,
        meta: Option<&RequestMeta>,
    ) -> Result<Admitted, ProtocolError> {
        let supported = &self.service().settings().revisions;
        let supports = |era: Era| supported.iter().any(|revision| revision.era() == era);
        let is_stateless = |meta: &RequestMeta| stateless_era::is_stateless(meta) && supports(Era::Stateless);
        let (revision, client) = if meta.is_some_and(is_stateless) || self.claims_stateless() {
            let nothing = RequestMeta::default();
            let meta = meta.unwrap_or(&nothing);
            self.check_version_header(meta)?;
            let revision = stateless_era::check(meta, supported)?;
            self.check_headers(method, params)?;
            (revision, Self::stateless_client(meta))
        } else if let Some(session) = self.session() {
            (session.revision(), session.client().clone())
        } else {
            match (Method::find(method), session_era::negotiate("", supported)) {
                (Some(Method::Initialize), _) => return self.open_session(params),
                (Some(Method::Ping), Some(newest)) => {
                    return Ok(Admitted::Request(newest, UNKNOWN_CLIENT.clone()));
                }
                (_, Some(newest)) if self.is_one_shot() => {
                    let revision = self.sessionless_revision().unwrap_or(newest);
                    return Ok(Admitted::Request(revision, UNKNOWN_CLIENT.clone()));
                }
                _ => return Err(ProtocolError::InvalidRequest(before_initialize(method, supports))),
            }
        };
        self.caller.last_revision.store(revision as u8, Ordering::Relaxed);
        self.check_id(&lock(&self.caller.in_flight), id, method)?;
        Ok(Admitted::Request(revision, client))
    }

    /// Checks the scopes of the tool that the client names, before any layer runs. A layer may choose another tool, so
    /// `dispatch` and `rounds` check the scopes of the tool that is called.
    pub(super) fn check_scopes(&self, method: &str, params: &Params<'_>) -> Result<(), ProtocolError> {
        if self.identity().is_none() || method != Method::CallTool.name() {
            return Ok(());
        }
        let Some(name) = params.find("name").and_then(decode_string) else { return Ok(()) };
        self.check_tool(self.service().catalog().tools.find(&name))
    }

    /// Checks that the sender of the request has the scopes of a tool.
    pub(crate) fn check_tool(&self, tool: Option<&Arc<ToolEntry>>) -> Result<(), ProtocolError> {
        tool.map_or(Ok(()), |tool| check_scopes(self.identity().map(|identity| &**identity), &tool.scopes))
    }

    /// Returns the authenticated identity of the client on this connection, if known.
    pub(crate) fn identity(&self) -> Option<&Arc<Identity>> {
        self.http_identity().or_else(|| self.service().client_identity())
    }

    pub(super) fn open_session(&self, params: &Params<'_>) -> Result<Admitted, ProtocolError> {
        let (session, result) = self.service().initialize(params, &self.caller.outbox)?;
        let revision = session.revision();
        self.caller.last_revision.store(revision as u8, Ordering::Relaxed);
        if !self.is_one_shot() {
            let _ = self.caller.session.set(session);
            self.subscribe_to_changes();
        }
        Ok(Admitted::SessionOpened(revision, Box::new(result)))
    }

    fn stateless_client(meta: &RequestMeta) -> Arc<ClientInfo> {
        let capabilities = meta.client_capabilities.clone().unwrap_or_default();
        Arc::new(ClientInfo { info: meta.client_info.clone(), capabilities })
    }

    /// Checks that a request may run beside those in flight.
    pub(super) fn check_id(
        &self,
        in_flight: &HashMap<Id<'static>, PendingRequest>,
        id: &Id<'_>,
        method: &str,
    ) -> Result<(), ProtocolError> {
        if in_flight.is_empty() {
            return Ok(());
        }
        if in_flight.contains_key(id) {
            return Err(ProtocolError::InvalidRequest(format!(
                "the id {id} is already used by a request in flight"
            )));
        }
        if in_flight.len() >= self.service().settings().max_in_flight && method != Method::Ping.name() {
            let limit = self.service().settings().max_in_flight;
            return Err(ProtocolError::Internal(format!(
                "{limit} requests are in flight: wait for responses first"
            )));
        }
        Ok(())
    }
}

/// Returns the error text for a request that arrives before `initialize`.
fn before_initialize(method: &str, supports: impl Fn(Era) -> bool) -> String {
    let initialize = "send initialize first";
    let stateless = "put io.modelcontextprotocol/protocolVersion and /clientCapabilities into params._meta";
    match (supports(Era::Session), supports(Era::Stateless)) {
        (true, true) => format!("{method} was sent before initialize: {initialize}, or {stateless}"),
        (true, false) => format!("{method} was sent before initialize: {initialize}"),
        (false, _) => format!("{method} does not state its revision: {stateless}"),
    }
}
