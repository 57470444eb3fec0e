//! Rules for resending client requests after a connection was lost: only those without side effects are resent.

use linchpin_jsonrpc::CallError;
use linchpin_protocol::Method;

/// Error code for a session that the server no longer knows.
pub(crate) const SESSION_NOT_FOUND: &str = "MCP_SESSION_NOT_FOUND";

/// Error code for a server that could not be reached: nothing was sent.
pub(crate) const NOT_CONNECTED: &str = "HTTP_CONNECT";

/// Returns whether a request that failed with this error may have been processed.
pub(super) fn may_have_been_processed(error: &CallError) -> bool {
    match error {
        CallError::Lost(_) => true,
        CallError::Transport { code, .. } => *code == SESSION_NOT_FOUND,
        _ => false,
    }
}

/// Returns whether a request may be sent repeatedly with the same effect.
pub(super) fn is_idempotent(method: &str) -> bool {
    use Method as M;
    let Some(method) = Method::find(method) else { return false };
    let lists = matches!(method, M::ListTools | M::ListResources | M::ListResourceTemplates | M::ListPrompts);
    let reads = matches!(method, M::ReadResource | M::GetPrompt | M::Complete | M::Ping | M::Discover);
    let sets = matches!(method, M::SetLevel | M::Subscribe | M::Unsubscribe);
    let skills = matches!(method, M::ListSkills | M::GetSkill | M::ReadResourceDirectory);
    let tasks = matches!(method, M::GetTask | M::GetTaskPayload | M::ListTasks);
    lists || reads || sets || skills || tasks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_something_is_never_repeated() {
        for &method in Method::ALL {
            let changes = matches!(
                method,
                Method::CallTool | Method::Initialize | Method::UpdateTask | Method::CancelTask
            );
            assert!(!(changes && is_idempotent(method.name())), "{}", method.name());
        }
        assert!(!is_idempotent("acme/pay"));
        assert!(!may_have_been_processed(&CallError::Malformed(String::new())));
    }
}
