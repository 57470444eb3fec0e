//! `[limits]` table of the configuration file: size of results, idle time of connections and interval of syncs.

use std::ops::RangeInclusive;
use std::time::Duration;

use linchpin_hub_core::Result;
use linchpin_hub_core::hub::HubLimits;
use linchpin_hub_core::object_reader::ObjectReader;

use super::Config;

/// Valid range of the maximum size of a tool result: from 1 KiB to 64 MiB.
const RESULT_BYTES: RangeInclusive<u64> = 1_024..=67_108_864;
/// Valid range of the idle time of connections: up to one day.
const CONNECTION_IDLE_MINUTES: RangeInclusive<u64> = 1..=1_440;
/// Valid range of the interval of periodic syncs: up to one week.
const SYNC_INTERVAL_MINUTES: RangeInclusive<u64> = 1..=10_080;

/// Limits of the hub in the configuration file (`[limits]` table).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LimitsConfig {
    /// Maximum size of a tool result, in bytes.
    pub(crate) result_bytes: Option<u64>,
    /// Idle time after which a connection to a server is closed, in minutes.
    pub(crate) connection_idle_minutes: Option<u64>,
    /// Interval of periodic syncs of the servers without an own interval, in minutes.
    pub(crate) sync_interval_minutes: Option<u64>,
}

impl LimitsConfig {
    pub(super) fn read(mut form: ObjectReader) -> Result<Self> {
        let limits = LimitsConfig {
            result_bytes: form.number("result_bytes", RESULT_BYTES)?,
            connection_idle_minutes: form.number("connection_idle_minutes", CONNECTION_IDLE_MINUTES)?,
            sync_interval_minutes: form.number("sync_interval_minutes", SYNC_INTERVAL_MINUTES)?,
        };
        form.finish().map(|()| limits)
    }
}

impl Config {
    /// Returns the limits of the hub.
    pub(crate) fn hub_limits(&self) -> HubLimits {
        let defaults = HubLimits::default();
        let LimitsConfig { result_bytes, connection_idle_minutes, sync_interval_minutes } = self.limits;
        HubLimits {
            result_bytes: result_bytes
                .and_then(|bytes| usize::try_from(bytes).ok())
                .unwrap_or(defaults.result_bytes),
            connection_idle: connection_idle_minutes.map_or(defaults.connection_idle, Duration::from_mins),
            sync_interval: sync_interval_minutes.map_or(defaults.sync_interval, Duration::from_mins),
        }
    }
}
