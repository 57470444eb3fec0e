//! `[audit]` table of the configuration file: retention, location and durability of the audit.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use linchpin_hub_core::Result;
use linchpin_hub_core::hub::{HubOptions, Retention};
use linchpin_hub_core::object_reader::ObjectReader;

use super::Config;

/// Valid range of the retention of audit entries in the store, in days.
const RETENTION_DAYS: std::ops::RangeInclusive<u64> = 1..=36_500;

/// Setting `durability` of the `[audit]` table: whether records survive a crash of the hub, or also a power loss.
#[derive(ValueEnum, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Records survive a crash of the hub.
    #[default]
    Process,
    /// Records also survive a power loss: commits wait for the disk.
    Power,
}

impl From<Durability> for linchpin_hub_store::Durability {
    fn from(durability: Durability) -> Self {
        match durability {
            Durability::Process => Self::Process,
            Durability::Power => Self::Power,
        }
    }
}

/// Settings of the audit in the configuration file (`[audit]` table).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AuditConfig {
    /// Durability of call and audit records.
    pub(crate) durability: Option<Durability>,
    /// Retention of audit entries in the store, in days.
    pub(crate) days: Option<u64>,
    /// Folder for the segments of entries that have left the store.
    pub(crate) folder: Option<PathBuf>,
    /// File of signed chain heads. Default: beside the key file.
    pub(crate) head: Option<PathBuf>,
}

impl AuditConfig {
    pub(super) fn read(mut form: ObjectReader) -> Result<Self> {
        let durability = form.string("durability", 20)?.map(|text| {
            let invalid_durability = |_| form.error("durability", "must be `process` or `power`");
            Durability::from_str(&text, false).map_err(invalid_durability)
        });
        let durability = durability.transpose()?;
        let (days, folder) =
            (form.number("days", RETENTION_DAYS)?, form.string("folder", 4_096)?.map(PathBuf::from));
        let head = form.string("head", 4_096)?.map(PathBuf::from);
        form.finish()?;
        Ok(AuditConfig { durability, days, folder, head })
    }
}

impl Config {
    /// Returns the retention of call history and audit.
    pub(crate) fn retention(&self) -> Retention {
        let defaults = HubOptions::default().retention;
        let days = |days| Duration::from_hours(24 * days);
        Retention { history: self.days.map_or(defaults.history, days), audit: self.audit.days.map(days) }
    }
}
