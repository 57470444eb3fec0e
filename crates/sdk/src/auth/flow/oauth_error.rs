//! Parsing of OAuth error responses (RFC 6749 section 5.2).

use serde::Deserialize;

use super::http::FlowResponse;
use crate::auth::error::sanitize;

/// OAuth error codes of transient failures, after which a request may be repeated.
const TRANSIENT_CODES: [&str; 3] = ["temporarily_unavailable", "server_error", "slow_down"];

/// Returns whether the body is an HTML page.
pub(in crate::auth) fn is_html(reply: &FlowResponse) -> bool {
    reply.body.trim_ascii_start().starts_with(b"<")
}

#[derive(Deserialize)]
struct OAuthErrorBody {
    error: String,
    error_description: Option<String>,
}

/// Returns the `error` code of an OAuth error response, unless it is transient, and a description.
pub(in crate::auth) fn oauth_error(reply: &FlowResponse) -> (Option<String>, String) {
    if let Ok(refusal) = serde_json::from_slice::<OAuthErrorBody>(&reply.body) {
        let code = sanitize(&refusal.error);
        let text = match refusal.error_description.as_deref().map(sanitize).filter(|text| !text.is_empty()) {
            Some(description) => format!("error `{code}` ({description})"),
            None => format!("error `{code}`"),
        };
        let is_transient = reply.status >= 500 || reply.status == 429 || TRANSIENT_CODES.contains(&&*code);
        return (Some(code).filter(|_| !is_transient), text);
    }
    let problem = match reply.status {
        300..400 => ", a redirect, which is not followed with secrets",
        _ if is_html(reply) => " and an HTML page",
        _ => "",
    };
    let advice = if reply.status >= 500 { "; try again later" } else { "" };
    (None, format!("it responded with HTTP {}{problem}{advice}", reply.status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_has_no_code() {
        let parse_error = |status, code: &str| {
            let body = format!(r#"{{"error":"{code}","error_description":"why"}}"#).into_bytes();
            oauth_error(&FlowResponse { status, body, nonce: None })
        };
        assert_eq!(
            parse_error(400, "interaction_required"),
            (Some("interaction_required".into()), "error `interaction_required` (why)".into())
        );
        for (status, code) in [(503, "Service Unavailable"), (429, "invalid_grant"), (400, "slow_down")] {
            assert_eq!(parse_error(status, code), (None, format!("error `{code}` (why)")));
        }
    }
}
