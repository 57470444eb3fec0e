//! Constructors of the hub's events about calls, approvals, server requests, servers, agents, users, sessions and tokens. An event is
//! published with the commit of its change, where there is one.

use serde_json::json;

use crate::actor::Subject;
use crate::events::{CALL_EVENT, CALL_PROGRESS_EVENT, Event, NewEvent};
use crate::hub::calls::handle::CallProgress;
use crate::id::{AgentId, ApprovalId, ApprovalRuleId, CallId, ServerId, ServerRequestId, UserId};
use crate::store::{ApprovalStatus, CallStatus};

/// Kind of the event for ended sessions.
pub(super) const SESSION_EVENT: &str = "session";

/// Kind of the event for ended tokens.
pub(super) const TOKEN_EVENT: &str = "token";
/// Kind of the event for changed users.
pub(super) const USER_EVENT: &str = "user";
/// Kind of the event for changed servers.
pub(super) const SERVER_EVENT: &str = "server";

/// Creates the event of a changed call status.
pub(super) fn call(id: CallId, server: ServerId, tool: &str, status: CallStatus) -> NewEvent {
    NewEvent::new(CALL_EVENT, json!({ "call": id, "server": server, "tool": tool, "status": status }))
}

/// Creates the event of a changed approval status.
pub(super) fn approval(id: ApprovalId, call: CallId, decision: ApprovalStatus) -> NewEvent {
    NewEvent::new("approval", json!({ "approval": id, "call": call, "decision": decision }))
}

/// Creates the event of an approval rule that was created, was revoked or has expired.
pub(super) fn approval_rule(id: ApprovalRuleId, agent: AgentId, change: &str) -> NewEvent {
    NewEvent::new("approval_rule", json!({ "rule": id, "agent": agent, "change": change }))
}

/// Creates the event of the progress of a call.
pub(super) fn progress(id: CallId, progress: &CallProgress) -> NewEvent {
    let CallProgress { progress, total, message } = progress;
    let body = json!({ "call": id, "progress": progress, "total": total, "message": message });
    NewEvent::new(CALL_PROGRESS_EVENT, body)
}

/// Creates the event of a server request that waits for a reply.
pub(super) fn server_request_opened(id: ServerRequestId, call: CallId) -> NewEvent {
    NewEvent::new("server_request.opened", json!({ "server_request": id, "call": call }))
}

/// Creates the event of a server request that waits no more.
pub(super) fn server_request_closed(id: ServerRequestId, call: CallId, action: &str) -> NewEvent {
    let body = json!({ "server_request": id, "call": call, "action": action });
    NewEvent::new("server_request.closed", body)
}

/// Creates the event of a changed server.
pub(super) fn server(id: ServerId, change: &str) -> NewEvent {
    NewEvent::new(SERVER_EVENT, json!({ "server": id, "change": change }))
}

/// Creates the event of a changed agent.
pub(super) fn agent(id: AgentId) -> NewEvent {
    NewEvent::new("agent", json!({ "agent": id }))
}

/// Creates the event of a changed user.
pub(super) fn user(id: UserId) -> NewEvent {
    NewEvent::new(USER_EVENT, json!({ "user": id }))
}

/// Creates an event of a resource subscription, such as `resource.updated`.
pub(super) fn resource(kind: &'static str, server: ServerId, uri: &str, subject: Subject) -> NewEvent {
    NewEvent::new(kind, json!({ "server": server, "uri": uri, "subject": subject.to_string() }))
}

/// Creates the event that sessions of a user have ended: open streams check whether theirs is one of them.
pub(super) fn sessions(user: UserId) -> NewEvent {
    NewEvent::new(SESSION_EVENT, json!({ "user": user }))
}

/// Creates the event that tokens of a subject have ended: open streams check whether theirs is one of them.
pub(super) fn tokens(owner: Subject) -> NewEvent {
    NewEvent::new(TOKEN_EVENT, json!({ "owner": owner.to_string() }))
}

impl Event {
    /// Returns the user or agent whose session or token has ended, or the user that has changed, if the event reports
    /// that.
    pub fn subject_without_access(&self) -> Option<Subject> {
        match &*self.kind {
            SESSION_EVENT | USER_EVENT => Some(Subject::User(self.body["user"].as_str()?.parse().ok()?)),
            TOKEN_EVENT => self.body["owner"].as_str()?.parse().ok(),
            _ => None,
        }
    }
}
