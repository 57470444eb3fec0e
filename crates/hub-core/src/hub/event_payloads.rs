//! Payloads of hub events. An event is published with the commit of its change, where there is one.

use serde_json::json;

use crate::actor::Subject;
use crate::events::Told;
use crate::id::{AgentId, ApprovalId, CallId, ServerId, UserId};
use crate::store::{Decision, Status};

/// Kind of the event for ended sessions.
pub(super) const SESSION: &str = "session";

/// Status of a call.
pub(super) fn call(id: CallId, server: ServerId, tool: &str, status: Status) -> Told {
    Told::new("call", json!({ "call": id, "server": server, "tool": tool, "status": status }))
}

/// Status of an approval.
pub(super) fn approval(id: ApprovalId, call: CallId, decision: Decision) -> Told {
    Told::new("approval", json!({ "approval": id, "call": call, "decision": decision }))
}

/// Change of a server.
pub(super) fn server(id: ServerId, change: &str) -> Told {
    Told::new("server", json!({ "server": id, "change": change }))
}

/// Change of an agent.
pub(super) fn agent(id: AgentId) -> Told {
    Told::new("agent", json!({ "agent": id }))
}

/// Change of a user.
pub(super) fn user(id: UserId) -> Told {
    Told::new("user", json!({ "user": id }))
}

/// Sessions of a user have ended: open streams check whether theirs is one of them.
pub(super) fn sessions(user: UserId) -> Told {
    Told::new(SESSION, json!({ "user": user }))
}

/// Tokens of a subject have ended: open streams check whether theirs is one of them.
pub(super) fn tokens(owner: Subject) -> Told {
    Told::new("token", json!({ "owner": owner.to_string() }))
}
