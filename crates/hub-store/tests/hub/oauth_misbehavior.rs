//! Every misbehavior of the test kit's authority, through the hub: the error for the user, and the stored grant.

use std::collections::BTreeSet;

use linchpin::testing::authority::{Authority, Seen, Switch};
use linchpin_hub_core::hub::oauth::{Progress, SignedIn};
use linchpin_hub_core::platform::World;
use linchpin_hub_core::store::Status;

use crate::fixture::{ADA, Stage, person};
use crate::oauth_fixture::{greet, with_behaviour};

/// Step that fails, and a part of the error. ISSUER, SERVER, MCP and CANARY stand for URLs; `fine`: no step fails.
const TABLE: &[(Switch, &str, &str)] = &[
    (Switch::ChallengeMissing, "fine", ""),
    (Switch::ChallengeMalformed, "fine", ""),
    (Switch::ChallengeSeveral, "fine", ""),
    (Switch::ChallengeHuge, "fine", ""),
    (Switch::ChallengeElsewhere, "fine", ""),
    (
        Switch::UnauthorizedForever,
        "coming back",
        "the server rejected the token that `ISSUER` has just issued for it: contact the operator",
    ),
    (Switch::ForbiddenForever, "fine", ""),
    (Switch::ResourceElsewhere, "beginning", "it describes the resource `https://stranger.example/mcp`"),
    (Switch::ResourceOtherPath, "beginning", "it describes the resource `SERVER/other`"),
    (
        Switch::ResourcePrefix,
        "beginning",
        "it describes the resource `MCP-evil`, but this server is `MCP`; a token for one must not be sent",
    ),
    (Switch::ResourceMissing, "beginning", "it has no `resource`"),
    (Switch::NoAuthorizationServers, "beginning", "it has no `authorization_servers`"),
    (Switch::FirstServerBroken, "fine", ""),
    (Switch::NoResourceMetadata, "fine", ""),
    (Switch::NoMetadata, "fine", ""),
    (Switch::ResourceMetadataAtRoot, "fine", ""),
    (Switch::ResourceMetadataHtml, "beginning", "it does not conform to RFC 9728 (line 1, column 1)"),
    (
        Switch::ResourceMetadataEndless,
        "beginning",
        "the response of `127.0.0.1` is larger than 1048576 bytes",
    ),
    (Switch::ResourceMetadataSilent, "beginning", "no response within 10 seconds"),
    (
        Switch::ResourceMetadataRedirects,
        "beginning",
        "`SERVER` redirects to `CANARY`: redirects to another origin are not followed",
    ),
    (
        Switch::IssuerWrong,
        "beginning",
        "its issuer is `https://stranger.example` but must be exactly `ISSUER`",
    ),
    (
        Switch::IssuerTrailingSlash,
        "beginning",
        "its issuer is `ISSUER/` but must be exactly `ISSUER`; it may be an impersonation",
    ),
    (Switch::IssuerMissing, "beginning", "it has no `issuer`"),
    (
        Switch::IssuerMoves,
        "after the end of the token",
        "has expired or was revoked: sign in again with `linchpin server sign-in guarded`",
    ),
    (
        Switch::PkceMissing,
        "beginning",
        "sign-in at `ISSUER` is not possible: its metadata does not list `S256` under",
    ),
    (
        Switch::PkcePlain,
        "beginning",
        "sign-in at `ISSUER` is not possible: its metadata does not list `S256` under",
    ),
    (Switch::EndpointsPlainHttp, "beginning", "its `authorization_endpoint` is not a safe URL:"),
    (Switch::TokenEndpointPrivate, "coming back", "10.0.0.1 is a private address"),
    (Switch::TokenEndpointLinkLocal, "coming back", "169.254.169.254 is a link-local or metadata address"),
    (Switch::TokenEndpointPrivateIpv6, "coming back", "fd00::1 is a private address"),
    (Switch::TokenEndpointMissing, "beginning", "it has no `token_endpoint`"),
    (Switch::RegistrationEndpointPrivate, "beginning", "10.0.0.1 is a private address"),
    (
        Switch::AuthorizationEndpointJavascript,
        "beginning",
        "the URL cannot be used: it must begin with https:// or http://",
    ),
    (
        Switch::AuthorizationEndpointFile,
        "beginning",
        "the URL cannot be used: only https:// and http:// are supported",
    ),
    (
        Switch::AuthorizationEndpointUserinfo,
        "beginning",
        "the URL cannot be used: it contains a user name or password",
    ),
    (
        Switch::AuthorizationEndpointCommand,
        "beginning",
        "the URL cannot be used: it contains the character ' '",
    ),
    (Switch::MetadataTooLarge, "beginning", "the response of `127.0.0.1` is larger than 1048576 bytes"),
    (Switch::MetadataEndless, "beginning", "the response of `127.0.0.1` is larger than 1048576 bytes"),
    (Switch::MetadataSilent, "beginning", "no response within 10 seconds"),
    (
        Switch::MetadataRedirects,
        "beginning",
        "`AUTHORITY` redirects to `CANARY`: redirects to another origin are not followed",
    ),
    (
        Switch::MetadataRedirectLoop,
        "beginning",
        "`AUTHORITY` redirects to `AUTHORITY`: too many redirects, at most 3 are",
    ),
    (Switch::MetadataHtml, "beginning", "it does not conform to RFC 8414 (line 1, column 1)"),
    (Switch::MetadataInvalidJson, "beginning", "it does not conform to RFC 8414 (line 1, column 16)"),
    (Switch::MetadataDuplicateKeys, "beginning", "it does not conform to RFC 8414 (line 1, column 45)"),
    (Switch::MetadataOpenIdOnly, "fine", ""),
    (Switch::NoClientDocuments, "fine", ""),
    (
        Switch::RegistrationMissing,
        "beginning",
        "`ISSUER` does not know this client and does not support dynamic registration: register it there",
    ),
    (
        Switch::RegistrationRefused,
        "beginning",
        "`ISSUER` did not register this client: error `invalid_redirect_uri`",
    ),
    (
        Switch::RegistrationHtml,
        "beginning",
        "`ISSUER` did not register this client: it responded with HTTP 403 and an HTML page",
    ),
    (
        Switch::RegistrationOtherRedirect,
        "beginning",
        "`ISSUER` did not register this client: it did not register the requested redirect URI",
    ),
    (
        Switch::RegistrationWithoutClientId,
        "beginning",
        "`ISSUER` did not register this client: its response has no `client_id`",
    ),
    (Switch::StateMixedUp, "coming back", "no matching sign-in is pending: start it again in this browser"),
    (Switch::StateMissing, "coming back", "no matching sign-in is pending: start it again in this browser"),
    (Switch::IssWrong, "coming back", "the redirect comes from another authorization server than `ISSUER`"),
    (Switch::IssMissing, "coming back", "the redirect lacks the `iss` parameter that `ISSUER` announces"),
    (
        Switch::IssNormalized,
        "coming back",
        "the redirect comes from another authorization server than `ISSUER`",
    ),
    (Switch::IssUnannounced, "fine", ""),
    (Switch::IssUnsupported, "fine", ""),
    (Switch::AccessDenied, "coming back", "`ISSUER` denied authorization: error `access_denied`"),
    (
        Switch::AccessDeniedIssWrong,
        "coming back",
        "the redirect comes from another authorization server than `ISSUER`",
    ),
    (Switch::CodeMissing, "coming back", "the redirect has no authorization code; sign in again"),
    (
        Switch::CodeUsed,
        "coming back",
        "`ISSUER` issued no token: error `invalid_grant` (the code was already used)",
    ),
    (Switch::CodeTwice, "fine", ""),
    (
        Switch::TokenRedirects,
        "coming back",
        "`ISSUER` issued no token: it responded with HTTP 307, a redirect, which is not followed with",
    ),
    (
        Switch::TokenHtmlOk,
        "coming back",
        "`ISSUER` issued no token: it responded with an HTML page instead of a token",
    ),
    (
        Switch::TokenHtmlError,
        "coming back",
        "`ISSUER` issued no token: it responded with HTTP 500 and an HTML page; try again later",
    ),
    (Switch::TokenError, "coming back", "`ISSUER` issued no token: error `invalid_grant`"),
    (Switch::TokenEchoes, "coming back", "code …, code_verifier …"),
    (
        Switch::TokenEmpty,
        "coming back",
        "`ISSUER` issued no token: its response does not conform to RFC 6749 (line 1, column 0)",
    ),
    (
        Switch::TokenInvalidJson,
        "coming back",
        "`ISSUER` issued no token: its response does not conform to RFC 6749 (line 1, column 86)",
    ),
    (
        Switch::TokenDuplicateKeys,
        "coming back",
        "`ISSUER` issued no token: its response does not conform to RFC 6749 (line 1, column 186)",
    ),
    (Switch::TokenMissing, "coming back", "`ISSUER` issued no token: its response has no `access_token`"),
    (Switch::TokenTypeMissing, "coming back", "`ISSUER` issued no token: its response has no `token_type`"),
    (
        Switch::TokenTypeUnknown,
        "coming back",
        "`ISSUER` issued no token: its token has the unsupported type `mac`",
    ),
    (Switch::TokenTooLarge, "coming back", "`ISSUER` issued no token: its token is too long for a header"),
    (
        Switch::TokenNewline,
        "coming back",
        "`ISSUER` issued no token: its token has characters that are not allowed in a header",
    ),
    (
        Switch::TokenSilent,
        "coming back",
        "token request at `ISSUER/token` failed: no response within 10 seconds",
    ),
    (
        Switch::TokenEndless,
        "coming back",
        "token request at `ISSUER/token` failed: the response of `127.0.0.1` is larger than",
    ),
    (Switch::ExpiresMissing, "fine", ""),
    (Switch::ExpiresNegative, "fine", ""),
    (Switch::ExpiresHuge, "fine", ""),
    (Switch::ExpiresText, "fine", ""),
    (Switch::ScopesFewer, "fine", ""),
    (
        Switch::RefreshMissing,
        "after the end of the token",
        "has expired or was revoked: sign in again with `linchpin server sign-in guarded`",
    ),
    (Switch::RefreshOffline, "fine", ""),
    (Switch::RefreshStays, "fine", ""),
    (
        Switch::RefreshRevoked,
        "after the end of the token",
        "has expired or was revoked: sign in again with `linchpin server sign-in guarded`",
    ),
    (
        Switch::RefreshRefused,
        "after the end of the token",
        "has expired or was revoked: sign in again with `linchpin server sign-in guarded`",
    ),
    (
        Switch::RefreshUnavailable,
        "after the end of the token",
        "`ISSUER` issued no token: it responded with HTTP 503 and an HTML page; try again later",
    ),
    (Switch::RevocationFails, "fine", ""),
    (Switch::Dpop, "fine", ""),
    (Switch::DpopNonce, "fine", ""),
    (
        Switch::DpopNonceForever,
        "coming back",
        "`ISSUER` issued no token: error `use_dpop_nonce` (a nonce is required)",
    ),
];

/// Signs in, calls a tool, and calls it again after the token has expired. Returns the step that fails, and its error.
async fn live(stage: &Stage, authority: &Authority) -> String {
    let begun = match stage.hub.begin_sign_in(person(ADA), "guarded", None).await.unwrap() {
        begun if begun.progress == Progress::Waiting => begun,
        begun => return format!("beginning: {}", why(&begun.progress)),
    };
    let (url, proof) = stage.hub.leave_to_sign_in(person(ADA), &begun.id).await.unwrap();
    let back = authority.approve(&url).await.unwrap();
    let query = back.url.split_once('?').map_or("", |(_, query)| query);
    match stage.hub.return_from_sign_in(query, &proof).await {
        Ok(view) if view.progress == Progress::Done => {}
        Ok(view) => return format!("coming back: {}", why(&view.progress)),
        Err(error) => return format!("coming back: {error}"),
    }
    for (step, is_over) in [("calling", false), ("after the end of the token", true)] {
        if is_over {
            authority.expire_tokens();
        }
        let call = greet(stage, person(ADA)).await;
        if call.status != Status::Success {
            return format!("{step}: {}", call.error.unwrap_or_default());
        }
    }
    "fine".to_owned()
}

fn why(progress: &Progress) -> &str {
    match progress {
        Progress::Failed { error } => error,
        _ => "no sign-in was necessary",
    }
}

async fn outcome(switch: Switch) -> (String, SignedIn, Seen) {
    let (stage, authority) = with_behaviour("shared", Authority::honest().with(switch)).await;
    let now = authority.clock()().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    stage.clock.turn(i64::try_from(now).unwrap() - stage.clock.now().as_second());
    let mut life = std::pin::pin!(live(&stage, &authority));
    let text = tokio::select! {
        text = &mut life => text,
        () = authority.until(|seen| seen.unanswered > 0) => {
            tokio::time::pause();
            let text = life.await;
            tokio::time::resume();
            text
        }
    };
    let text = authority.masked(&text);
    for secret in authority.secrets() {
        assert!(!text.contains(&secret), "{switch:?}: {text}");
    }
    let standing = stage.hub.standing(person(ADA), "guarded", None).await.unwrap();
    (text, standing.signed_in, authority.seen())
}

#[tokio::test]
async fn what_people_read_and_what_is_kept() {
    for &(switch, step, part) in TABLE {
        let (text, signed_in, seen) = Box::pin(outcome(switch)).await;
        assert!(text.starts_with(step) && text.contains(part), "{switch:?}: {text}");
        assert!(!text.contains(char::is_control), "{switch:?}: {text:?}");
        let is_kept = !matches!(step, "beginning" | "coming back");
        assert_eq!(signed_in != SignedIn::No, is_kept, "{switch:?}: {signed_in:?}");
        assert_eq!(
            signed_in == SignedIn::Again,
            text.contains("sign in again with"),
            "{switch:?}: {signed_in:?}"
        );
        // Resource metadata may be hosted at another origin; it is compared to the resource all the same.
        assert_eq!(seen.canary > 0, switch == Switch::ChallengeElsewhere, "{switch:?}");
        assert_eq!(seen.reuses, 0, "{switch:?}: a spent token is not sent again");
        // Error texts of another authorization server are not shown.
        let is_stranger = text.contains("another authorization server");
        assert!(!is_stranger || !text.contains("denied"), "{switch:?}: {text}");
    }
    let told: BTreeSet<_> = TABLE.iter().map(|(switch, ..)| switch).collect();
    assert_eq!(told, Switch::ALL.iter().collect(), "each of them once");
    assert_eq!((TABLE.len(), Switch::ALL.len()), (93, 93));
}
