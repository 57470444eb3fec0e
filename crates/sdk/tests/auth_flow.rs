//! OAuth flow without a network: the state machine receives scripted responses and returns its next request.
#![cfg(feature = "http-client")]

use linchpin::__private::auth::{FlowTrace, is_signed_by_itself, run_flow};

const RESOURCE: &str =
    r#"{"resource":"https://public.example/mcp","authorization_servers":["https://auth.example/t"]}"#;
const AUTHORITY: &str = r#"{"issuer":"https://auth.example/t","authorization_endpoint":"https://auth.example/a?x=y",
    "token_endpoint":"https://auth.example/k","registration_endpoint":"https://auth.example/r",
    "code_challenge_methods_supported":["S256"],"scopes_supported":["offline_access"]}"#;
const CLIENT: &str = r#"{"client_id":"c"}"#;
const TOKEN: &str = r#"{"access_token":"t","token_type":"Bearer"}"#;

fn flow(redirect: &str, replies: &[(u16, &str)]) -> FlowTrace {
    let mut replies = replies.iter();
    run_flow(r#"Bearer scope="a""#, redirect, || {
        replies.next().map(|(status, body)| (*status, body.as_bytes().to_vec()))
    })
}

#[test]
fn the_whole_way() {
    let driven = flow("code=c", &[(200, RESOURCE), (200, AUTHORITY), (201, CLIENT), (200, TOKEN)]);
    assert!(driven.has_token);
    assert_eq!(driven.posted, ["https://auth.example/r", "https://auth.example/k"]);
    let [visited] = &driven.redirected_to[..] else { panic!("{driven:?}") };
    assert!(visited.starts_with("https://auth.example/a?x=y&response_type=code&client_id=c&"), "{visited}");
    assert!(visited.contains("&scope=a%20offline_access&"), "{visited}");
}

#[test]
fn other_places_are_tried() {
    let missing = (404, "");
    // The resource metadata is at the root; the issuer with a path has three candidate URLs.
    let replies = [missing, (200, RESOURCE), missing, missing, (200, AUTHORITY), (201, CLIENT), (200, TOKEN)];
    assert!(flow("code=c", &replies).has_token);
    // Before metadata existed, the server itself had the endpoints.
    let of_old = flow("code=c", &[missing, missing, missing, missing, (201, CLIENT), (200, TOKEN)]);
    assert!(of_old.has_token);
    assert_eq!(of_old.posted, ["https://public.example/register", "https://public.example/token"]);
    assert!(of_old.redirected_to[0].starts_with("https://public.example/authorize?"));
}

#[test]
fn what_is_broken_does_not_lead_to_the_weaker_way() {
    for broken in [(500, ""), (200, "<html>"), (200, r#"{"resource":"https://evil.example"}"#)] {
        let driven = flow("code=c", &[broken, (404, ""), (404, ""), (404, ""), (201, CLIENT), (200, TOKEN)]);
        assert_eq!(
            (driven.posted.len(), driven.redirected_to.len(), driven.has_token),
            (0, 0, false),
            "{broken:?}"
        );
    }
}

#[test]
fn nobody_is_led_astray() {
    let evil = AUTHORITY.replace("https://auth.example/a", "http://evil.example/a");
    let no_pkce = AUTHORITY.replace("S256", "plain");
    let posing = AUTHORITY.replace("https://auth.example/t\"", "https://bank.example\"");
    for authority in [evil, no_pkce, posing] {
        let driven =
            flow("code=c", &[(200, RESOURCE), (200, &authority), (404, ""), (404, ""), (200, TOKEN)]);
        assert_eq!((driven.redirected_to.len(), driven.has_token), (0, false), "{authority}");
    }
    let another = flow(
        "code=c&iss=https%3A%2F%2Fevil.example",
        &[(200, RESOURCE), (200, AUTHORITY), (201, CLIENT), (200, TOKEN)],
    );
    assert_eq!(another.posted, ["https://auth.example/r"], "the code is not used");
}

#[test]
fn a_nonce_is_used_once() {
    let again = (400, r#"{"error":"use_dpop_nonce"}"#);
    let good = flow("code=c", &[(200, RESOURCE), (200, AUTHORITY), (201, CLIENT), again, (200, TOKEN)]);
    assert!(good.has_token && good.posted.len() == 3);
    let never =
        flow("code=c", &[(200, RESOURCE), (200, AUTHORITY), (201, CLIENT), again, again, (200, TOKEN)]);
    assert!(!never.has_token && never.posted.len() == 3);
}

#[test]
fn tokens_that_nobody_signed() {
    for text in ["", "a.b.c", "eyJhbGciOiJub25lIn0.e30.", "eyJhbGciOiJFUzI1NiIsImp3ayI6e319.e30.AA"] {
        assert!(!is_signed_by_itself(text), "{text}");
    }
}
