//! Start of an admitted call: the decision that allows it, and what the caller receives if the start fails.

use tokio::sync::oneshot;

use super::plan::PlannedCall;
use crate::error::{Error, Result};
use crate::id::ApprovalId;
use crate::policy::PolicyReason;
use crate::store::Batch;

/// What executing an admitted call needs besides the call: why it may start, and where to report its start.
pub(in crate::hub) struct CallStart {
    pub(in crate::hub) basis: CallBasis,
    /// Channel that reports to the caller whether the start of the call was stored.
    pub(in crate::hub) started: oneshot::Sender<Result<(), FailedStart>>,
}

/// Call whose start was not stored.
pub(in crate::hub) struct FailedStart {
    pub(in crate::hub) error: Error,
    /// The call, which may be started again. `None` if the hub is shutting down.
    pub(in crate::hub) plan: Option<Box<PlannedCall>>,
}

/// Decision that allows a call.
pub(in crate::hub) enum CallBasis {
    /// The policy allows the call without approval.
    Policy {
        /// Reason of the policy, for the audit.
        reason: PolicyReason,
        /// Digest of the call: it does not start while an equal request of its client waits for an approval or result.
        unless_waiting: Option<String>,
    },
    /// A user has approved the call.
    Approval(ApprovalUse),
}

impl CallBasis {
    /// Returns the reason code, for the audit.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            CallBasis::Policy { reason, .. } => reason.code(),
            CallBasis::Approval(_) => "approved",
        }
    }
}

/// Approval of a pending call by a user, with what is stored when it is used. It is stored and consumed in the commit
/// that starts the call.
pub(in crate::hub) struct ApprovalUse {
    pub(in crate::hub) id: ApprovalId,
    pub(in crate::hub) batch: Batch,
}
