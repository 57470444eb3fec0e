//! Call records and approvals as stored.

use jiff::Timestamp;

use crate::digest::Digest;
use crate::id::{ApprovalId, CallId, ServerId};

/// Status of a tool call of the hub, from waiting for approval to its outcome.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "CallStatus")]
pub enum CallStatus {
    /// The call waits for approval.
    Pending,
    /// The call has started: it is being sent or was sent, and has no outcome yet.
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

impl CallStatus {
    /// All statuses.
    pub const ALL: [CallStatus; 7] = [
        CallStatus::Pending,
        CallStatus::Running,
        CallStatus::Success,
        CallStatus::Error,
        CallStatus::Denied,
        CallStatus::Cancelled,
        CallStatus::Unknown,
    ];

    /// Returns the name of the call status in the store and the API.
    pub fn name(self) -> &'static str {
        match self {
            CallStatus::Pending => "pending",
            CallStatus::Running => "running",
            CallStatus::Success => "success",
            CallStatus::Error => "error",
            CallStatus::Denied => "denied",
            CallStatus::Cancelled => "cancelled",
            CallStatus::Unknown => "unknown",
        }
    }

    /// Finds the status of a call by its name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }

    /// Returns whether the call status is final.
    pub fn is_final(self) -> bool {
        !matches!(self, CallStatus::Pending | CallStatus::Running)
    }
}

/// Call as stored: subject, tool, status, digests, encrypted arguments and result.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CallRecord {
    /// Id of the call.
    pub id: CallId,
    /// Id of the server whose tool is called.
    pub server: ServerId,
    /// Upstream name of the called tool.
    pub tool: String,
    /// Caller: `user:ID` or `agent:ID`.
    pub subject: String,
    /// Status of the call.
    pub status: CallStatus,
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
    /// Time at which the call was requested.
    pub created: Timestamp,
    /// Time at which the call was sent.
    pub started: Option<Timestamp>,
    /// Time at which the call finished.
    pub completed: Option<Timestamp>,
}

/// Outcome of a call: its final status, with result or error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallOutcome {
    /// Final status of the call.
    pub status: CallStatus,
    /// Encrypted tool result.
    pub result: Option<Vec<u8>>,
    /// Encrypted error message.
    pub error: Option<Vec<u8>>,
    /// Time at which the call finished.
    pub at: Timestamp,
    /// Whether the arguments of the call stay in the store.
    pub retains_arguments: bool,
}

/// Criteria that select call records when they are listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallFilter {
    /// Only calls of this server.
    pub server: Option<ServerId>,
    /// Lists only calls of the tool with this upstream name.
    pub tool: Option<String>,
    /// Only calls with this status.
    pub status: Option<CallStatus>,
    /// Only calls of this subject.
    pub subject: Option<String>,
    /// Only calls that were requested at this time or later.
    pub since: Option<Timestamp>,
    /// Only calls that were requested before this time.
    pub until: Option<Timestamp>,
}

/// Status of an approval request: open, or how it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalStatus {
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

impl ApprovalStatus {
    /// All statuses.
    pub const ALL: [ApprovalStatus; 6] = [
        ApprovalStatus::Open,
        ApprovalStatus::Approved,
        ApprovalStatus::Denied,
        ApprovalStatus::Expired,
        ApprovalStatus::Used,
        ApprovalStatus::Withdrawn,
    ];

    /// Returns the name of the approval status in the store and the API.
    pub const fn name(self) -> &'static str {
        match self {
            ApprovalStatus::Open => "open",
            ApprovalStatus::Approved => "approved",
            ApprovalStatus::Denied => "denied",
            ApprovalStatus::Expired => "expired",
            ApprovalStatus::Used => "used",
            ApprovalStatus::Withdrawn => "withdrawn",
        }
    }

    /// Finds the status of an approval by its name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|decision| decision.name() == name)
    }
}

/// Approval: a request to a user to permit one exact call.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Approval {
    /// Id of the approval.
    pub id: ApprovalId,
    /// Call that requires the approval.
    pub call: CallId,
    /// Binding: digest over policy version, subject, server, pinned tool definition and arguments.
    pub digest: Digest,
    /// Status of the approval.
    pub decision: ApprovalStatus,
    /// Subject that decided; `hub` for an expiry or a denial by the policy.
    pub decided_by: Option<String>,
    /// Time at which the approval was requested.
    pub created: Timestamp,
    /// Expiry: the approval can be decided and used until then.
    pub expires: Timestamp,
    /// Time of the decision.
    pub decided: Option<Timestamp>,
}

/// Criteria that select approvals when they are listed: call and status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApprovalFilter {
    /// Only approvals of this call.
    pub call: Option<CallId>,
    /// Only approvals with this status.
    pub decision: Option<ApprovalStatus>,
}
