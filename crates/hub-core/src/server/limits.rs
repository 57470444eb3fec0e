//! Connection limits of a server: timeouts, size of a response, reconnects and the interval of syncs.

use std::ops::RangeInclusive;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::object_reader::ObjectReader;

/// Allowed range of `open_timeout_ms`: up to ten minutes, for servers that install themselves when they start.
pub const OPEN_TIMEOUT_RANGE_MS: RangeInclusive<u64> = 1_000..=600_000;
/// Allowed range of `read_timeout_ms`: up to one hour.
pub const READ_TIMEOUT_RANGE_MS: RangeInclusive<u64> = 1_000..=3_600_000;
/// Allowed range of `max_call_ms`: up to one day.
pub const MAX_CALL_RANGE_MS: RangeInclusive<u64> = 1_000..=86_400_000;
/// Allowed range of `sync_interval_ms`: from one minute to one week.
pub const SYNC_INTERVAL_RANGE_MS: RangeInclusive<u64> = 60_000..=604_800_000;
/// Allowed range of `max_response_bytes`: from 64 KiB to 256 MiB.
pub const MAX_RESPONSE_RANGE: RangeInclusive<u64> = 65_536..=268_435_456;
/// Allowed range of `max_reconnects`.
pub const RECONNECTS_RANGE: RangeInclusive<u64> = 0..=1_000;

/// Default of `max_call_ms`.
const DEFAULT_MAX_CALL: Duration = Duration::from_mins(10);

/// Limits of the connections to a server. A limit that is not set has its default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ConnectionLimits {
    /// Timeout for starting or reaching the server and agreeing on a revision, in milliseconds. Default: 60,000.
    #[schemars(range(min = 1_000, max = 600_000))]
    pub open_timeout_ms: Option<u64>,
    /// Idle time after which a stream or response of a remote server counts as lost, in milliseconds. Default: 300,000.
    #[schemars(range(min = 1_000, max = 3_600_000))]
    pub read_timeout_ms: Option<u64>,
    /// Maximum number of consecutive reconnects of a lost stream of a remote server. Default: 20.
    #[schemars(range(min = 0, max = 1_000))]
    pub max_reconnects: Option<u32>,
    /// Maximum size of a message of the server, in bytes. Default: 8 MiB.
    #[schemars(range(min = 65_536, max = 268_435_456))]
    pub max_response_bytes: Option<u64>,
    /// Maximum duration of a call in milliseconds: progress, tasks and open server requests extend the timeout of a
    /// call up to it. Default: 600,000.
    #[schemars(range(min = 1_000, max = 86_400_000))]
    pub max_call_ms: Option<u64>,
    /// Interval of periodic syncs, in milliseconds. Default: that of the hub.
    #[schemars(range(min = 60_000, max = 604_800_000))]
    pub sync_interval_ms: Option<u64>,
}

impl ConnectionLimits {
    /// Reads the limits from the members of an API or configuration object.
    pub(super) fn read(form: &mut ObjectReader) -> Result<Self> {
        Ok(ConnectionLimits {
            open_timeout_ms: form.number("open_timeout_ms", OPEN_TIMEOUT_RANGE_MS)?,
            read_timeout_ms: form.number("read_timeout_ms", READ_TIMEOUT_RANGE_MS)?,
            max_reconnects: form
                .number("max_reconnects", RECONNECTS_RANGE)?
                .and_then(|count| u32::try_from(count).ok()),
            max_response_bytes: form.number("max_response_bytes", MAX_RESPONSE_RANGE)?,
            max_call_ms: form.number("max_call_ms", MAX_CALL_RANGE_MS)?,
            sync_interval_ms: form.number("sync_interval_ms", SYNC_INTERVAL_RANGE_MS)?,
        })
    }

    /// Rejects a maximum duration of calls below their timeout.
    pub(super) fn check(&self, timeout: Duration) -> Result<()> {
        match self.max_call_ms.map(Duration::from_millis) {
            Some(max) if max < timeout => {
                Err(Error::invalid("max_call_ms", "must not be below `timeout_ms`, which it extends"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the maximum duration of a call with this timeout.
    pub fn max_call(&self, timeout: Duration) -> Duration {
        self.max_call_ms.map_or(DEFAULT_MAX_CALL, Duration::from_millis).max(timeout)
    }

    /// Returns the interval of periodic syncs of the server, if it has its own.
    pub fn sync_interval(&self) -> Option<Duration> {
        self.sync_interval_ms.map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: serde_json::Value) -> Result<ConnectionLimits> {
        ConnectionLimits::read(&mut ObjectReader::new(value)?)
    }

    #[test]
    fn each_limit_has_a_range() {
        for (field, min, max) in [
            ("open_timeout_ms", 1_000, 600_000),
            ("read_timeout_ms", 1_000, 3_600_000),
            ("max_reconnects", 0, 1_000),
            ("max_response_bytes", 65_536, 268_435_456),
            ("max_call_ms", 1_000, 86_400_000),
            ("sync_interval_ms", 60_000, 604_800_000),
        ] {
            for value in [min, max] {
                let stored = serde_json::to_value(read(json!({ field: value })).unwrap()).unwrap();
                assert_eq!(stored[field], value, "{field}");
            }
            let error = read(json!({ field: max + 1 })).unwrap_err();
            assert_eq!(error.field(), Some(field));
            assert_eq!(error.message(), format!("must be an integer from {min} to {max}"));
        }
    }

    #[test]
    fn a_call_is_never_limited_below_its_timeout() {
        let limits = ConnectionLimits { max_call_ms: Some(60_000), ..ConnectionLimits::default() };
        assert!(limits.check(Duration::from_mins(1)).is_ok());
        assert_eq!(limits.check(Duration::from_mins(2)).unwrap_err().field(), Some("max_call_ms"));
        assert_eq!(ConnectionLimits::default().max_call(Duration::from_mins(1)), Duration::from_mins(10));
        assert_eq!(ConnectionLimits::default().max_call(Duration::from_mins(20)), Duration::from_mins(20));
    }
}
