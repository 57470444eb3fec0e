//! What the operator's file says about how long things are kept, and what that survives.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use linchpin_hub_core::Result;
use linchpin_hub_core::form::Form;
use linchpin_hub_core::hub::{Options, Retention};

use super::Config;

/// Days that entries stay in the store.
const DAYS: std::ops::RangeInclusive<u64> = 1..=36_500;

/// What is kept of a call before it is made survives this.
#[derive(ValueEnum, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Durability {
    /// The end of the hub, however it comes.
    #[default]
    Process,
    /// The end of the machine, too: the disk is waited for.
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

/// What `[audit]` says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Audit {
    /// What is kept survives this.
    pub(crate) durability: Option<Durability>,
    /// Days that entries stay in the store.
    pub(crate) days: Option<u64>,
    /// The folder for those that do not.
    pub(crate) folder: Option<PathBuf>,
    /// The file of signed heads. Default: beside the key file.
    pub(crate) head: Option<PathBuf>,
}

impl Audit {
    pub(super) fn read(mut form: Form) -> Result<Self> {
        let durability = form.text("durability", 20)?.map(|text| {
            let wrong = |_| form.error("durability", "it is `process` or `power`");
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
    /// How long what is kept.
    pub(crate) fn retention(&self) -> Retention {
        let usual = Options::default().retention;
        let days = |days| Duration::from_hours(24 * days);
        Retention { history: self.days.map_or(usual.history, days), audit: self.audit.days.map(days) }
    }
}
