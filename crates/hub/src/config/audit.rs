//! `[audit]` table of the configuration file: retention, location and durability of the audit.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use linchpin_hub_core::Result;
use linchpin_hub_core::hub::{Options, Retention};
use linchpin_hub_core::object_reader::Form;

use super::Config;

/// Valid retention of audit entries in the store, in days.
const DAYS: std::ops::RangeInclusive<u64> = 1..=36_500;

/// Durability of call and audit records.
#[derive(ValueEnum, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Survives a crash of the hub.
    #[default]
    Process,
    /// Also survives a power loss: commits wait for the disk.
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

/// Settings of the `[audit]` table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Audit {
    /// Durability of call and audit records.
    pub(crate) durability: Option<Durability>,
    /// Retention of entries in the store, in days.
    pub(crate) days: Option<u64>,
    /// Folder for the segments of entries that have left the store.
    pub(crate) folder: Option<PathBuf>,
    /// File of signed chain heads. Default: beside the key file.
    pub(crate) head: Option<PathBuf>,
}

impl Audit {
    pub(super) fn read(mut form: Form) -> Result<Self> {
        let durability = form.text("durability", 20)?.map(|text| {
            let wrong = |_| form.error("durability", "must be `process` or `power`");
            Durability::from_str(&text, false).map_err(wrong)
        });
        let durability = durability.transpose()?;
        let (days, folder) = (form.number("days", DAYS)?, form.text("folder", 4_096)?.map(PathBuf::from));
        let head = form.text("head", 4_096)?.map(PathBuf::from);
        form.end()?;
        Ok(Audit { durability, days, folder, head })
    }
}

impl Config {
    /// Returns the retention of call history and audit.
    pub(crate) fn retention(&self) -> Retention {
        let usual = Options::default().retention;
        let days = |days| Duration::from_hours(24 * days);
        Retention { history: self.days.map_or(usual.history, days), audit: self.audit.days.map(days) }
    }
}
