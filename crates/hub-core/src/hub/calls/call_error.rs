//! Errors of calls: whether the tool may have run although the call failed.

use linchpin::model::TaskStatus;
use linchpin::{CallError, ClientError};

/// Reports whether the tool may have run although the call failed: always, unless it is certain that nothing was sent
/// or that the server responded with an error. An error that is not listed here says nothing about the tool.
#[expect(clippy::match_same_arms, reason = "every error is named; an unnamed one means unknown")]
pub(super) fn may_have_run(error: &ClientError) -> bool {
    match error {
        ClientError::Open { .. }
        | ClientError::UnsupportedByServer { .. }
        | ClientError::BadArguments(_)
        | ClientError::UnsupportedVersion { .. } => false,
        ClientError::Call(error) => match error {
            CallError::Rejected(_) | CallError::Closed(_) | CallError::TooManyPending(_) => false,
            CallError::Transport { status: Some(400..500), .. } => false,
            CallError::Transport { code, .. } => !NOT_RUN_CODES.contains(code),
            CallError::TimedOut(_) | CallError::Lost(_) | CallError::Malformed(_) => true,
        },
        ClientError::Task { status, .. } => !matches!(status, TaskStatus::Failed | TaskStatus::Cancelled),
        // The server has sent a result or a server request: the tool had started.
        ClientError::OutcomeUnknown { .. }
        | ClientError::Malformed { .. }
        | ClientError::ListTooLong { .. }
        | ClientError::BadSkill { .. }
        | ClientError::UnsupportedByClient { .. }
        | ClientError::ServerRequest { .. }
        | ClientError::TooManyRounds(_)
        | ClientError::UnexpectedResult { .. }
        | ClientError::BadResult { .. } => true,
        _ => true,
    }
}

/// Error codes of the SDK for failures after which the tool cannot have run: nothing was sent, or the response was a
/// redirect that is not followed.
const NOT_RUN_CODES: [&str; 6] = [
    "HTTP_CONNECT",
    "HTTP_REQUEST",
    "HTTP_REDIRECT",
    "HTTP_AUTHORIZATION",
    "HTTP_SIGN_IN",
    "HTTP_HEADERS_PROVIDER",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_after_which_the_tool_may_have_run_is_unknown() {
        let text = || "x".to_owned();
        let transport = |code, status| CallError::Transport { code, status, message: "x".into() };
        let task = |status| ClientError::Task { id: text(), status, message: None };
        for error in [
            ClientError::OutcomeUnknown { tool: text(), reason: text() },
            ClientError::UnsupportedByClient { method: text() },
            ClientError::ServerRequest { method: text(), reason: text() },
            ClientError::TooManyRounds(8),
            ClientError::UnexpectedResult { method: text(), kind: text() },
            ClientError::BadResult { tool: text(), reason: text() },
            ClientError::Call(CallError::Malformed(text())),
            ClientError::Call(CallError::Lost("x".into())),
            ClientError::Call(CallError::TimedOut(std::time::Duration::ZERO)),
            ClientError::Call(transport("HTTP_STATUS", Some(500))),
            ClientError::Call(transport("HTTP_BODY", None)),
            task(TaskStatus::Working),
            task(TaskStatus::InputRequired),
            task(TaskStatus::Completed),
        ] {
            assert!(may_have_run(&error), "{error:?}");
        }
        for error in [
            ClientError::Open { server: text(), source: std::io::ErrorKind::NotFound.into() },
            ClientError::UnsupportedByServer { method: "tools/call" },
            ClientError::BadArguments(text()),
            ClientError::UnsupportedVersion { offered: Vec::new(), supported: Vec::new() },
            ClientError::Call(CallError::Closed("x".into())),
            ClientError::Call(CallError::TooManyPending(1)),
            ClientError::Call(transport("HTTP_STATUS", Some(403))),
            ClientError::Call(transport("HTTP_CONNECT", None)),
            task(TaskStatus::Failed),
            task(TaskStatus::Cancelled),
        ] {
            assert!(!may_have_run(&error), "{error:?}");
        }
    }
}
