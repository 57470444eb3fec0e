//! What an authorization server says when it refuses (RFC 6749 5.2).

use serde::Deserialize;

use super::error::quoted;
use super::exchange::Reply;

/// Codes of refusals that may pass by themselves.
const PASSING: [&str; 3] = ["temporarily_unavailable", "server_error", "slow_down"];

/// Whether it is a page for people.
pub(super) fn is_page(reply: &Reply) -> bool {
    reply.body.trim_ascii_start().starts_with(b"<")
}

#[derive(Deserialize)]
struct Refusal {
    error: String,
    error_description: Option<String>,
}

/// What a refusal says: its code, if it is one that counts for longer than a moment, and in words.
pub(super) fn oauth_error(reply: &Reply) -> (Option<String>, String) {
    if let Ok(refusal) = serde_json::from_slice::<Refusal>(&reply.body) {
        let code = quoted(&refusal.error);
        let text = match refusal.error_description.as_deref().map(quoted).filter(|text| !text.is_empty()) {
            Some(description) => format!("it says `{code}` ({description})"),
            None => format!("it says `{code}`"),
        };
        let is_passing = reply.status >= 500 || reply.status == 429 || PASSING.contains(&&*code);
        return (Some(code).filter(|_| !is_passing), text);
    }
    let what = match reply.status {
        300..400 => ", a redirect, which is never followed with secrets",
        _ if is_page(reply) => " with a page for people",
        _ => "",
    };
    let advice = if reply.status >= 500 { "; try again later" } else { "" };
    (None, format!("it answered HTTP {}{what}{advice}", reply.status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_has_no_code() {
        let of = |status, code: &str| {
            let body = format!(r#"{{"error":"{code}","error_description":"why"}}"#).into_bytes();
            oauth_error(&Reply { status, body, nonce: None })
        };
        assert_eq!(
            of(400, "interaction_required"),
            (Some("interaction_required".into()), "it says `interaction_required` (why)".into())
        );
        for (status, code) in [(503, "Service Unavailable"), (429, "invalid_grant"), (400, "slow_down")] {
            assert_eq!(of(status, code), (None, format!("it says `{code}` (why)")));
        }
    }
}
