//! What to do about a failure.

use linchpin::auth::AuthErrorKind;

use super::trace::{METADATA, REGISTRATION};
use crate::failure::{Failure, Kind};

/// What a person can do; `None` where the message says it already.
pub(super) fn for_failure(failure: &Failure, is_url: bool) -> Option<String> {
    let advice = match (failure.status(), failure.kind) {
        (Some(401), _) => "the server does not take what --header says: check the token",
        (Some(403), _) => {
            "the server knows who asks and refuses, or does not serve this host: check the token and the URL"
        }
        (Some(404), _) => "nothing is there: check the path of the URL; most servers use /mcp or /sse",
        (Some(405), _) => "the path does not take messages: check the URL; most servers use /mcp or /sse",
        (Some(429), _) => "the server wants fewer requests: wait, and try again",
        (Some(500..), _) => "the server failed by itself: look into its log, or try again later",
        (_, Kind::Start) if is_url => return None,
        (_, Kind::Start) => "run the command by hand: what it prints says why it does not start",
        (_, Kind::Timeout) => "is it an MCP server? --timeout gives it longer",
        (_, Kind::Connection) if !is_url => "the server ended: its last words say why; -v shows all of them",
        (_, Kind::Protocol) => {
            "what is there does not speak the Model Context Protocol as it should: check the URL or the command"
        }
        _ => return None,
    };
    Some(advice.to_owned())
}

/// What a person can do where signing in failed, at this step or between two.
pub(super) fn for_sign_in(kind: AuthErrorKind, step: Option<&str>) -> &'static str {
    match (kind, step) {
        (AuthErrorKind::Nobody, _) => {
            "sign in with --sign-in; if the server gives tokens by other means, use --header 'Authorization: Bearer …'"
        }
        (AuthErrorKind::Metadata, Some(REGISTRATION)) => {
            "ask whoever runs the MCP server for a token, and give it with --header 'Authorization: Bearer …'"
        }
        (AuthErrorKind::Metadata, Some(METADATA)) => {
            "check the URL; if it is right, ask whoever runs the MCP server to mend this, or for a token that \
             --header 'Authorization: Bearer …' can send"
        }
        (AuthErrorKind::Unreachable, Some(METADATA)) => {
            "check the URL and try again later; if it stays so, ask whoever runs the MCP server"
        }
        (AuthErrorKind::Metadata, _) => {
            "nothing on this side helps: ask whoever runs the authorization server to mend this"
        }
        (AuthErrorKind::Unreachable, _) => {
            "try again later; if it stays so, ask whoever runs the authorization server"
        }
        (AuthErrorKind::Registration, _) => {
            "register a client by hand at the authorization server and give --client-id, with --client-secret-file if \
             it has a secret and --redirect-port if it wants to know the port"
        }
        (AuthErrorKind::Person, _) => {
            "try again, open the URL in a browser on this machine, and sign in there"
        }
        (AuthErrorKind::Denied, _) => {
            "sign in again and agree, or as somebody who may; why it refuses knows whoever runs the authorization server"
        }
        (AuthErrorKind::Callback, _) => {
            "try again; if it stays so, ask whoever runs the authorization server to mend this"
        }
        (AuthErrorKind::Token, Some(_)) => {
            "try again, and check --client-id if it is given; if it stays so, ask whoever runs the authorization server"
        }
        (AuthErrorKind::Token, None) => {
            "ask whoever runs the MCP server whose tokens it takes, and with which scopes"
        }
        (AuthErrorKind::Scope, _) => {
            "ask whoever runs the MCP server which scopes there are, and give them with --scope"
        }
        (AuthErrorKind::Store, _) => {
            "check that the files of sign-ins can be read and written; linchpin sign-out forgets what cannot be used"
        }
        (AuthErrorKind::Setup, _) => "check what --client-id, --client-secret-file and --scope say",
        _ => "ask whoever runs the MCP server",
    }
}
