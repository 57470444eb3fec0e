//! Mutable state of an HTTP connection: the session, the requests in flight, and the transport mode.

use std::borrow::Cow;
use std::collections::HashMap;

use ::http::header::{self, HeaderMap, HeaderValue};
use bytes::Bytes;
use linchpin_jsonrpc::Id;
use linchpin_protocol::{Era, Revision};
use tokio::task::AbortHandle;

use crate::egress::Target;
use crate::http::header_names;

/// Minimum length of a session id that is redacted: shorter ones can be guessed and occur in ordinary text.
const MIN_SECRET_LEN: usize = 8;
/// Maximum number of remembered secrets to redact: session ids, and query values of the HTTP+SSE endpoint. Those of
/// older sessions are forgotten.
const MAX_SECRETS: usize = 16;
/// Placeholder for every redacted secret, not only for session ids.
const REDACTED_SESSION: &str = "[session]";

/// Which of the two HTTP transports the server uses.
#[derive(Clone, Debug)]
pub(super) enum HttpMode {
    /// Messages go to the server's URL, and each response comes back on its own exchange.
    Streamable,
    /// Messages go to the endpoint that the server named, and responses come on its stream.
    Sse(Target),
}

/// Copy of the `initialize` request, with which a lost session is replaced by a new one.
#[derive(Clone)]
pub(super) struct InitializeMessage {
    pub(super) id: Id<'static>,
    pub(super) line: Bytes,
}

pub(super) struct HttpState {
    pub(super) mode: HttpMode,
    session: Option<HeaderValue>,
    /// Secrets to redact, newest first.
    secrets: Vec<String>,
    /// Number of the current session, increased when it is replaced or removed.
    pub(super) generation: u64,
    /// Headers of every request to the server.
    base_headers: HeaderMap,
    /// Headers of every request of the session: `base_headers` with the negotiated revision and the session id.
    session_headers: Option<HeaderMap>,
    pub(super) initialize: Option<InitializeMessage>,
    /// Requests without a response, to abort them; a request has no task for a short time after it was added.
    pub(super) in_flight: HashMap<Id<'static>, Option<AbortHandle>>,
    /// Handle of the task that reads the standalone stream.
    pub(super) listen_task: Option<AbortHandle>,
    /// Consecutive reconnects of the standalone stream without a message, carried over to the next session.
    pub(super) reconnects: usize,
    /// Whether a stream of change notifications was opened.
    pub(super) has_listened: bool,
    /// Handle of the task that opens a new session in place of a lost one.
    pub(super) renewal_task: Option<AbortHandle>,
    pub(super) is_closed: bool,
}

impl HttpState {
    pub(super) fn new(headers: &HeaderMap) -> Self {
        let mut base_headers = headers.clone();
        base_headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        base_headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        HttpState {
            mode: HttpMode::Streamable,
            session: None,
            secrets: Vec::new(),
            generation: 0,
            base_headers,
            session_headers: None,
            initialize: None,
            in_flight: HashMap::new(),
            listen_task: None,
            reconnects: 0,
            has_listened: false,
            renewal_task: None,
            is_closed: false,
        }
    }

    pub(super) fn session(&self) -> Option<&HeaderValue> {
        self.session.as_ref()
    }

    /// Replaces or removes the MCP session id that requests carry.
    pub(super) fn set_session(&mut self, session: Option<HeaderValue>) {
        self.session = session;
        self.generation += 1;
        self.session_headers = None;
    }

    /// Adds a secret that [`Self::redact`] replaces from now on.
    pub(super) fn add_secret(&mut self, secret: &str) {
        if secret.len() >= MIN_SECRET_LEN && !self.secrets.iter().any(|existing| existing == secret) {
            self.secrets.truncate(MAX_SECRETS - 1);
            self.secrets.insert(0, secret.to_owned());
        }
    }

    /// Redacts the session ids and other known secrets in a text.
    pub(super) fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.secrets.iter().fold(Cow::Borrowed(text), |text, secret| {
            if text.contains(secret) { Cow::Owned(text.replace(secret, REDACTED_SESSION)) } else { text }
        })
    }

    /// Returns the headers of every request, with the negotiated revision and the session, if any.
    pub(super) fn headers(&mut self, revision: Revision) -> HeaderMap {
        if self.session_headers.is_none() {
            self.session_headers = Some(self.headers_in(self.session.as_ref(), revision));
        }
        self.session_headers.clone().unwrap_or_default()
    }

    /// Returns the headers of a request in a given session, like [`Self::headers`].
    pub(super) fn headers_in(&self, session: Option<&HeaderValue>, revision: Revision) -> HeaderMap {
        let mut headers = self.initial_headers(Some(revision));
        if let Some(session) = session.filter(|_| revision.era() == Era::Session) {
            headers.insert(header_names::SESSION_ID, session.clone());
        }
        headers
    }

    /// Returns the headers of a request, before or after the negotiation of the revision.
    pub(super) fn current_headers(&mut self, revision: Option<Revision>) -> HeaderMap {
        match revision {
            Some(revision) => self.headers(revision),
            None => self.initial_headers(None),
        }
    }

    /// Returns the headers of a request before the negotiation, with the revision that it declares.
    pub(super) fn initial_headers(&self, declared: Option<Revision>) -> HeaderMap {
        let mut headers = self.base_headers.clone();
        if let Some(revision) = declared {
            headers.insert(header_names::PROTOCOL_VERSION, HeaderValue::from_static(revision.as_str()));
        }
        headers
    }
}
