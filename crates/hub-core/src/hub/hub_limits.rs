//! Limits of the hub that the configuration file sets: size of a result, idle time of a connection, interval of syncs.

use std::time::Duration;

use super::Hub;
use super::context::HubContext;
use crate::bounded_result;
use crate::lock::lock;

/// Limits of the hub that can change while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HubLimits {
    /// Maximum size in bytes of a tool result; a larger one is truncated.
    pub result_bytes: usize,
    /// Idle time after which a connection to a server is closed.
    pub connection_idle: Duration,
    /// Interval of periodic syncs of the servers that have no own interval.
    pub sync_interval: Duration,
}

impl Default for HubLimits {
    fn default() -> Self {
        HubLimits {
            result_bytes: bounded_result::DEFAULT_LIMIT,
            connection_idle: Duration::from_mins(10),
            sync_interval: Duration::from_mins(15),
        }
    }
}

impl Hub {
    /// Replaces the limits of the hub. They apply to results, connections and syncs from now on.
    pub fn set_limits(&self, limits: HubLimits) {
        if std::mem::replace(&mut *lock(&self.context.limits), limits) != limits {
            tracing::info!(?limits, "limits changed");
        }
    }
}

impl HubContext {
    /// Returns the current limits of the hub.
    pub(in crate::hub) fn limits(&self) -> HubLimits {
        *lock(&self.limits)
    }
}
