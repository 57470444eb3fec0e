//! Calls and approvals as they are kept.

use jiff::Timestamp;

use crate::digest::Digest;
use crate::id::{ApprovalId, CallId, ServerId};

/// How far a call is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "CallStatus")]
pub enum Status {
    /// It waits for a person.
    Pending,
    /// It is under way.
    Running,
    /// The server answered.
    Success,
    /// The server answered that it failed, or could not be reached.
    Error,
    /// A person, or a rule, said no.
    Denied,
    /// Whoever wanted it gave it up.
    Cancelled,
    /// It was sent, and nobody knows what came of it. It is never sent again.
    Unknown,
}

impl Status {
    /// All of them.
    pub const ALL: [Status; 7] = [
        Status::Pending,
        Status::Running,
        Status::Success,
        Status::Error,
        Status::Denied,
        Status::Cancelled,
        Status::Unknown,
    ];

    /// How it is called.
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

    /// The one with this name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }

    /// Whether nothing more will happen.
    pub fn is_final(self) -> bool {
        !matches!(self, Status::Pending | Status::Running)
    }
}

/// One call of a tool.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Call {
    /// Its id.
    pub id: CallId,
    /// The server.
    pub server: ServerId,
    /// The tool, as the server calls it.
    pub tool: String,
    /// Who wants it.
    pub subject: String,
    /// How far it is.
    pub status: Status,
    /// The digest of its arguments.
    pub digest: Digest,
    /// The arguments, sealed, if they are kept.
    #[serde(with = "super::bytes::maybe")]
    pub arguments: Option<Vec<u8>>,
    /// The result, sealed, if there is one and it is kept.
    #[serde(with = "super::bytes::maybe")]
    pub result: Option<Vec<u8>>,
    /// Why it failed, sealed.
    #[serde(with = "super::bytes::maybe")]
    pub error: Option<Vec<u8>>,
    /// When it was wanted.
    pub created: Timestamp,
    /// When it was sent.
    pub started: Option<Timestamp>,
    /// When it was over.
    pub completed: Option<Timestamp>,
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub status: Status,
    /// The result, sealed.
    pub result: Option<Vec<u8>>,
    /// Why it failed, sealed.
    pub error: Option<Vec<u8>>,
    /// When.
    pub at: Timestamp,
    /// Whether its arguments are still kept.
    pub keeps_arguments: bool,
}

/// Which calls are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallFilter {
    /// Of this server.
    pub server: Option<ServerId>,
    /// Of this tool.
    pub tool: Option<String>,
    /// That are so far.
    pub status: Option<Status>,
    /// Of this subject.
    pub subject: Option<String>,
    /// From then on.
    pub since: Option<Timestamp>,
    /// Before then.
    pub until: Option<Timestamp>,
}

/// What a person said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// Nothing yet.
    Open,
    /// Yes.
    Approved,
    /// No.
    Denied,
    /// Nothing in time.
    Expired,
    /// Yes, and it was made use of. It cannot be used again.
    Used,
    /// It is not wanted any more.
    Withdrawn,
}

impl Decision {
    /// All of them.
    pub const ALL: [Decision; 6] = [
        Decision::Open,
        Decision::Approved,
        Decision::Denied,
        Decision::Expired,
        Decision::Used,
        Decision::Withdrawn,
    ];

    /// How it is called.
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

    /// The one with this name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|decision| decision.name() == name)
    }
}

/// A question to a person: may this call be made, exactly so?
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Approval {
    /// Its id.
    pub id: ApprovalId,
    /// The call.
    pub call: CallId,
    /// What it is bound to: subject, server, tool as it is defined, arguments, policy.
    pub digest: Digest,
    /// What was said.
    pub decision: Decision,
    /// Who said it.
    pub decided_by: Option<String>,
    /// When it was asked.
    pub created: Timestamp,
    /// Until when it can be answered, and made use of.
    pub expires: Timestamp,
    /// When it was answered.
    pub decided: Option<Timestamp>,
}

/// Which approvals are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApprovalFilter {
    /// Of this call.
    pub call: Option<CallId>,
    /// With this decision.
    pub decision: Option<Decision>,
}
