//! What to do about a failure.

use crate::failure::{Failure, Kind};

/// What a person can do; `None` where the message says it already.
pub(super) fn for_failure(failure: &Failure, is_url: bool) -> Option<String> {
    let advice = match (failure.status(), failure.kind) {
        _ if failure.needs_person() => {
            "sign in with --sign-in; if the server gives tokens by other means, use --header 'Authorization: Bearer …'"
        }
        _ if failure.is_about_signing_in() => return None,
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
