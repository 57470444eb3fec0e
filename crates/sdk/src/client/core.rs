//! What all handles to one connection share: requests go out here, and their answers come back.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use linchpin_jsonrpc::string::write_string;
use linchpin_jsonrpc::{CallError, Id, Outbox, Patience, Peer, write};
use linchpin_protocol::encode::{Encode, Encoder};
use linchpin_protocol::model::{
    CancelledParams, ClientCapabilities, Implementation, LogLevel, Meta, ServerCapabilities, key,
};
use linchpin_protocol::version::Feature;
use linchpin_protocol::{Era, Method, Revision};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::cache::{Cache, is_kept};
use super::check::Outputs;
use super::handlers::{Answerer, Changed, Handlers};
use super::repeat;
use super::rounds::kind;
use super::settings::Settings;
use super::stray::Stray;
use crate::server::{Progress, start};
use crate::sync::lock;
use crate::transport::Carrier;

/// What requests say of their client; callers cannot say otherwise.
const IDENTITY: [&str; 4] =
    [key::PROTOCOL_VERSION, key::CLIENT_INFO, key::CLIENT_CAPABILITIES, key::LOG_LEVEL];
/// Outgoing bytes that may wait before they count as too many.
const HIGH_WATER: usize = 1 << 20;
/// Answers that a server may owe.
const MAX_WAITING: usize = 4_096;

/// What both sides have agreed on, and what the server said of itself.
#[derive(Debug)]
pub(crate) struct Agreed {
    pub(crate) revision: Revision,
    pub(crate) server: Option<Implementation>,
    pub(crate) capabilities: ServerCapabilities,
    pub(crate) instructions: Option<String>,
}

/// Is told how far a request has come.
pub(crate) type ProgressHook = Arc<dyn Fn(Progress) + Send + Sync>;

pub(crate) struct Core {
    pub(crate) peer: Peer,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) settings: Settings,
    pub(crate) handlers: Arc<Handlers>,
    pub(crate) agreed: Arc<OnceLock<Agreed>>,
    /// Output of the server that is not a message.
    pub(crate) stray: Stray,
    pub(crate) runtime: Handle,
    pub(crate) outputs: Outputs,
    pub(crate) cache: Cache,
    /// The transport, where it does more than carry messages.
    pub(crate) carrier: OnceLock<Weak<dyn Carrier>>,
    /// What is to be set again in a new session: the level of log messages, and the resources that are watched, each
    /// with how many watch it.
    pub(crate) level: Mutex<Option<LogLevel>>,
    pub(crate) subscribed: Mutex<BTreeMap<String, usize>>,
    /// Who is told of progress, by the number of the request.
    pub(crate) progress: Mutex<HashMap<i64, ProgressHook>>,
    /// Requests of the server that are being answered, to give them up.
    pub(crate) answering: Mutex<HashMap<Id<'static>, Arc<Notify>>>,
    /// Those who answer the questions that come with their calls.
    pub(crate) askers: Mutex<Vec<Weak<dyn Answerer>>>,
    /// Those who wait for a stream of notifications to be acknowledged.
    pub(crate) acknowledged: Mutex<HashMap<i64, Arc<Notify>>>,
    /// What every request of the stateless era says of its client: members of `_meta`, ready-made.
    identity: OnceLock<Vec<u8>>,
    /// Is told of changed lists, beside the handlers.
    pub(crate) changed: OnceLock<Box<dyn Fn(Changed) + Send + Sync>>,
}

impl Core {
    pub(crate) fn new(settings: Settings, handlers: Arc<Handlers>) -> Arc<Self> {
        let outbox = Arc::new(Outbox::unattended(HIGH_WATER));
        let agreed: Arc<OnceLock<Agreed>> = Arc::default();
        let known = agreed.clone();
        let peer = Peer::with_ids(outbox.clone(), MAX_WAITING, settings.text_ids, move |to, id, reason| {
            // What comes before the agreement must not be cancelled.
            if let Some(Agreed { revision, .. }) = known.get() {
                cancel(to, *revision, id, reason);
            }
        });
        let runtime = Handle::current();
        start(&runtime, peer.timekeeper());
        Arc::new(Core {
            peer,
            outbox,
            settings,
            handlers,
            agreed,
            stray: Stray::default(),
            runtime,
            outputs: Outputs::default(),
            cache: Cache::default(),
            carrier: OnceLock::new(),
            level: Mutex::default(),
            subscribed: Mutex::default(),
            progress: Mutex::default(),
            answering: Mutex::default(),
            askers: Mutex::default(),
            acknowledged: Mutex::default(),
            identity: OnceLock::new(),
            changed: OnceLock::new(),
        })
    }

    /// The revision that is spoken; while that is not known, the one that is being tried.
    pub(crate) fn revision(&self) -> Revision {
        self.agreed.get().map_or(Revision::LATEST, |agreed| agreed.revision)
    }

    /// The name of the server in log events: the label of the client, or the name that the server reports.
    pub(crate) fn server_label(&self) -> &str {
        let reported = || self.agreed.get().and_then(|agreed| agreed.server.as_ref());
        match &self.settings.label {
            Some(label) => label,
            None => reported().map_or("unknown", |server| &server.name),
        }
    }

    /// Sends a notification. In the stateless era it needs no metadata.
    pub(crate) fn notify(&self, method: &str, params: &dyn Encode) {
        let revision = self.revision();
        self.peer.notify(method, |out| params.encode(&mut Encoder { out, revision }));
    }

    /// The transport, where it does more than carry messages.
    pub(crate) fn carrier(&self) -> Option<Arc<dyn Carrier>> {
        self.carrier.get().and_then(Weak::upgrade)
    }

    /// Sends a request and waits for its result, as JSON text. `params` is a JSON object. What only reads is sent
    /// once more if it was lost alone.
    pub(crate) async fn ask(
        &self,
        revision: Revision,
        method: &str,
        params: &[u8],
        options: &Options,
    ) -> Result<String, CallError> {
        match self.ask_once(revision, method, params, options).await {
            Err(error) if self.may_repeat(method, &error) => {
                tracing::debug!(method, %error, "a request was lost and is sent again");
                Box::pin(self.ask_once(revision, method, params, options)).await
            }
            answer => answer,
        }
    }

    /// As [`Self::ask`], unless a result is kept that counts as fresh.
    pub(crate) async fn ask_kept(
        &self,
        revision: Revision,
        method: Method,
        params: &[u8],
        options: &Options,
    ) -> Result<String, CallError> {
        let plain = options.meta.is_none() && options.capabilities.is_none();
        if !is_kept(method) || !self.settings.cache || !plain || !revision.has(Feature::CacheHints) {
            return self.ask(revision, method.name(), params, options).await;
        }
        let miss = match self.cache.find(method, params) {
            Ok(text) if !options.fresh => return Ok(text),
            Ok(_) => self.cache.pass(method, params),
            Err(miss) => miss,
        };
        let text = Box::pin(self.ask(revision, method.name(), params, options)).await?;
        if kind(&text) == "complete" {
            self.cache.keep(miss, &text);
        }
        Ok(text)
    }

    fn may_repeat(&self, method: &str, error: &CallError) -> bool {
        repeat::is_lost(error)
            && repeat::is_repeatable(method)
            && self.carrier().is_some()
            && !self.outbox.is_closed()
    }

    async fn ask_once(
        &self,
        revision: Revision,
        method: &str,
        params: &[u8],
        options: &Options,
    ) -> Result<String, CallError> {
        let patience = Patience {
            timeout: options.timeout.unwrap_or(self.settings.timeout),
            extend_to: options.extend_to.or(self.settings.extend_to),
        };
        // A server that does not read must not keep anybody for ever.
        if self.outbox.is_full() {
            let room = Box::pin(tokio::time::timeout(patience.timeout, self.outbox.room()));
            room.await.map_err(|_| CallError::TimedOut(patience.timeout))?;
        }
        let wants_progress = options.progress.is_some() || patience.extend_to.is_some();
        let call = self.peer.request(method, patience, |number, out| {
            let token = wants_progress.then_some(number);
            if let Some(hook) = &options.progress {
                lock(&self.progress).insert(number, hook.clone());
            }
            self.write_params(revision, params, token, options, out);
        })?;
        let _forget = options.progress.as_ref().map(|_| Forget { core: self, number: call.number() });
        // In memory an answer may be there at once, again and again: others must have their turn.
        tokio::task::coop::cooperative(call).await
    }

    /// Appends parameters with the metadata that the revision wants in every request.
    pub(crate) fn write_params(
        &self,
        revision: Revision,
        params: &[u8],
        token: Option<i64>,
        options: &Options,
        out: &mut Vec<u8>,
    ) {
        let open = params.strip_suffix(b"}").unwrap_or(b"{");
        out.extend_from_slice(open);
        let stateless = revision.era() == Era::Stateless;
        if stateless || token.is_some() || options.meta.is_some() {
            if open.len() > 1 {
                out.push(b',');
            }
            out.extend_from_slice(b"\"_meta\":{");
            let start = out.len();
            match &options.capabilities {
                _ if !stateless => {}
                None => out.extend_from_slice(self.identity.get_or_init(|| {
                    let mut own = Vec::new();
                    self.write_identity(revision, &self.handlers.capabilities(), &mut own);
                    own
                })),
                Some(capabilities) => self.write_identity(revision, capabilities, out),
            }
            if let Some(token) = token {
                next_member(start, out);
                out.extend_from_slice(b"\"progressToken\":");
                write::integer(token, out);
            }
            let reserved = |key: &str| key == key::PROGRESS_TOKEN || stateless && IDENTITY.contains(&key);
            for (key, value) in
                options.meta.iter().flat_map(|meta| meta.iter()).filter(|(key, _)| !reserved(key))
            {
                next_member(start, out);
                write_string(key, out);
                out.push(b':');
                write::value(value, out);
            }
            out.push(b'}');
        }
        out.push(b'}');
    }

    /// Appends what a request says of its client.
    fn write_identity(&self, revision: Revision, capabilities: &ClientCapabilities, out: &mut Vec<u8>) {
        let start = out.len();
        Encoder { out, revision }.object(|fields| {
            fields.field(key::PROTOCOL_VERSION, &revision);
            fields.field(key::CLIENT_INFO, &self.settings.info);
            fields.field(key::CLIENT_CAPABILITIES, capabilities);
            fields.field(key::LOG_LEVEL, &self.settings.log_level);
        });
        out.remove(start);
        out.pop();
    }

    /// The other side is gone.
    pub(crate) fn end(&self, reason: &str) {
        self.peer.close(reason);
        for answering in lock(&self.answering).values() {
            answering.notify_one();
        }
    }
}

fn next_member(start: usize, out: &mut Vec<u8>) {
    if out.len() > start {
        out.push(b',');
    }
}

/// Removes a hook however its request ends.
struct Forget<'a> {
    core: &'a Core,
    number: i64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        lock(&self.core.progress).remove(&self.number);
    }
}

/// What is special about one request.
#[derive(Clone, Default)]
pub(crate) struct Options {
    pub(crate) timeout: Option<Duration>,
    pub(crate) extend_to: Option<Duration>,
    pub(crate) progress: Option<ProgressHook>,
    pub(crate) meta: Option<Box<Meta>>,
    /// Answers the questions that come with this request, in place of the client's handlers.
    pub(crate) answerer: Option<Arc<dyn Answerer>>,
    /// What that one can answer.
    pub(crate) capabilities: Option<Arc<ClientCapabilities>>,
    /// The server is asked, also where a result is known that counts as fresh.
    pub(crate) fresh: bool,
}

/// Says that an answer is no longer wanted.
fn cancel(outbox: &Outbox, revision: Revision, id: &Id<'_>, reason: &str) {
    let (request_id, reason) = (Some(id.clone().into_owned()), Some(reason.to_owned()));
    let params = CancelledParams { request_id, reason, meta: None };
    outbox.send(|out| {
        let encode = |out: &mut Vec<u8>| params.encode(&mut Encoder { out, revision });
        write::notification(Method::Cancelled.name(), out, encode);
    });
}

/// The level of a session's log messages is set by a request; in the stateless era each request says it.
pub(crate) fn wants_level(revision: Revision, level: Option<LogLevel>) -> Option<LogLevel> {
    level.filter(|_| revision.era() == Era::Session)
}
