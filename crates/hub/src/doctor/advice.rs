//! Advice that `linchpin doctor` gives for failed steps.

use linchpin::auth::AuthErrorKind;

use super::trace::{METADATA, REGISTRATION};
use crate::error::{CliError, CliErrorKind};

/// Returns advice for a failed connection; `None` if the message already contains it.
pub(super) fn for_failure(failure: &CliError, is_url: bool) -> Option<String> {
    let advice = match (failure.status(), failure.kind) {
        (Some(401), _) => "the server rejected the credentials of --header: check the token",
        (Some(403), _) => {
            "the server denied access, or does not serve this host: check the token and the URL"
        }
        (Some(404), _) => "check the path of the URL: nothing exists there; most servers use /mcp or /sse",
        (Some(405), _) => {
            "check the path of the URL: it does not accept messages; most servers use /mcp or /sse"
        }
        (Some(429), _) => "the server limits the request rate: wait, then try again",
        (Some(500..), _) => "the server reported an internal error: check its log, or try again later",
        (_, CliErrorKind::Start) if is_url => return None,
        (_, CliErrorKind::Start) => "run the command by hand: its output shows why it does not start",
        (_, CliErrorKind::Timeout) => "check that this is an MCP server, or increase --timeout",
        (_, CliErrorKind::Connection) if !is_url => {
            "the server exited: its last output shows why; -v shows all of it"
        }
        (_, CliErrorKind::Protocol) => {
            "check the URL or the command: the peer does not follow the Model Context Protocol"
        }
        _ => return None,
    };
    Some(advice.to_owned())
}

/// Returns advice for a failed sign-in, at this step or between two steps.
pub(super) fn for_sign_in(kind: AuthErrorKind, step: Option<&str>) -> &'static str {
    match (kind, step) {
        (AuthErrorKind::SignInRequired, _) => {
            "sign in with --sign-in; if the server issues tokens by other means, use --header 'Authorization: Bearer …'"
        }
        (AuthErrorKind::Metadata, Some(REGISTRATION)) => {
            "ask the operator of the MCP server for a token, and pass it with --header 'Authorization: Bearer …'"
        }
        (AuthErrorKind::Metadata, Some(METADATA)) => {
            "check the URL; if it is correct, ask the operator of the MCP server to fix this, or for a token to pass \
             with --header 'Authorization: Bearer …'"
        }
        (AuthErrorKind::Unreachable, Some(METADATA)) => {
            "check the URL and try again later; if the problem persists, ask the operator of the MCP server"
        }
        (AuthErrorKind::Metadata, _) => {
            "ask the operator of the authorization server to fix this: the client cannot work around it"
        }
        (AuthErrorKind::Unreachable, _) => {
            "try again later; if the problem persists, ask the operator of the authorization server"
        }
        (AuthErrorKind::Registration, _) => {
            "register a client manually at the authorization server and pass --client-id, with --client-secret-file if \
             it has a secret and --redirect-port if its redirect URI has a fixed port"
        }
        (AuthErrorKind::UserAbandoned, _) => {
            "try again, open the URL in a browser on this machine, and sign in there"
        }
        (AuthErrorKind::Denied, _) => {
            "sign in again and consent, or use an account with permission; ask the operator of the authorization server \
             for the reason"
        }
        (AuthErrorKind::Callback, _) => {
            "try again; if the problem persists, ask the operator of the authorization server to fix this"
        }
        (AuthErrorKind::Token, Some(_)) => {
            "try again, and check --client-id if it is set; if the problem persists, ask the operator of the \
             authorization server"
        }
        (AuthErrorKind::Token, None) => {
            "ask the operator of the MCP server from which issuers and with which scopes it accepts tokens"
        }
        (AuthErrorKind::Scope, _) => {
            "ask the operator of the MCP server which scopes exist, and pass them with --scope"
        }
        (AuthErrorKind::Store, _) => {
            "check that the stored sign-ins can be read and written; delete an unusable one with linchpin sign-out"
        }
        (AuthErrorKind::Setup, _) => "check the values of --client-id, --client-secret-file and --scope",
        _ => "ask the operator of the MCP server",
    }
}
