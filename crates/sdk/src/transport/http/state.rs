//! What changes while a connection is used: the session, what is under way, and where messages go.

use std::borrow::Cow;
use std::collections::HashMap;

use ::http::header::{self, HeaderMap, HeaderValue};
use bytes::Bytes;
use linchpin_jsonrpc::Id;
use linchpin_protocol::{Era, Revision};
use tokio::task::AbortHandle;

use crate::egress::Target;
use crate::http::names;

/// A shorter id of a session is no secret: anybody would guess it, and every text has such characters.
const SHORTEST_SECRET: usize = 8;
/// Secrets that are remembered: those of sessions that are gone need not be for ever.
const MAX_SECRETS: usize = 16;
/// What stands in texts in place of a secret.
const HIDDEN: &str = "[session]";

/// How messages travel.
#[derive(Clone, Debug)]
pub(super) enum Way {
    /// Each to the server's URL; answers come back on the same exchange.
    Streamable,
    /// To an endpoint that the server named; answers come on the one stream that it named it on.
    Sse(Target),
}

/// The request that opened the session, to open another one.
#[derive(Clone)]
pub(super) struct Greeting {
    pub(super) id: Id<'static>,
    pub(super) line: Bytes,
}

pub(super) struct State {
    pub(super) way: Way,
    session: Option<HeaderValue>,
    /// What no text may show, the newest first.
    secrets: Vec<String>,
    /// Counts the sessions.
    pub(super) generation: u64,
    /// What every request has.
    base: HeaderMap,
    /// The same with what was agreed on, and the session.
    prepared: Option<HeaderMap>,
    pub(super) greeting: Option<Greeting>,
    /// Requests that are not answered, to give them up; for a moment one has no task yet.
    pub(super) under_way: HashMap<Id<'static>, Option<AbortHandle>>,
    /// The stream of messages that belong to no request.
    pub(super) listening: Option<AbortHandle>,
    /// How often in a row that stream brought nothing before its session was lost.
    pub(super) tries: usize,
    /// Whether a stream of changes was open.
    pub(super) has_listened: bool,
    /// The opening of a session in place of a lost one.
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

    /// Another session, or none.
    pub(super) fn set_session(&mut self, session: Option<HeaderValue>) {
        self.session = session;
        self.generation += 1;
        self.prepared = None;
    }

    /// Texts do not show this from now on.
    pub(super) fn hide(&mut self, secret: &str) {
        if secret.len() >= SHORTEST_SECRET && !self.secrets.iter().any(|known| known == secret) {
            self.secrets.truncate(MAX_SECRETS - 1);
            self.secrets.insert(0, secret.to_owned());
        }
    }

    /// A text without what it must not show.
    pub(super) fn without_secrets<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.secrets.iter().fold(Cow::Borrowed(text), |text, secret| {
            if text.contains(secret) { Cow::Owned(text.replace(secret, HIDDEN)) } else { text }
        })
    }

    /// The headers of every request, with what was agreed on and the session, where there are any.
    pub(super) fn headers(&mut self, agreed: Revision) -> HeaderMap {
        if self.prepared.is_none() {
            self.prepared = Some(self.headers_in(self.session.as_ref(), agreed));
        }
        self.prepared.clone().unwrap_or_default()
    }

    /// The same in a certain session.
    pub(super) fn headers_in(&self, session: Option<&HeaderValue>, agreed: Revision) -> HeaderMap {
        let mut headers = self.first_headers(Some(agreed));
        if let Some(session) = session.filter(|_| agreed.era() == Era::Session) {
            headers.insert(names::SESSION_ID, session.clone());
        }
        headers
    }

    /// The headers of whatever is sent now.
    pub(super) fn headers_now(&mut self, agreed: Option<Revision>) -> HeaderMap {
        match agreed {
            Some(agreed) => self.headers(agreed),
            None => self.first_headers(None),
        }
    }

    /// The headers of a request that comes before the agreement, and of which revision it says it is.
    pub(super) fn first_headers(&self, stated: Option<Revision>) -> HeaderMap {
        let mut headers = self.base.clone();
        if let Some(revision) = stated {
            headers.insert(names::PROTOCOL_VERSION, HeaderValue::from_static(revision.as_str()));
        }
        headers
    }
}
