//! Describing a client: where its server is, and what it can do for it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use linchpin_jsonrpc::CallError;
use linchpin_protocol::model::{
    CreateMessageParams, CreateMessageResult, ElicitParams, ElicitResult, EmptyParams, Implementation,
    LogLevel, LogParams, Root,
};
use linchpin_protocol::{Era, Method, Revision};
use serde_json::Value;

use super::Client;
use super::connect::{Opening, agree};
use super::core::Core;
use super::eras::Eras;
use super::error::ClientError;
use super::handlers::{Changed, Handlers};
use super::inbox::Inbox;
use super::repeat::NOT_CONNECTED;
use super::settings::Settings;
use crate::Result;
use crate::transport::{Transport, Wire};

/// A client that is being described. [`ClientBuilder::connect`] finishes it. What only some ways to a server have is
/// said of those alone: of `ClientBuilder<Http>`, or of a [`Command`](super::Command).
#[must_use = "a client does nothing until it is connected"]
pub struct ClientBuilder<T = Box<dyn Transport>> {
    pub(super) transport: T,
    settings: Settings,
    handlers: Handlers,
    eras: Eras,
}

impl<T: Transport> ClientBuilder<T> {
    pub(super) fn new(transport: T) -> Self {
        let handlers = Handlers { tasks: true, ..Handlers::default() };
        ClientBuilder { transport, settings: Settings::default(), handlers, eras: Eras::of_process() }
    }

    /// Who the client is.
    pub fn info(mut self, info: Implementation) -> Self {
        self.settings.info = info;
        self
    }

    /// How long a request may take; 30 seconds when nothing is said.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// Each sign of progress gives a request its whole time again, up to this long in all.
    pub fn extend_on_progress(mut self, most: Duration) -> Self {
        self.settings.extend_to = Some(most);
        self
    }

    /// How long the server may take to start and to say what it speaks; 60 seconds when nothing is said.
    pub fn open_timeout(mut self, timeout: Duration) -> Self {
        self.settings.open_timeout = timeout;
        self
    }

    /// How long to wait for a sign of the stateless era before a session is opened; 5 seconds when nothing is said.
    pub fn probe_timeout(mut self, timeout: Duration) -> Self {
        self.settings.probe_timeout = timeout;
        self
    }

    /// The longest message that is read, in bytes; 8 MiB when nothing is said.
    pub fn max_response(mut self, bytes: usize) -> Self {
        self.settings.max_message = bytes;
        self
    }

    /// Pages of one list that are read at most; 1,000 when nothing is said.
    pub fn max_pages(mut self, pages: usize) -> Self {
        self.settings.max_pages = pages;
        self
    }

    /// Rounds of questions that one request may take; 32 when nothing is said.
    pub fn max_rounds(mut self, rounds: usize) -> Self {
        self.settings.max_rounds = rounds;
        self
    }

    /// Speaks only these revisions.
    pub fn revisions(mut self, revisions: impl IntoIterator<Item = Revision>) -> Self {
        self.settings.revisions = revisions.into_iter().collect();
        self
    }

    /// The same client, whatever the way to its server.
    pub fn boxed(self) -> ClientBuilder {
        let ClientBuilder { transport, settings, handlers, eras } = self;
        ClientBuilder { transport: Box::new(transport), settings, handlers, eras }
    }

    /// Always asks the server. Otherwise lists, and resources that were read, are kept for as long as the server says
    /// that they are fresh; [`Call::fresh`](super::Call::fresh) and [`Pages::fresh`](super::Pages::fresh) ask once.
    pub fn without_cache(mut self) -> Self {
        self.settings.cache = false;
        self
    }

    /// Gives requests ids that are strings.
    pub fn string_ids(mut self) -> Self {
        self.settings.text_ids = true;
        self
    }

    /// Sets the name of the server in log events. Default: the name that the server reports.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.settings.label = Some(label.into());
        self
    }

    /// Where to remember what servers speak, in place of the memory that all clients of the process share.
    pub fn eras(mut self, eras: Eras) -> Self {
        self.eras = eras;
        self
    }

    /// Answers forms: `|ask: ElicitParams| async move { Ok(ElicitResult::accept(…)) }`.
    pub fn on_elicit<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(ElicitParams) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ElicitResult>> + Send + 'static,
    {
        self.handlers.elicit = Some(Box::new(move |params| Box::pin(handler(params))));
        self
    }

    /// Sends the user to a URL: to be shown in full, and opened only if the user agrees.
    pub fn on_elicit_url<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(ElicitParams) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ElicitResult>> + Send + 'static,
    {
        self.handlers.elicit_url = Some(Box::new(move |params| Box::pin(handler(params))));
        self
    }

    /// Asks a model on behalf of the server.
    pub fn on_sample<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(CreateMessageParams) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<CreateMessageResult>> + Send + 'static,
    {
        self.handlers.sample = Some(Box::new(move |params| Box::pin(handler(params))));
        self
    }

    /// As [`Self::on_sample`], by a model that can use the tools of a request.
    pub fn on_sample_with_tools<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(CreateMessageParams) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<CreateMessageResult>> + Send + 'static,
    {
        self.handlers.sample_tools = true;
        self.on_sample(handler)
    }

    /// The folders that the client works in; [`Client::set_roots`] changes them.
    pub fn roots(self, roots: impl IntoIterator<Item = Root>) -> Self {
        *crate::sync::lock(&self.handlers.roots) = Some(roots.into_iter().collect());
        self
    }

    /// Is told the server's log messages of at least this level. This, as all that is told, happens on the thread that
    /// reads: it must not block.
    pub fn on_log(mut self, least: LogLevel, told: impl Fn(LogParams) + Send + Sync + 'static) -> Self {
        self.settings.log_level = Some(least);
        self.handlers.log = Some(Box::new(told));
        self
    }

    /// Is told when a list of the server has changed.
    pub fn on_list_changed(mut self, told: impl Fn(Changed) + Send + Sync + 'static) -> Self {
        self.handlers.list_changed = Some(Box::new(told));
        self
    }

    /// Is told when a resource has changed that [`Client::subscribe`] watches.
    pub fn on_resource_updated(mut self, told: impl Fn(String) + Send + Sync + 'static) -> Self {
        self.handlers.resource_updated = Some(Box::new(told));
        self
    }

    /// Is told every notification, by its method and parameters.
    pub fn on_notification(mut self, told: impl Fn(&str, Value) + Send + Sync + 'static) -> Self {
        self.handlers.notification = Some(Box::new(told));
        self
    }

    /// Offers everything a client can be asked for, and leaves the answers to whoever made the call that a
    /// question came with: for a client behind [`crate::Server::proxy`].
    pub fn forwarding(mut self) -> Self {
        self.handlers.forward = true;
        self
    }

    /// Does not offer to take results as tasks, which servers may otherwise make of slow calls.
    pub fn without_tasks(mut self) -> Self {
        self.handlers.tasks = false;
        self
    }

    /// Starts or reaches the server and agrees with it on a revision.
    pub async fn connect(self) -> Result<Client, ClientError> {
        let ClientBuilder { transport, settings, handlers, eras } = self;
        let handlers = Arc::new(handlers);
        let name = transport.name();
        let spoken = settings.revisions.clone();
        let speaks = |era: Era| spoken.iter().any(|revision| revision.era() == era);
        let remembered = eras.find(&name).map(Revision::era).filter(|era| speaks(*era));
        let mut opening = remembered.map_or(Opening::Probe, Opening::Known);
        loop {
            let core = Core::new(settings.clone(), handlers.clone());
            let wire = Wire::new(Arc::new(Inbox(core.clone())), core.outbox.clone(), settings.max_message);
            let line = match tokio::time::timeout(settings.open_timeout, transport.open(wire)).await {
                Ok(line) => line,
                Err(_) => Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("`{name}` could not be opened in time"),
                )),
            };
            let line = line.map_err(|source| ClientError::Open { server: name.clone(), source })?;
            match Box::pin(agree(&core, opening)).await {
                Ok(agreed) => {
                    let era = agreed.revision.era();
                    // A client of one era alone does not find out what the server would choose.
                    if speaks(Era::Session) && speaks(Era::Stateless) {
                        eras.set(&name, agreed.revision);
                    }
                    let _ = core.agreed.set(agreed);
                    // Only now: the server may ask as soon as it reads this, and is answered in what was agreed on.
                    if era == Era::Session {
                        core.notify(Method::Initialized.name(), &EmptyParams::default());
                        // A server that does not take it is found out by the next request.
                        let _ = tokio::time::timeout(settings.open_timeout, line.flush()).await;
                    }
                    return Client::new(core, line).opened().await;
                }
                Err(error) => {
                    line.close().await;
                    if is_refusal(&error) {
                        return Err(error); // whatever it speaks
                    }
                    // A server of old may die of a request it does not know, and one that is remembered may have
                    // been replaced: the other beginning is tried once.
                    opening = match (opening, &error) {
                        (Opening::Probe, ClientError::Call(CallError::Closed(_) | CallError::Lost(_)))
                            if speaks(Era::Session) =>
                        {
                            Opening::Known(Era::Session)
                        }
                        (Opening::Known(_), _) if eras.find(&name).is_some() => Opening::Probe,
                        _ => return Err(unreached(&name, error)),
                    };
                    eras.forget(&name);
                }
            }
        }
    }
}

/// A server that was not reached at all.
fn unreached(server: &str, error: ClientError) -> ClientError {
    match error {
        ClientError::Call(CallError::Transport { code: NOT_CONNECTED, message, .. }) => {
            ClientError::Open { server: server.to_owned(), source: io::Error::other(message.to_string()) }
        }
        error => error,
    }
}

/// Whether the server, or somebody before it, does not let the client in.
fn is_refusal(error: &ClientError) -> bool {
    matches!(error, ClientError::Call(CallError::Transport { status: Some(401 | 403 | 407), .. }))
}
