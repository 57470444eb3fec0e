//! What a server is told once and keeps: identity, limits, hooks.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use linchpin_jsonrpc::Limits;
use linchpin_protocol::Revision;
use linchpin_protocol::model::{CacheHints, Implementation, Meta};

use super::clock::Clock;
use super::context::Context;
use super::custom::{NotificationHandler, RequestHandler};
use super::layer::Layer;
use super::listed::Listed;
use super::report::{Event, Report};
use super::resource::CatchAll;
#[cfg(feature = "rounds")]
use super::rounds::Keys;
use super::state::StateMap;
use super::tasks::Tasks;

/// Settings of a server.
pub(crate) struct Settings {
    pub(crate) info: Implementation,
    pub(crate) instructions: Option<String>,
    /// The revisions that are spoken.
    pub(crate) revisions: Vec<Revision>,
    pub(crate) page_size: usize,
    pub(crate) cache: CacheHints,
    pub(crate) limits: Limits,
    pub(crate) max_message: usize,
    pub(crate) max_in_flight: usize,
    pub(crate) shutdown_timeout: Duration,
    /// How long a client may take to answer a question.
    pub(crate) question_timeout: Duration,
    pub(crate) clock: Clock,
    pub(crate) tasks: Tasks,
    /// Calls that may wait for answers without a session.
    pub(crate) max_parked: usize,
    /// Whom the state that travels through clients is meant for: the server's name when nothing is said.
    pub(crate) audience: Option<String>,
    #[cfg(feature = "rounds")]
    pub(crate) keys: Keys,
    pub(crate) experimental: Option<Meta>,
    pub(crate) extensions: Option<Meta>,
    pub(crate) state: StateMap,
    pub(crate) layers: Vec<Arc<dyn Layer>>,
    pub(crate) requests: HashMap<String, RequestHandler>,
    pub(crate) notifications: HashMap<String, NotificationHandler>,
    pub(crate) catch_all: Option<Arc<dyn CatchAll>>,
    pub(crate) instrument: Option<Instrument>,
    pub(crate) on_error: Option<OnError>,
    pub(crate) visible: Option<Visible>,
}

/// Is told of every request.
pub(crate) type Instrument = Box<dyn Fn(&Event<'_>) + Send + Sync>;
/// Is told of hidden errors.
pub(crate) type OnError = Box<dyn Fn(&Report<'_>) + Send + Sync>;
/// Decides which registered things a request may see.
pub(crate) type Visible = Box<dyn Fn(Listed<'_>, &Context) -> bool + Send + Sync>;

impl Settings {
    /// The first thing in it that works around handlers and not in them.
    pub(crate) fn hook(&self) -> Option<&'static str> {
        let hooks = [
            ("layers", !self.layers.is_empty()),
            ("methods of its own", !self.requests.is_empty()),
            ("notification handlers", !self.notifications.is_empty()),
            ("a catch-all for resources", self.catch_all.is_some()),
            ("an instrument", self.instrument.is_some()),
            ("an error reporter", self.on_error.is_some()),
            ("a visibility rule", self.visible.is_some()),
        ];
        hooks.into_iter().find_map(|(hook, present)| present.then_some(hook))
    }

    pub(crate) fn new(info: Implementation) -> Self {
        Settings {
            info,
            instructions: None,
            revisions: Revision::ALL.to_vec(),
            page_size: 1_000,
            cache: CacheHints::default(),
            limits: Limits::default(),
            max_message: 4 << 20,
            max_in_flight: 1_024,
            shutdown_timeout: Duration::from_secs(30),
            question_timeout: Duration::from_mins(10),
            clock: Clock::default(),
            tasks: Tasks::default(),
            max_parked: 1_024,
            audience: None,
            #[cfg(feature = "rounds")]
            keys: Keys::random(),
            experimental: None,
            extensions: None,
            state: StateMap::default(),
            layers: Vec::new(),
            requests: HashMap::new(),
            notifications: HashMap::new(),
            catch_all: None,
            instrument: None,
            on_error: None,
            visible: None,
        }
    }
}
