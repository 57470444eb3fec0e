//! What those who watch are told, word for word. It goes with the change that it tells of, where that is one batch.

use serde_json::json;

use crate::events::Told;
use crate::id::{AgentId, ApprovalId, CallId, ServerId, UserId};
use crate::scope::Subject;
use crate::store::{Decision, Status};

/// The event of sessions that have ended.
pub(super) const SESSION: &str = "session";

/// How far a call is.
pub(super) fn call(id: CallId, server: ServerId, tool: &str, status: Status) -> Told {
    Told::new("call", json!({ "call": id, "server": server, "tool": tool, "status": status }))
}

/// How far a question is.
pub(super) fn approval(id: ApprovalId, call: CallId, decision: Decision) -> Told {
    Told::new("approval", json!({ "approval": id, "call": call, "decision": decision }))
}

/// A server is not what it was.
pub(super) fn server(id: ServerId, change: &str) -> Told {
    Told::new("server", json!({ "server": id, "change": change }))
}

/// An agent is not what it was.
pub(super) fn agent(id: AgentId) -> Told {
    Told::new("agent", json!({ "agent": id }))
}

/// Somebody is not who they were.
pub(super) fn user(id: UserId) -> Told {
    Told::new("user", json!({ "user": id }))
}

/// Sessions of somebody have ended: open streams look whether theirs is among them.
pub(super) fn sessions(user: UserId) -> Told {
    Told::new(SESSION, json!({ "user": user }))
}

/// Tokens of somebody have ended: open streams look whether theirs is among them.
pub(super) fn tokens(owner: Subject) -> Told {
    Told::new("token", json!({ "owner": owner.to_string() }))
}
