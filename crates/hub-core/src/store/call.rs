//! Call records and approvals as stored.

use jiff::Timestamp;

use crate::digest::Digest;
use crate::id::{ApprovalId, CallId, ServerId};

/// Status of a call.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "CallStatus")]
pub enum Status {
    /// The call waits for approval.
    Pending,
    /// The call was sent and has no result yet.
    Running,
    /// The server returned a result.
    Success,
    /// The server returned an error or could not be reached.
    Error,
    /// A user or the policy denied the call.
    Denied,
    /// The call was cancelled.
    Cancelled,
    /// The call was sent, and its outcome cannot be determined. It is never sent again.
    Unknown,
}

impl Status {
    /// All statuses.
    pub const ALL: [Status; 7] = [
        Status::Pending,
        Status::Running,
        Status::Success,
        Status::Error,
        Status::Denied,
        Status::Cancelled,
        Status::Unknown,
    ];

    /// Returns the stored name.
    pub fn name(self) -> &'static str {
        match self {
            Status::Pending => "pending",
            Status::Running => "running",
            Status::Success => "success",
            Status::Error => "error",
            Status::Denied => "denied",
            Status::Cancelled => "cancelled",
            Status::Unknown => "unknown",
        }
    }

    /// Finds a status by its name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }

    /// Returns whether the status is final.
    pub fn is_final(self) -> bool {
        !matches!(self, Status::Pending | Status::Running)
    }
}

/// Call record.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Call {
    /// Id of the call.
    pub id: CallId,
    /// Server.
    pub server: ServerId,
    /// Upstream name of the tool.
    pub tool: String,
    /// Subject of the caller.
    pub subject: String,
    /// Status.
    pub status: Status,
    /// Digest of the arguments.
    pub digest: Digest,
    /// Encrypted arguments, if they are stored.
    #[serde(with = "super::bytes::maybe")]
    pub arguments: Option<Vec<u8>>,
    /// Encrypted result, if there is one and it is stored.
    #[serde(with = "super::bytes::maybe")]
    pub result: Option<Vec<u8>>,
    /// Encrypted error message.
    #[serde(with = "super::bytes::maybe")]
    pub error: Option<Vec<u8>>,
    /// Time of the request.
    pub created: Timestamp,
    /// Time at which the call was sent.
    pub started: Option<Timestamp>,
    /// Time at which the call finished.
    pub completed: Option<Timestamp>,
}

/// Outcome of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Final status.
    pub status: Status,
    /// Encrypted result.
    pub result: Option<Vec<u8>>,
    /// Encrypted error message.
    pub error: Option<Vec<u8>>,
    /// Time at which the call finished.
    pub at: Timestamp,
    /// Whether the arguments stay in the store.
    pub keeps_arguments: bool,
}

/// Filter of a call list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallFilter {
    /// Server.
    pub server: Option<ServerId>,
    /// Upstream name of the tool.
    pub tool: Option<String>,
    /// Status.
    pub status: Option<Status>,
    /// Subject of the caller.
    pub subject: Option<String>,
    /// Earliest time of the request, inclusive.
    pub since: Option<Timestamp>,
    /// Latest time of the request, exclusive.
    pub until: Option<Timestamp>,
}

/// Status of an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// The approval waits for a decision.
    Open,
    /// A user approved the call.
    Approved,
    /// A user or the policy denied the call.
    Denied,
    /// The approval expired before a decision.
    Expired,
    /// The approval was used for its call and cannot be used again.
    Used,
    /// The call was cancelled, so that the approval is not needed any more.
    Withdrawn,
}

impl Decision {
    /// All statuses.
    pub const ALL: [Decision; 6] = [
        Decision::Open,
        Decision::Approved,
        Decision::Denied,
        Decision::Expired,
        Decision::Used,
        Decision::Withdrawn,
    ];

    /// Returns the stored name.
    pub const fn name(self) -> &'static str {
        match self {
            Decision::Open => "open",
            Decision::Approved => "approved",
            Decision::Denied => "denied",
            Decision::Expired => "expired",
            Decision::Used => "used",
            Decision::Withdrawn => "withdrawn",
        }
    }

    /// Finds a status by its name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|decision| decision.name() == name)
    }
}

/// Approval: a request to a user to permit one exact call.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Approval {
    /// Id of the approval.
    pub id: ApprovalId,
    /// Call.
    pub call: CallId,
    /// Binding: digest over policy version, subject, server, pinned tool definition and arguments.
    pub digest: Digest,
    /// Status.
    pub decision: Decision,
    /// Subject that decided.
    pub decided_by: Option<String>,
    /// Time of the request.
    pub created: Timestamp,
    /// Expiry: the approval can be decided and used until then.
    pub expires: Timestamp,
    /// Time of the decision.
    pub decided: Option<Timestamp>,
}

/// Filter of an approval list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApprovalFilter {
    /// Call.
    pub call: Option<CallId>,
    /// Status.
    pub decision: Option<Decision>,
}
