//! Which requests may be sent again when they, or their answers, were lost: those that change nothing.

use linchpin_jsonrpc::CallError;
use linchpin_protocol::Method;

/// The name of the error for a session that the server no longer knows.
pub(crate) const SESSION_NOT_FOUND: &str = "MCP_SESSION_NOT_FOUND";

/// The name of the error for a server that was not reached: nothing was sent.
pub(crate) const NOT_CONNECTED: &str = "HTTP_CONNECT";

/// Whether a request that failed so may have been carried out.
pub(super) fn is_lost(error: &CallError) -> bool {
    match error {
        CallError::Lost(_) => true,
        CallError::Transport { code, .. } => *code == SESSION_NOT_FOUND,
        _ => false,
    }
}

/// Whether a request does the same however often it is sent.
pub(super) fn is_repeatable(method: &str) -> bool {
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
            assert!(!(changes && is_repeatable(method.name())), "{}", method.name());
        }
        assert!(!is_repeatable("acme/pay"));
        assert!(!is_lost(&CallError::Malformed(String::new())));
    }
}
