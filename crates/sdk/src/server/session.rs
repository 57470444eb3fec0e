//! Session: the state of one client between requests (session era only).

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use linchpin_jsonrpc::{Outbox, write};
use linchpin_protocol::Revision;
use linchpin_protocol::model::LogLevel;
use serde_json::Value;

use super::definitions::shared_state::StateMap;
use super::request::context::ClientInfo;
use crate::lock::lock;

/// Maximum number of subscriptions of one client.
pub(crate) const MAX_SUBSCRIPTIONS: usize = 1_000;
/// Maximum length of a URI that is stored for a client, in bytes.
pub(crate) const MAX_URI_LEN: usize = 8 * 1024;

/// Session of one client at a server: state between requests, and notifications. Cheap to clone.
#[derive(Clone)]
pub struct Session(Arc<Inner>);

struct Inner {
    outbox: Arc<Outbox>,
    revision: Revision,
    client: Arc<ClientInfo>,
    initialized: AtomicBool,
    log_level: AtomicU8,
    state: Mutex<StateMap>,
    subscriptions: Mutex<HashSet<String>>,
}

impl Session {
    pub(crate) fn new(revision: Revision, client: ClientInfo, outbox: Arc<Outbox>) -> Self {
        Session(Arc::new(Inner {
            outbox,
            revision,
            client: Arc::new(client),
            initialized: AtomicBool::new(false),
            log_level: AtomicU8::new(LogLevel::Info as u8),
            state: Mutex::default(),
            subscriptions: Mutex::default(),
        }))
    }

    /// Sends a custom notification to this client, also between requests. Returns `false` if the client is gone or
    /// reads too slowly.
    pub fn notify(&self, method: &str, params: &Value) -> bool {
        self.0.outbox.try_send(|out| write::notification(method, out, |out| write::value(params, out)))
    }

    /// Stores a value for this client, by its type.
    pub fn set<T: Send + Sync + 'static>(&self, value: T) {
        lock(&self.0.state).insert(value);
    }

    /// Returns the value of this type that was stored for this client.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        lock(&self.0.state).find()
    }

    pub(crate) fn revision(&self) -> Revision {
        self.0.revision
    }

    pub(crate) fn client(&self) -> &Arc<ClientInfo> {
        &self.0.client
    }

    pub(crate) fn is_initialized(&self) -> bool {
        self.0.initialized.load(Ordering::Acquire)
    }

    pub(crate) fn set_initialized(&self) {
        self.0.initialized.store(true, Ordering::Release);
    }

    pub(crate) fn log_level(&self) -> LogLevel {
        const LEVELS: [LogLevel; 8] = [
            LogLevel::Debug,
            LogLevel::Info,
            LogLevel::Notice,
            LogLevel::Warning,
            LogLevel::Error,
            LogLevel::Critical,
            LogLevel::Alert,
            LogLevel::Emergency,
        ];
        LEVELS[usize::from(self.0.log_level.load(Ordering::Relaxed)) % LEVELS.len()]
    }

    pub(crate) fn set_log_level(&self, level: LogLevel) {
        self.0.log_level.store(level as u8, Ordering::Relaxed);
    }

    /// Subscribes the client to a resource; `false` if it already has the maximum number of subscriptions.
    pub(crate) fn subscribe(&self, uri: String) -> bool {
        let mut subscriptions = lock(&self.0.subscriptions);
        if subscriptions.len() >= MAX_SUBSCRIPTIONS && !subscriptions.contains(&uri) {
            return false;
        }
        subscriptions.insert(uri);
        true
    }

    pub(crate) fn subscriptions(&self) -> Vec<String> {
        lock(&self.0.subscriptions).iter().cloned().collect()
    }

    pub(crate) fn unsubscribe(&self, uri: &str) {
        lock(&self.0.subscriptions).remove(uri);
    }

    pub(crate) fn is_subscribed(&self, uri: &str) -> bool {
        lock(&self.0.subscriptions).contains(uri)
    }
}
