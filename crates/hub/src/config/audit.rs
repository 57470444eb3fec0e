//! What the operator's file says about the audit.

use clap::ValueEnum;
use linchpin_hub_core::Result;
use linchpin_hub_core::form::Form;

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
}

impl Audit {
    pub(super) fn read(mut form: Form) -> Result<Self> {
        let durability = form.text("durability", 20)?.map(|text| {
            let wrong = |_| form.error("durability", "it is `process` or `power`");
            Durability::from_str(&text, false).map_err(wrong)
        });
        let durability = durability.transpose()?;
        form.end()?;
        Ok(Audit { durability })
    }
}
