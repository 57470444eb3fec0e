//! Settings of a server: identity, limits and hooks, fixed when it is built.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use linchpin_jsonrpc::Limits;
use linchpin_protocol::Revision;
use linchpin_protocol::model::{CacheHints, Implementation, Meta};

use super::clock::Clock;
use super::definitions::custom_method::{NotificationHandler, RequestHandler};
use super::definitions::definition_ref::DefinitionRef;
use super::definitions::resource::FallbackReader;
use super::definitions::shared_state::StateMap;
#[cfg(feature = "rounds")]
use super::input::rounds::StateKeys;
use super::request::context::Context;
use super::request::layer::Layer;
use super::request::observe::{ErrorReport, RequestEvent};
use super::tasks::TaskRegistry;

/// Settings of an MCP server of this library, fixed when it is built.
pub(crate) struct ServerSettings {
    pub(crate) info: Implementation,
    pub(crate) instructions: Option<String>,
    /// Protocol revisions that the server supports.
    pub(crate) revisions: Vec<Revision>,
    pub(crate) page_size: usize,
    pub(crate) cache: CacheHints,
    pub(crate) limits: Limits,
    pub(crate) max_message: usize,
    pub(crate) max_in_flight: usize,
    pub(crate) shutdown_timeout: Duration,
    /// How long a client may take to respond to a server request.
    pub(crate) input_timeout: Duration,
    pub(crate) clock: Clock,
    pub(crate) tasks: TaskRegistry,
    /// How many calls may be parked while they wait for input without a session.
    pub(crate) max_parked: usize,
    /// Audience that request states are bound to, so that other servers reject them. Default: the name of the server.
    pub(crate) audience: Option<String>,
    #[cfg(feature = "rounds")]
    pub(crate) keys: StateKeys,
    pub(crate) experimental: Option<Meta>,
    pub(crate) extensions: Option<Meta>,
    pub(crate) state: StateMap,
    pub(crate) layers: Vec<Arc<dyn Layer>>,
    pub(crate) requests: HashMap<String, RequestHandler>,
    pub(crate) notifications: HashMap<String, NotificationHandler>,
    pub(crate) fallback_reader: Option<Arc<dyn FallbackReader>>,
    pub(crate) instrument: Option<RequestHook>,
    pub(crate) on_error: Option<OnError>,
    pub(crate) visible: Option<VisibilityFilter>,
}

/// Hook that is called for every finished request.
pub(crate) type RequestHook = Box<dyn Fn(&RequestEvent<'_>) + Send + Sync>;
/// Hook that is called with errors whose details clients do not see.
pub(crate) type OnError = Box<dyn Fn(&ErrorReport<'_>) + Send + Sync>;
/// Function that decides which registered definitions a request may see.
pub(crate) type VisibilityFilter = Box<dyn Fn(DefinitionRef<'_>, &Context) -> bool + Send + Sync>;

impl ServerSettings {
    /// Returns the first setting that prevents mounting this server in another one, such as layers or hooks.
    pub(crate) fn mount_obstacle(&self) -> Option<&'static str> {
        let obstacles = [
            ("layers", !self.layers.is_empty()),
            ("custom methods", !self.requests.is_empty()),
            ("notification handlers", !self.notifications.is_empty()),
            ("a fallback resource reader (`on_read`)", self.fallback_reader.is_some()),
            ("a request hook (`instrument`)", self.instrument.is_some()),
            ("an error hook (`on_error`)", self.on_error.is_some()),
            ("a visibility filter (`visible`)", self.visible.is_some()),
        ];
        obstacles.into_iter().find_map(|(obstacle, present)| present.then_some(obstacle))
    }

    pub(crate) fn new(info: Implementation) -> Self {
        ServerSettings {
            info,
            instructions: None,
            revisions: Revision::ALL.to_vec(),
            page_size: 1_000,
            cache: CacheHints::default(),
            limits: Limits::default(),
            max_message: 4 << 20,
            max_in_flight: 1_024,
            shutdown_timeout: Duration::from_secs(30),
            input_timeout: Duration::from_mins(10),
            clock: Clock::default(),
            tasks: TaskRegistry::default(),
            max_parked: 1_024,
            audience: None,
            #[cfg(feature = "rounds")]
            keys: StateKeys::random(),
            experimental: None,
            extensions: None,
            state: StateMap::default(),
            layers: Vec::new(),
            requests: HashMap::new(),
            notifications: HashMap::new(),
            fallback_reader: None,
            instrument: None,
            on_error: None,
            visible: None,
        }
    }
}
