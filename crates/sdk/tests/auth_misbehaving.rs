//! Error texts for every way in which the authority of the test kit can misbehave, over a whole lifecycle: connecting,
//! calls, tokens that expire or are revoked, signing out.
#![cfg(feature = "http")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use http::{HttpScript, Reply};
use linchpin::Client;
use linchpin::auth::OAuth;
use linchpin::testing::authority::{Authority, Behaviour, Misbehaviour, Observations};
use tokio::sync::Notify;
use tokio::time::Instant;

#[path = "support/http.rs"]
mod http;
#[path = "support/signing_in.rs"]
mod signing_in;

/// Where the lifecycle ends and why. Ports differ each time: MCP is the endpoint at SERVER, ISSUER is at AUTHORITY,
/// CANARY elsewhere.
const TABLE: &[(Misbehaviour, &str)] = &[
    (
        Misbehaviour::ChallengeMissing,
        "needing more: the server rejected the request: HTTP 403: a valid token is required \
         (HTTP_FORBIDDEN)",
    ),
    (
        Misbehaviour::ChallengeMalformed,
        "needing more: the server rejected the request: HTTP 403: a valid token is required \
         (HTTP_FORBIDDEN)",
    ),
    (Misbehaviour::ChallengeSeveral, "fine"),
    (Misbehaviour::ChallengeHuge, "fine"),
    (Misbehaviour::ChallengeElsewhere, "fine"),
    (
        Misbehaviour::UnauthorizedForever,
        "connecting: the server rejected the token that `ISSUER` has just issued for it: contact the \
         operator of the server (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::ForbiddenForever,
        "needing more: for this request the server requires the scope `write`, but the token already has \
         it: contact the operator of the server (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::ResourceElsewhere,
        "connecting: the metadata of the server at `SERVER/.well-known/oauth-protected-resource/mcp` cannot \
         be used: it describes the resource `https://stranger.example/mcp`, but this server is `MCP`; a \
         token for one must not be sent to the other (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::ResourceOtherPath,
        "connecting: the metadata of the server at `SERVER/.well-known/oauth-protected-resource/mcp` cannot \
         be used: it describes the resource `SERVER/other`, but this server is `MCP`; a token for one must \
         not \
         be sent to the other (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::ResourcePrefix,
        "connecting: the metadata of the server at `SERVER/.well-known/oauth-protected-resource/mcp` cannot \
         be used: it describes the resource `MCP-evil`, but this server is `MCP`; a token for one must not \
         be \
         sent to the other (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::ResourceMissing,
        "connecting: the metadata of the server at `SERVER/.well-known/oauth-protected-resource/mcp` cannot \
         be used: the field `resource` is missing (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::NoAuthorizationServers,
        "connecting: the metadata of the server at `SERVER/.well-known/oauth-protected-resource/mcp` cannot \
         be used: the field `authorization_servers` is missing (HTTP_AUTHORIZATION)",
    ),
    (Misbehaviour::FirstServerBroken, "fine"),
    (Misbehaviour::NoResourceMetadata, "fine"),
    (Misbehaviour::NoMetadata, "fine"),
    (Misbehaviour::ResourceMetadataAtRoot, "fine"),
    (
        Misbehaviour::ResourceMetadataHtml,
        "connecting: the metadata of the server at `SERVER/.well-known/oauth-protected-resource/mcp` cannot \
         be used: it does not conform to RFC 9728 (line 1, column 1) (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::ResourceMetadataEndless,
        "connecting: protected resource metadata at `SERVER/.well-known/oauth-protected-resource/mcp` \
         failed: the response of `127.0.0.1` is larger than 1048576 bytes (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::ResourceMetadataSilent,
        "connecting: protected resource metadata at `SERVER/.well-known/oauth-protected-resource/mcp` \
         failed: no response within 10 seconds (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::ResourceMetadataRedirects,
        "connecting: protected resource metadata at `SERVER/.well-known/oauth-protected-resource/mcp` \
         failed: `SERVER` redirects to `CANARY`: redirects to another origin are not followed; use the \
         URL of that origin instead if you trust it (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::IssuerWrong,
        "connecting: the metadata of the authorization server at \
         `AUTHORITY/.well-known/oauth-authorization-server/tenant` cannot be used: its issuer is \
         `https://stranger.example` but must be exactly `ISSUER`; it may be an impersonation \
         (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::IssuerTrailingSlash,
        "connecting: the metadata of the authorization server at \
         `AUTHORITY/.well-known/oauth-authorization-server/tenant` cannot be used: its issuer is `ISSUER/` \
         but must be exactly `ISSUER`; it may be an impersonation (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::IssuerMissing,
        "connecting: the metadata of the authorization server at \
         `AUTHORITY/.well-known/oauth-authorization-server/tenant` cannot be used: the field `issuer` is missing \
         (HTTP_AUTHORIZATION)",
    ),
    (Misbehaviour::IssuerMoves, "fine"),
    (
        Misbehaviour::PkceMissing,
        "connecting: sign-in at `ISSUER` is not possible: its metadata does not list `S256` under \
         `code_challenge_methods_supported`, and without PKCE an authorization code could be stolen \
         (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::PkcePlain,
        "connecting: sign-in at `ISSUER` is not possible: its metadata does not list `S256` under \
         `code_challenge_methods_supported`, and without PKCE an authorization code could be stolen \
         (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::EndpointsPlainHttp,
        "connecting: the metadata of the authorization server at \
         `AUTHORITY/.well-known/oauth-authorization-server/tenant` cannot be used: its \
         `authorization_endpoint` is not a safe URL: `http://auth.example.com/authorization_endpoint` uses \
         plain `http`, but `https` is required (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::TokenEndpointPrivate,
        "connecting: token request at `https://10.0.0.1/token` failed: refused to connect to `10.0.0.1`: \
         10.0.0.1 is a private address, and this URL was discovered on the network, not configured, so it \
         may only lead to public addresses: to permit it, allow its network in the egress policy \
         (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::TokenEndpointLinkLocal,
        "connecting: token request at `https://169.254.169.254/token` failed: refused to connect to \
         `169.254.169.254`: 169.254.169.254 is a link-local or metadata address, and this URL was \
         discovered on the network, not configured, so it may only lead to public addresses: to permit \
         it, allow its network in the egress policy (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::TokenEndpointPrivateIpv6,
        "connecting: token request at `https://[fd00::1]/token` failed: refused to connect to \
         `[fd00::1]`: fd00::1 is a private address, and this URL was discovered on the network, not \
         configured, so it may only lead to public addresses: to permit it, allow its network in the \
         egress policy (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::TokenEndpointMissing,
        "connecting: the metadata of the authorization server at \
         `AUTHORITY/.well-known/oauth-authorization-server/tenant` cannot be used: the field `token_endpoint` is missing (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::RegistrationEndpointPrivate,
        "connecting: client registration at `https://10.0.0.1/register` failed: refused to connect to \
         `10.0.0.1`: 10.0.0.1 is a private address, and this URL was discovered on the network, not \
         configured, so it may only lead to public addresses: to permit it, allow its network in the \
         egress policy (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::AuthorizationEndpointJavascript,
        "connecting: the metadata of the authorization server at \
         `AUTHORITY/.well-known/oauth-authorization-server/tenant` cannot be used: its \
         `authorization_endpoint` is not a safe URL: the URL cannot be used: it must begin with https:// or \
         http:// (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::AuthorizationEndpointFile,
        "connecting: the metadata of the authorization server at \
         `AUTHORITY/.well-known/oauth-authorization-server/tenant` cannot be used: its \
         `authorization_endpoint` is not a safe URL: the URL cannot be used: only https:// and http:// are \
         supported (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::AuthorizationEndpointUserinfo,
        "connecting: the metadata of the authorization server at \
         `AUTHORITY/.well-known/oauth-authorization-server/tenant` cannot be used: its \
         `authorization_endpoint` is not a safe URL: the URL cannot be used: it contains a user name or \
         password; send them in a header instead (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::AuthorizationEndpointCommand,
        "connecting: the metadata of the authorization server at \
         `AUTHORITY/.well-known/oauth-authorization-server/tenant` cannot be used: its \
         `authorization_endpoint` is not a safe URL: the URL cannot be used: it contains the character ' \
         '; encode it as %20 (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::MetadataTooLarge,
        "connecting: authorization server metadata at \
         `AUTHORITY/.well-known/oauth-authorization-server/tenant` failed: the response of `127.0.0.1` is \
         larger than 1048576 bytes (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::MetadataEndless,
        "connecting: authorization server metadata at \
         `AUTHORITY/.well-known/oauth-authorization-server/tenant` failed: the response of `127.0.0.1` is \
         larger than 1048576 bytes (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::MetadataSilent,
        "connecting: authorization server metadata at \
         `AUTHORITY/.well-known/oauth-authorization-server/tenant` failed: no response within 10 seconds \
         (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::MetadataRedirects,
        "connecting: authorization server metadata at \
         `AUTHORITY/.well-known/oauth-authorization-server/tenant` failed: `AUTHORITY` redirects to \
         `CANARY`: redirects to another origin are not followed; use the URL of that origin instead if you \
         trust it (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::MetadataRedirectLoop,
        "connecting: authorization server metadata at \
         `AUTHORITY/.well-known/oauth-authorization-server/tenant` failed: `AUTHORITY` redirects to \
         `AUTHORITY`: too many redirects, at most 3 are followed (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::MetadataHtml,
        "connecting: the metadata of the authorization server at \
         `AUTHORITY/.well-known/oauth-authorization-server/tenant` cannot be used: it does not conform to \
         RFC 8414 (line 1, column 1) (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::MetadataInvalidJson,
        "connecting: the metadata of the authorization server at \
         `AUTHORITY/.well-known/oauth-authorization-server/tenant` cannot be used: it does not conform to \
         RFC 8414 (line 1, column 16) (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::MetadataDuplicateKeys,
        "connecting: the metadata of the authorization server at \
         `AUTHORITY/.well-known/oauth-authorization-server/tenant` cannot be used: it does not conform to \
         RFC 8414 (line 1, column 45) (HTTP_AUTHORIZATION)",
    ),
    (Misbehaviour::MetadataOpenIdOnly, "fine"),
    (Misbehaviour::NoClientDocuments, "fine"),
    (
        Misbehaviour::RegistrationMissing,
        "connecting: `ISSUER` does not know this client and does not support dynamic registration: register \
         it there manually and set its client id (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::RegistrationRefused,
        "connecting: `ISSUER` did not register this client: error `invalid_redirect_uri` \
         (denied[2J]0;ownedSet-Cookie: a=bgnp.exe31m); register it there manually and set its client id \
         (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::RegistrationHtml,
        "connecting: `ISSUER` did not register this client: it responded with HTTP 403 and an HTML page; \
         register it there manually and set its client id (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::RegistrationOtherRedirect,
        "connecting: `ISSUER` did not register this client: it did not register the requested redirect URI; \
         register it there manually and set its client id (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::RegistrationWithoutClientId,
        "connecting: `ISSUER` did not register this client: its response has no valid `client_id`; register it \
         there manually and set its client id (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::StateMixedUp,
        "connecting: the redirect does not belong to this sign-in (`state`); sign in \
         again (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::StateMissing,
        "connecting: the redirect does not belong to this sign-in (`state`); sign in \
         again (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::IssWrong,
        "connecting: the redirect comes from another authorization server than `ISSUER` (`iss`); sign in \
         again (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::IssMissing,
        "connecting: the redirect lacks the `iss` parameter that `ISSUER` announces; sign in again \
         (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::IssNormalized,
        "connecting: the redirect comes from another authorization server than `ISSUER` (`iss`); sign in \
         again (HTTP_AUTHORIZATION)",
    ),
    (Misbehaviour::IssUnannounced, "fine"),
    (Misbehaviour::IssUnsupported, "fine"),
    (
        Misbehaviour::AccessDenied,
        "connecting: `ISSUER` denied authorization: error `access_denied` \
         (denied[2J]0;ownedSet-Cookie: a=bgnp.exe31m) (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::AccessDeniedIssWrong,
        "connecting: the redirect comes from another authorization server than `ISSUER` (`iss`); sign in \
         again (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::CodeMissing,
        "connecting: the redirect has no authorization code; sign in again (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::CodeUsed,
        "connecting: `ISSUER` issued no token: error `invalid_grant` (the code was already used) \
         (HTTP_AUTHORIZATION)",
    ),
    (Misbehaviour::CodeTwice, "fine"),
    (
        Misbehaviour::TokenRedirects,
        "connecting: `ISSUER` issued no token: it responded with HTTP 307, a redirect, which is not \
         followed with secrets (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::TokenHtmlOk,
        "connecting: `ISSUER` issued no token: it responded with an HTML page instead of a token \
         (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::TokenHtmlError,
        "connecting: `ISSUER` issued no token: it responded with HTTP 500 and an HTML page; try again later \
         (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::TokenError,
        "connecting: `ISSUER` issued no token: error `invalid_grant` (denied[2J]0;ownedSet-Cookie: \
         a=bgnp.exe31m) (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::TokenEchoes,
        "connecting: `ISSUER` issued no token: error `invalid_request` (grant_type authorization_code, code \
         …, code_verifier \
         …, redirect_uri http://127.0.0.1:9/callback, resource MCP) (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::TokenEmpty,
        "connecting: `ISSUER` issued no token: its response does not conform to RFC 6749 (line 1, column 0) \
         (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::TokenInvalidJson,
        "connecting: `ISSUER` issued no token: its response does not conform to RFC 6749 (line 1, column 86) \
         (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::TokenDuplicateKeys,
        "connecting: `ISSUER` issued no token: its response does not conform to RFC 6749 (line 1, column \
         186) \
         (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::TokenMissing,
        "connecting: `ISSUER` issued no token: its response has no `access_token` (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::TokenTypeMissing,
        "connecting: `ISSUER` issued no token: its response has no `token_type` (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::TokenTypeUnknown,
        "connecting: `ISSUER` issued no token: its token has the unsupported type `mac` \
         (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::TokenTooLarge,
        "connecting: `ISSUER` issued no token: its token is longer than 12 KiB, which is too long for a header (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::TokenNewline,
        "connecting: `ISSUER` issued no token: its token has characters that are not allowed in a header \
         (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::TokenSilent,
        "connecting: token request at `ISSUER/token` failed: no response within 10 seconds \
         (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::TokenEndless,
        "connecting: token request at `ISSUER/token` failed: the response of `127.0.0.1` is larger than \
         1048576 bytes (HTTP_AUTHORIZATION)",
    ),
    (Misbehaviour::ExpiresMissing, "fine"),
    (Misbehaviour::ExpiresNegative, "fine"),
    (Misbehaviour::ExpiresHuge, "fine"),
    (Misbehaviour::ExpiresText, "fine"),
    (
        Misbehaviour::ScopesFewer,
        "needing more: for this request the server requires the scope `write`, but the authorization \
         server did not grant it: contact the operator of the server (HTTP_AUTHORIZATION)",
    ),
    (Misbehaviour::RefreshMissing, "fine"),
    (Misbehaviour::RefreshOffline, "fine"),
    (Misbehaviour::RefreshStays, "fine"),
    (Misbehaviour::RefreshRevoked, "fine"),
    (Misbehaviour::RefreshRefused, "fine"),
    (
        Misbehaviour::RefreshUnavailable,
        "after the end of the token: `ISSUER` issued no token: it responded with HTTP 503 and an HTML page; \
         try again later \
         (HTTP_AUTHORIZATION)",
    ),
    (
        Misbehaviour::RevocationFails,
        "signing out: the stored token is deleted, but `ISSUER` did not revoke it: it responded with HTTP \
         503 and an HTML page; try again later",
    ),
    (Misbehaviour::Dpop, "fine"),
    (Misbehaviour::DpopNonce, "fine"),
    (
        Misbehaviour::DpopNonceForever,
        "connecting: `ISSUER` issued no token: error `use_dpop_nonce` (a nonce is required) \
         (HTTP_AUTHORIZATION)",
    ),
];

/// Runs a lifecycle with an authority that behaves like this. Advances the clock while a request stays unanswered.
async fn outcome(behaviour: Behaviour) -> (String, Observations) {
    let authority = signing_in::start(behaviour).await;
    let oauth = signing_in::oauth(&authority);
    let mut life = std::pin::pin!(signing_in::run_lifecycle(&authority, &oauth));
    let outcome = tokio::select! {
        outcome = &mut life => outcome,
        () = authority.wait_until(|seen| seen.unanswered > 0) => {
            tokio::time::pause();
            let outcome = life.await;
            tokio::time::resume();
            outcome
        }
    };
    let text = match outcome {
        Ok(()) => "fine".to_owned(),
        Err(failure) => format!("{}: {}", failure.step, failure.error),
    };
    (authority.mask_addresses(&text), authority.observations())
}

#[tokio::test]
async fn what_a_person_reads() {
    for &(switch, expected) in TABLE {
        let (text, seen) = outcome(Authority::conforming().with(switch)).await;
        assert_eq!(text, expected, "{switch:?}");
        // Another origin may serve the metadata of a resource; it is still validated against the resource.
        assert_eq!(seen.canary_connections > 0, switch == Misbehaviour::ChallengeElsewhere, "{switch:?}");
        assert_eq!(seen.reuses, 0, "{switch:?}: a used code or token is not sent again");
        let is_safe = |query: &[(String, String)]| query.iter().all(|(name, _)| name != "access_token");
        assert!(seen.requests.iter().all(|request| is_safe(&request.query)), "{switch:?}");
        assert!(!text.contains(char::is_control), "{switch:?}");
    }
    let told: BTreeSet<_> = TABLE.iter().map(|(switch, _)| switch).collect();
    assert_eq!(told, Misbehaviour::ALL.iter().collect(), "each of them once");
    assert_eq!(TABLE.len(), Misbehaviour::ALL.len());
}

#[tokio::test]
async fn an_honest_life() {
    let (text, seen) = outcome(Authority::conforming()).await;
    assert_eq!(text, "fine");
    let counts = (seen.registrations, seen.authorizations, seen.refreshes, seen.tokens, seen.revocations);
    assert_eq!(
        counts,
        (2, 3, 2, 5, 1),
        "the user signs in at first, for more scopes, and after a revocation"
    );
}

#[tokio::test]
async fn tokens_are_renewed_where_they_can_be() {
    for (switch, authorizations, tried, refreshes) in [
        (Misbehaviour::RefreshOffline, 3, 3, 2),
        (Misbehaviour::RefreshStays, 3, 3, 2),
        (Misbehaviour::RefreshRevoked, 5, 3, 0),
        (Misbehaviour::RefreshMissing, 5, 0, 0),
    ] {
        let (_, seen) = outcome(Authority::conforming().with(switch)).await;
        let tried_so_often = seen.with_grant_type("refresh_token").count();
        let counts = (seen.authorizations, tried_so_often, seen.refreshes);
        assert_eq!(counts, (authorizations, tried, refreshes), "{switch:?}");
    }
}

/// Metadata that arrives one byte per second and does not end within a minute.
#[tokio::test]
async fn an_answer_that_drips_is_given_up_in_time() {
    const ALL: usize = 60;
    let (drip, asked) = (Arc::<Notify>::default(), Arc::<Notify>::default());
    let (next, begun) = (drip.clone(), asked.clone());
    let script = HttpScript::start(move |seen| {
        if seen.path == "/" {
            return Reply::status(401);
        }
        begun.notify_one();
        let head = Reply::new(200, &[("content-type", "application/json")], b"");
        let head = head.with_header("content-length", &ALL.to_string());
        (0..ALL).fold(head, |reply, _| reply.wait(&next).bytes(b" "))
    })
    .await;
    let mut connecting = std::pin::pin!(Client::http(script.origin()).auth(OAuth::new("A test")).connect());
    tokio::select! {
        _ = &mut connecting => panic!("no output yet"),
        () = asked.notified() => tokio::time::pause(),
    }
    let begun = Instant::now();
    let mut drops = tokio::time::interval(Duration::from_secs(1));
    let mut fallen = 0;
    let error = loop {
        tokio::select! {
            connected = &mut connecting => break connected.unwrap_err().to_string(),
            _ = drops.tick() => {
                fallen += 1;
                drip.notify_one();
            }
        }
    };
    assert!(error.contains("no response within 10 seconds"), "{error}");
    let took = begun.elapsed();
    assert!(fallen > 5 && took < Duration::from_secs(11), "{fallen} bytes in {took:?}");
}

#[tokio::test]
async fn another_authority_means_another_registration() {
    let (_, seen) = outcome(Authority::conforming().with(Misbehaviour::IssuerMoves)).await;
    let ids = |path| {
        let requests = seen.with_path(path).filter_map(|request| request.parameter("client_id"));
        requests.collect::<BTreeSet<_>>()
    };
    let (before, after) = (ids("/tenant/token"), ids("/moved/token"));
    assert!(!before.is_empty() && !after.is_empty() && before.is_disjoint(&after), "{before:?} {after:?}");
}

#[tokio::test]
async fn a_passing_failure_costs_nothing() {
    let authority = signing_in::start(Authority::conforming().with(Misbehaviour::RefreshUnavailable)).await;
    let oauth = signing_in::oauth(&authority);
    let client = Client::http(authority.mcp_url()).auth(oauth).connect().await.unwrap();
    authority.expire_tokens();
    client.call("greet", ()).await.unwrap_err();
    client.call("greet", ()).await.unwrap();
    assert_eq!(
        (authority.observations().refreshes, authority.observations().authorizations),
        (1, 1),
        "the user is not redirected again"
    );
}

#[tokio::test]
async fn nobody_is_asked_for_ever() {
    let behaviour =
        Authority::conforming().with(Misbehaviour::UnauthorizedForever).with(Misbehaviour::RefreshMissing);
    let behaviour =
        behaviour.challenge("Bearer error=invalid_token, error_description=\"it is for another\"");
    let (text, seen) = outcome(behaviour).await;
    assert!(text.starts_with("connecting: the server rejected the token"), "{text}");
    assert!(text.contains(" (`it is for another`): contact the operator"), "{text}");
    assert_eq!(seen.authorizations, 1);
}

#[tokio::test]
async fn what_was_found_elsewhere_is_no_reason() {
    let behaviour =
        Authority::conforming().with(Misbehaviour::ChallengeElsewhere).with(Misbehaviour::IssuerWrong);
    let (text, _) = outcome(behaviour).await;
    assert!(text.contains("its issuer is `https://stranger.example`"), "{text}");
}
