//! Criteria that select audit entries.

use jiff::Timestamp;

/// Criteria that select audit entries when they are listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Only entries of one of these actors (`user:ID`, `agent:ID` or `hub`). Empty: entries of all actors.
    pub actors: Vec<String>,
    /// Only entries with this action; if it ends with `.`, with any action that begins with it.
    pub action: Option<String>,
    /// Only entries at or after this time.
    pub since: Option<Timestamp>,
    /// Only entries before this time.
    pub until: Option<Timestamp>,
}
