//! Every misbehaviour of the test kit's authority, through the hub: the error for the user, and the stored grant.

use std::collections::BTreeSet;

use linchpin::testing::authority::{Authority, Misbehaviour, Observations};
use linchpin_hub_core::hub::oauth::{GrantState, SignInStatus};
use linchpin_hub_core::platform::Platform;
use linchpin_hub_core::store::CallStatus;

use crate::fixture::{ADA, Stage, local_user};
use crate::oauth_fixture::{greet, oauth_stage_with};

/// Step that fails, and a part of the error. ISSUER, SERVER, MCP and CANARY stand for URLs; `fine`: no step fails.
const EXPECTED_FAILURES: &[(Misbehaviour, &str, &str)] = &[
    (Misbehaviour::ChallengeMissing, "fine", ""),
    (Misbehaviour::ChallengeMalformed, "fine", ""),
    (Misbehaviour::ChallengeSeveral, "fine", ""),
    (Misbehaviour::ChallengeHuge, "fine", ""),
    (Misbehaviour::ChallengeElsewhere, "fine", ""),
    (
        Misbehaviour::UnauthorizedForever,
        "coming back",
        "the server rejected the token that `ISSUER` has just issued for it: contact the operator",
    ),
    (Misbehaviour::ForbiddenForever, "fine", ""),
    (
        Misbehaviour::ResourceElsewhere,
        "beginning",
        "it describes the resource `https://stranger.example/mcp`",
    ),
    (Misbehaviour::ResourceOtherPath, "beginning", "it describes the resource `SERVER/other`"),
    (
        Misbehaviour::ResourcePrefix,
        "beginning",
        "it describes the resource `MCP-evil`, but this server is `MCP`; a token for one must not be sent",
    ),
    (Misbehaviour::ResourceMissing, "beginning", "the field `resource` is missing"),
    (Misbehaviour::NoAuthorizationServers, "beginning", "the field `authorization_servers` is missing"),
    (Misbehaviour::FirstServerBroken, "fine", ""),
    (Misbehaviour::NoResourceMetadata, "fine", ""),
    (Misbehaviour::NoMetadata, "fine", ""),
    (Misbehaviour::ResourceMetadataAtRoot, "fine", ""),
    (Misbehaviour::ResourceMetadataHtml, "beginning", "it does not conform to RFC 9728 (line 1, column 1)"),
    (
        Misbehaviour::ResourceMetadataEndless,
        "beginning",
        "the response of `127.0.0.1` is larger than 1048576 bytes",
    ),
    (Misbehaviour::ResourceMetadataSilent, "beginning", "no response within 10 seconds"),
    (
        Misbehaviour::ResourceMetadataRedirects,
        "beginning",
        "`SERVER` redirects to `CANARY`: redirects to another origin are not followed",
    ),
    (
        Misbehaviour::IssuerWrong,
        "beginning",
        "its issuer is `https://stranger.example` but must be exactly `ISSUER`",
    ),
    (
        Misbehaviour::IssuerTrailingSlash,
        "beginning",
        "its issuer is `ISSUER/` but must be exactly `ISSUER`; it may be an impersonation",
    ),
    (Misbehaviour::IssuerMissing, "beginning", "the field `issuer` is missing"),
    (
        Misbehaviour::IssuerMoves,
        "after the end of the token",
        "has expired or was revoked: sign in again with `linchpin server sign-in guarded`",
    ),
    (
        Misbehaviour::PkceMissing,
        "beginning",
        "sign-in at `ISSUER` is not possible: its metadata does not list `S256` under",
    ),
    (
        Misbehaviour::PkcePlain,
        "beginning",
        "sign-in at `ISSUER` is not possible: its metadata does not list `S256` under",
    ),
    (Misbehaviour::EndpointsPlainHttp, "beginning", "its `authorization_endpoint` is not a safe URL:"),
    (Misbehaviour::TokenEndpointPrivate, "coming back", "10.0.0.1 is a private address"),
    (
        Misbehaviour::TokenEndpointLinkLocal,
        "coming back",
        "169.254.169.254 is a link-local or metadata address",
    ),
    (Misbehaviour::TokenEndpointPrivateIpv6, "coming back", "fd00::1 is a private address"),
    (Misbehaviour::TokenEndpointMissing, "beginning", "the field `token_endpoint` is missing"),
    (Misbehaviour::RegistrationEndpointPrivate, "beginning", "10.0.0.1 is a private address"),
    (
        Misbehaviour::AuthorizationEndpointJavascript,
        "beginning",
        "the URL cannot be used: it must begin with https:// or http://",
    ),
    (
        Misbehaviour::AuthorizationEndpointFile,
        "beginning",
        "the URL cannot be used: only https:// and http:// are supported",
    ),
    (
        Misbehaviour::AuthorizationEndpointUserinfo,
        "beginning",
        "the URL cannot be used: it contains a user name or password",
    ),
    (
        Misbehaviour::AuthorizationEndpointCommand,
        "beginning",
        "the URL cannot be used: it contains the character ' '",
    ),
    (Misbehaviour::MetadataTooLarge, "beginning", "the response of `127.0.0.1` is larger than 1048576 bytes"),
    (Misbehaviour::MetadataEndless, "beginning", "the response of `127.0.0.1` is larger than 1048576 bytes"),
    (Misbehaviour::MetadataSilent, "beginning", "no response within 10 seconds"),
    (
        Misbehaviour::MetadataRedirects,
        "beginning",
        "`AUTHORITY` redirects to `CANARY`: redirects to another origin are not followed",
    ),
    (
        Misbehaviour::MetadataRedirectLoop,
        "beginning",
        "`AUTHORITY` redirects to `AUTHORITY`: too many redirects, at most 3 are",
    ),
    (Misbehaviour::MetadataHtml, "beginning", "it does not conform to RFC 8414 (line 1, column 1)"),
    (Misbehaviour::MetadataInvalidJson, "beginning", "it does not conform to RFC 8414 (line 1, column 16)"),
    (Misbehaviour::MetadataDuplicateKeys, "beginning", "it does not conform to RFC 8414 (line 1, column 45)"),
    (Misbehaviour::MetadataOpenIdOnly, "fine", ""),
    (Misbehaviour::NoClientDocuments, "fine", ""),
    (
        Misbehaviour::RegistrationMissing,
        "beginning",
        "`ISSUER` does not know this client and does not support dynamic registration: register it there",
    ),
    (
        Misbehaviour::RegistrationRefused,
        "beginning",
        "`ISSUER` did not register this client: error `invalid_redirect_uri`",
    ),
    (
        Misbehaviour::RegistrationHtml,
        "beginning",
        "`ISSUER` did not register this client: it responded with HTTP 403 and an HTML page",
    ),
    (
        Misbehaviour::RegistrationOtherRedirect,
        "beginning",
        "`ISSUER` did not register this client: it did not register the requested redirect URI",
    ),
    (
        Misbehaviour::RegistrationWithoutClientId,
        "beginning",
        "`ISSUER` did not register this client: its response has no valid `client_id`",
    ),
    (
        Misbehaviour::StateMixedUp,
        "coming back",
        "no matching sign-in is pending: start it again in this browser",
    ),
    (
        Misbehaviour::StateMissing,
        "coming back",
        "no matching sign-in is pending: start it again in this browser",
    ),
    (
        Misbehaviour::IssWrong,
        "coming back",
        "the redirect comes from another authorization server than `ISSUER`",
    ),
    (
        Misbehaviour::IssMissing,
        "coming back",
        "the redirect lacks the `iss` parameter that `ISSUER` announces",
    ),
    (
        Misbehaviour::IssNormalized,
        "coming back",
        "the redirect comes from another authorization server than `ISSUER`",
    ),
    (Misbehaviour::IssUnannounced, "fine", ""),
    (Misbehaviour::IssUnsupported, "fine", ""),
    (Misbehaviour::AccessDenied, "coming back", "`ISSUER` denied authorization: error `access_denied`"),
    (
        Misbehaviour::AccessDeniedIssWrong,
        "coming back",
        "the redirect comes from another authorization server than `ISSUER`",
    ),
    (Misbehaviour::CodeMissing, "coming back", "the redirect has no authorization code; sign in again"),
    (
        Misbehaviour::CodeUsed,
        "coming back",
        "`ISSUER` issued no token: error `invalid_grant` (the code was already used)",
    ),
    (Misbehaviour::CodeTwice, "fine", ""),
    (
        Misbehaviour::TokenRedirects,
        "coming back",
        "`ISSUER` issued no token: it responded with HTTP 307, a redirect, which is not followed with",
    ),
    (
        Misbehaviour::TokenHtmlOk,
        "coming back",
        "`ISSUER` issued no token: it responded with an HTML page instead of a token",
    ),
    (
        Misbehaviour::TokenHtmlError,
        "coming back",
        "`ISSUER` issued no token: it responded with HTTP 500 and an HTML page; try again later",
    ),
    (Misbehaviour::TokenError, "coming back", "`ISSUER` issued no token: error `invalid_grant`"),
    (Misbehaviour::TokenEchoes, "coming back", "code …, code_verifier …"),
    (
        Misbehaviour::TokenEmpty,
        "coming back",
        "`ISSUER` issued no token: its response does not conform to RFC 6749 (line 1, column 0)",
    ),
    (
        Misbehaviour::TokenInvalidJson,
        "coming back",
        "`ISSUER` issued no token: its response does not conform to RFC 6749 (line 1, column 86)",
    ),
    (
        Misbehaviour::TokenDuplicateKeys,
        "coming back",
        "`ISSUER` issued no token: its response does not conform to RFC 6749 (line 1, column 186)",
    ),
    (
        Misbehaviour::TokenMissing,
        "coming back",
        "`ISSUER` issued no token: its response has no `access_token`",
    ),
    (
        Misbehaviour::TokenTypeMissing,
        "coming back",
        "`ISSUER` issued no token: its response has no `token_type`",
    ),
    (
        Misbehaviour::TokenTypeUnknown,
        "coming back",
        "`ISSUER` issued no token: its token has the unsupported type `mac`",
    ),
    (
        Misbehaviour::TokenTooLarge,
        "coming back",
        "`ISSUER` issued no token: its token is longer than 12 KiB, which is too long for a header",
    ),
    (
        Misbehaviour::TokenNewline,
        "coming back",
        "`ISSUER` issued no token: its token has characters that are not allowed in a header",
    ),
    (
        Misbehaviour::TokenSilent,
        "coming back",
        "token request at `ISSUER/token` failed: no response within 10 seconds",
    ),
    (
        Misbehaviour::TokenEndless,
        "coming back",
        "token request at `ISSUER/token` failed: the response of `127.0.0.1` is larger than",
    ),
    (Misbehaviour::ExpiresMissing, "fine", ""),
    (Misbehaviour::ExpiresNegative, "fine", ""),
    (Misbehaviour::ExpiresHuge, "fine", ""),
    (Misbehaviour::ExpiresText, "fine", ""),
    (Misbehaviour::ScopesFewer, "fine", ""),
    (
        Misbehaviour::RefreshMissing,
        "after the end of the token",
        "has expired or was revoked: sign in again with `linchpin server sign-in guarded`",
    ),
    (Misbehaviour::RefreshOffline, "fine", ""),
    (Misbehaviour::RefreshStays, "fine", ""),
    (
        Misbehaviour::RefreshRevoked,
        "after the end of the token",
        "has expired or was revoked: sign in again with `linchpin server sign-in guarded`",
    ),
    (
        Misbehaviour::RefreshRefused,
        "after the end of the token",
        "has expired or was revoked: sign in again with `linchpin server sign-in guarded`",
    ),
    (
        Misbehaviour::RefreshUnavailable,
        "after the end of the token",
        "`ISSUER` issued no token: it responded with HTTP 503 and an HTML page; try again later",
    ),
    (Misbehaviour::RevocationFails, "fine", ""),
    (Misbehaviour::Dpop, "fine", ""),
    (Misbehaviour::DpopNonce, "fine", ""),
    (
        Misbehaviour::DpopNonceForever,
        "coming back",
        "`ISSUER` issued no token: error `use_dpop_nonce` (a nonce is required)",
    ),
];

/// Signs in, calls a tool, and calls it again after the token has expired. Returns the step that fails, and its error.
async fn run_lifecycle(stage: &Stage, authority: &Authority) -> String {
    let begun = match stage.hub.upstream().start_sign_in(local_user(ADA), "guarded", None).await.unwrap() {
        begun if begun.progress == SignInStatus::Waiting => begun,
        begun => return format!("beginning: {}", failure_reason(&begun.progress)),
    };
    let (url, proof) = stage.hub.upstream().sign_in_redirect(local_user(ADA), &begun.id).await.unwrap();
    let back = authority.approve(&url).await.unwrap();
    let query = back.url.split_once('?').map_or("", |(_, query)| query);
    match stage.hub.complete_sign_in(query, &proof).await {
        Ok(view) if view.progress == SignInStatus::Done => {}
        Ok(view) => return format!("coming back: {}", failure_reason(&view.progress)),
        Err(error) => return format!("coming back: {error}"),
    }
    for (step, is_over) in [("calling", false), ("after the end of the token", true)] {
        if is_over {
            authority.expire_tokens();
        }
        let call = greet(stage, local_user(ADA)).await;
        if call.status != CallStatus::Success {
            return format!("{step}: {}", call.error.unwrap_or_default());
        }
    }
    "fine".to_owned()
}

fn failure_reason(progress: &SignInStatus) -> &str {
    match progress {
        SignInStatus::Failed { error } => error,
        _ => "no sign-in was necessary",
    }
}

async fn outcome(switch: Misbehaviour) -> (String, GrantState, Observations) {
    let (stage, authority) = oauth_stage_with("shared", Authority::conforming().with(switch)).await;
    let now = authority.clock()().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    stage.clock.advance(i64::try_from(now).unwrap() - stage.clock.now().as_second());
    let mut life = std::pin::pin!(run_lifecycle(&stage, &authority));
    let text = tokio::select! {
        text = &mut life => text,
        () = authority.wait_until(|seen| seen.unanswered > 0) => {
            tokio::time::pause();
            let text = life.await;
            tokio::time::resume();
            text
        }
    };
    let text = authority.mask_addresses(&text);
    for secret in authority.secrets() {
        assert!(!text.contains(&secret), "{switch:?}: {text}");
    }
    let standing = stage.hub.upstream().grant_status(local_user(ADA), "guarded", None).await.unwrap();
    (text, standing.state, authority.observations())
}

#[tokio::test]
async fn what_people_read_and_what_is_kept() {
    for &(switch, step, part) in EXPECTED_FAILURES {
        let (text, state, seen) = Box::pin(outcome(switch)).await;
        assert!(text.starts_with(step) && text.contains(part), "{switch:?}: {text}");
        assert!(!text.contains(char::is_control), "{switch:?}: {text:?}");
        let is_kept = !matches!(step, "beginning" | "coming back");
        assert_eq!(state != GrantState::None, is_kept, "{switch:?}: {state:?}");
        assert_eq!(
            state == GrantState::ReauthorizationRequired,
            text.contains("sign in again with"),
            "{switch:?}: {state:?}"
        );
        // Resource metadata may be hosted at another origin; it is compared to the resource all the same.
        assert_eq!(seen.canary_connections > 0, switch == Misbehaviour::ChallengeElsewhere, "{switch:?}");
        assert_eq!(seen.reuses, 0, "{switch:?}: a spent token is not sent again");
        // Error texts of another authorization server are not shown.
        let is_stranger = text.contains("another authorization server");
        assert!(!is_stranger || !text.contains("denied"), "{switch:?}: {text}");
    }
    let told: BTreeSet<_> = EXPECTED_FAILURES.iter().map(|(switch, ..)| switch).collect();
    assert_eq!(told, Misbehaviour::ALL.iter().collect(), "each of them once");
    assert_eq!((EXPECTED_FAILURES.len(), Misbehaviour::ALL.len()), (93, 93));
}
