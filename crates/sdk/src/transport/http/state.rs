//! Mutable state of a connection: the session, the requests in flight, and the transport mode.

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
const SHORTEST_SECRET: usize = 8;
/// Maximum number of remembered secrets; older sessions are forgotten.
const MAX_SECRETS: usize = 16;
/// Replacement for a secret in a text.
const HIDDEN: &str = "[session]";

/// Transport mode.
#[derive(Clone, Debug)]
pub(super) enum Way {
    /// Messages go to the server's URL, and each response comes back on its own exchange.
    Streamable,
    /// Messages go to the endpoint that the server named, and responses come on its stream.
    Sse(Target),
}

/// The `initialize` request, to open a new session.
#[derive(Clone)]
pub(super) struct Greeting {
    pub(super) id: Id<'static>,
    pub(super) line: Bytes,
}

pub(super) struct State {
    pub(super) way: Way,
    session: Option<HeaderValue>,
    /// Secrets to redact, newest first.
    secrets: Vec<String>,
    /// Number of the session.
    pub(super) generation: u64,
    /// Headers of every request.
    base: HeaderMap,
    /// The same with the negotiated revision and the session.
    prepared: Option<HeaderMap>,
    pub(super) greeting: Option<Greeting>,
    /// Requests without a response, to abort them; a request has no task for a short time after it was added.
    pub(super) under_way: HashMap<Id<'static>, Option<AbortHandle>>,
    /// Task of the standalone stream.
    pub(super) listening: Option<AbortHandle>,
    /// Consecutive reconnects of that stream without a message, carried over to the next session.
    pub(super) tries: usize,
    /// Whether a stream of changes was opened.
    pub(super) has_listened: bool,
    /// Task that opens a new session.
    pub(super) renewal: Option<AbortHandle>,
    pub(super) is_over: bool,
}

impl State {
    pub(super) fn new(own: &HeaderMap) -> Self {
        let mut base = own.clone();
        base.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        base.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        State {
            way: Way::Streamable,
            session: None,
            secrets: Vec::new(),
            generation: 0,
            base,
            prepared: None,
            greeting: None,
            under_way: HashMap::new(),
            listening: None,
            tries: 0,
            has_listened: false,
            renewal: None,
            is_over: false,
        }
    }

    pub(super) fn session(&self) -> Option<&HeaderValue> {
        self.session.as_ref()
    }

    /// Replaces or removes the session.
    pub(super) fn set_session(&mut self, session: Option<HeaderValue>) {
        self.session = session;
        self.generation += 1;
        self.prepared = None;
    }

    /// Redacts this secret from now on.
    pub(super) fn hide(&mut self, secret: &str) {
        if secret.len() >= SHORTEST_SECRET && !self.secrets.iter().any(|known| known == secret) {
            self.secrets.truncate(MAX_SECRETS - 1);
            self.secrets.insert(0, secret.to_owned());
        }
    }

    /// Redacts the secrets in a text.
    pub(super) fn without_secrets<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.secrets.iter().fold(Cow::Borrowed(text), |text, secret| {
            if text.contains(secret) { Cow::Owned(text.replace(secret, HIDDEN)) } else { text }
        })
    }

    /// Returns the headers of every request, with the negotiated revision and the session, if any.
    pub(super) fn headers(&mut self, agreed: Revision) -> HeaderMap {
        if self.prepared.is_none() {
            self.prepared = Some(self.headers_in(self.session.as_ref(), agreed));
        }
        self.prepared.clone().unwrap_or_default()
    }

    /// Like [`Self::headers`], for a given session.
    pub(super) fn headers_in(&self, session: Option<&HeaderValue>, agreed: Revision) -> HeaderMap {
        let mut headers = self.first_headers(Some(agreed));
        if let Some(session) = session.filter(|_| agreed.era() == Era::Session) {
            headers.insert(header_names::SESSION_ID, session.clone());
        }
        headers
    }

    /// Returns the headers for the current phase of the connection.
    pub(super) fn headers_now(&mut self, agreed: Option<Revision>) -> HeaderMap {
        match agreed {
            Some(agreed) => self.headers(agreed),
            None => self.first_headers(None),
        }
    }

    /// Returns the headers of a request before the negotiation, with the revision that it declares.
    pub(super) fn first_headers(&self, stated: Option<Revision>) -> HeaderMap {
        let mut headers = self.base.clone();
        if let Some(revision) = stated {
            headers.insert(header_names::PROTOCOL_VERSION, HeaderValue::from_static(revision.as_str()));
        }
        headers
    }
}
