//! Target for the OAuth flow: whatever the servers respond, a flow terminates, and neither the browser nor a secret is
//! sent to an insecure URL.

use linchpin::__private::auth::{is_signed_by_itself, run_flow};
use linchpin::egress::Target;

/// Runs a flow. The input has parts separated by zero bytes: the challenge, the query of the redirect, and the
/// responses, whose first byte is their status.
pub fn auth(data: &[u8]) {
    let mut parts = data.split(|byte| *byte == 0);
    let mut text = || String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let (challenge, redirect) = (text(), text());
    is_signed_by_itself(&challenge);
    let driven = run_flow(&challenge, &redirect, || {
        let (first, body) = parts.next()?.split_first()?;
        let status = match first {
            b'n' => 404,
            b'b' => 400,
            b'e' => 500,
            b'r' => 307,
            b'u' => return None,
            _ => 200,
        };
        Some((status, body.to_vec()))
    });
    assert!(!driven.is_endless, "the flow does not terminate");
    for url in driven.posted.iter().chain(&driven.redirected_to) {
        let target = Target::configured(url).unwrap_or_else(|error| panic!("{url} is not a URL: {error}"));
        assert!(target.is_secure(), "{url} is not encrypted");
    }
    for url in &driven.redirected_to {
        assert!(
            url.contains("code_challenge_method=S256") && url.bytes().all(|byte| byte.is_ascii_graphic()),
            "{url}"
        );
    }
    assert!(!driven.has_token || !driven.posted.is_empty());
}
