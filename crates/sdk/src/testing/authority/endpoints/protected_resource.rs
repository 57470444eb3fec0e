//! Protected endpoint of the test authority: a server of this library behind an independent token check.

use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderValue, Request};

use super::metadata::{resource_metadata_url, resource_url};
use crate::egress::Body;
use crate::testing::authority::behaviour::Behaviour;
use crate::testing::authority::dpop;
use crate::testing::authority::http::{AuthorityReply, ReplyBody, reply};
use crate::testing::authority::misbehaviour::Misbehaviour;
use crate::testing::authority::observed::RecordedRequest;
use crate::testing::authority::shared::{AuthorityShared, AuthorityState, SCOPES};
use crate::{HttpService, Result, Server};

/// Name of the test tool that requires the scope `write`.
const PRIVILEGED: &str = "write";

/// Creates the MCP server that the test authority protects.
pub(in crate::testing::authority) fn server() -> Result<HttpService> {
    Server::new("protected", "1.0.0")
        .tool("greet", "Greets; `read` is enough", || async { "hello" })
        .tool(PRIVILEGED, "Writes; this takes the scope `write`", || async { "written" })
        .http()
        .allow_any_host() // tests may use a proxy in between
        .into_service()
}

pub(in crate::testing::authority) async fn handle(
    shared: &AuthorityShared,
    request: &RecordedRequest,
    parts: Parts,
) -> AuthorityReply {
    let refusal = check_token(shared, &mut shared.lock(), request);
    if let Some(refusal) = refusal {
        return refusal;
    }
    let request = Request::from_parts(parts, Body::from(request.body.clone()));
    shared.mcp.handle(request).await.map(ReplyBody::Mcp)
}

fn check_token(
    shared: &AuthorityShared,
    state: &mut AuthorityState,
    request: &RecordedRequest,
) -> Option<AuthorityReply> {
    let mut values = request.headers.get_all(AUTHORIZATION).iter();
    let (header, second) = (values.next(), values.next());
    if header.is_none() && second.is_none() || state.behaviour.is_enabled(Misbehaviour::UnauthorizedForever) {
        let error = if header.is_some() { Some("invalid_token") } else { None };
        return Some(challenge(shared, state, 401, error, SCOPES[0]));
    }
    let text = header.filter(|_| second.is_none()).and_then(|header| header.to_str().ok());
    let (scheme, token) = text.and_then(|text| text.split_once(' ')).unwrap_or_default();
    let invalid =
        |state: &AuthorityState| Some(challenge(shared, state, 401, Some("invalid_token"), SCOPES[0]));
    let Some(access) = state.access_tokens.get(token) else { return invalid(state) };
    let grant = access.grant.clone();
    let is_expired = access.end.is_none_or(|end| end <= state.now());
    if is_expired
        || state.is_revoked(grant.family)
        || grant.resource != resource_url(shared, &state.behaviour)
    {
        return invalid(state);
    }
    if grant.key.is_some() != scheme.eq_ignore_ascii_case("dpop") {
        return invalid(state);
    }
    if grant.key.is_some() {
        match dpop::check_proof(state, request, &shared.mcp_url(), Some(token)) {
            Ok(key) if key == grant.key => {}
            Ok(_) => return invalid(state),
            Err(missing_proof) => {
                return Some(challenge(shared, state, 401, Some(missing_proof.error()), SCOPES[0]));
            }
        }
    }
    let message = request.json();
    let is_privileged = message["method"] == "tools/call" && message["params"]["name"] == PRIVILEGED;
    let required_scope = if is_privileged { "write" } else { SCOPES[0] };
    let is_always_forbidden = is_privileged && state.behaviour.is_enabled(Misbehaviour::ForbiddenForever);
    let is_enough = grant.scopes.iter().any(|scope| scope == required_scope) && !is_always_forbidden;
    (!is_enough).then(|| challenge(shared, state, 403, Some("insufficient_scope"), required_scope))
}

fn challenge(
    shared: &AuthorityShared,
    state: &AuthorityState,
    status: u16,
    error: Option<&str>,
    scope: &str,
) -> AuthorityReply {
    let mut reply = reply(status, "text/plain", "a valid token is required");
    let is_bound = state.behaviour.is_any_enabled([
        Misbehaviour::Dpop,
        Misbehaviour::DpopNonce,
        Misbehaviour::DpopNonceForever,
    ]);
    let scheme = if is_bound { "DPoP" } else { "Bearer" };
    let error = error.map(|error| format!(", error=\"{error}\"")).unwrap_or_default();
    let link = metadata_link(shared, &state.behaviour).map(|url| format!(", resource_metadata=\"{url}\""));
    let algorithms = if is_bound { ", algs=\"ES256\"" } else { "" };
    let text = format!("{scheme} scope=\"{scope}\"{error}{}{algorithms}", link.unwrap_or_default());
    for value in misbehaving_challenges(&state.behaviour, text) {
        reply.headers_mut().append(WWW_AUTHENTICATE, value);
    }
    dpop::add_nonce(state, &mut reply);
    reply
}

/// Returns the `resource_metadata` URL of the authentication challenge.
fn metadata_link(shared: &AuthorityShared, behaviour: &Behaviour) -> Option<String> {
    if behaviour.is_enabled(Misbehaviour::ChallengeElsewhere) {
        return Some(format!("{}/.well-known/oauth-protected-resource/mcp", shared.canary_url));
    }
    let is_announced = !behaviour.is_any_enabled([
        Misbehaviour::NoResourceMetadata,
        Misbehaviour::NoMetadata,
        Misbehaviour::ResourceMetadataAtRoot,
    ]);
    is_announced.then(|| resource_metadata_url(shared, behaviour))
}

fn misbehaving_challenges(behaviour: &Behaviour, text: String) -> Vec<HeaderValue> {
    let texts = match () {
        () if behaviour.challenge.is_some() => behaviour.challenge.iter().cloned().collect(),
        () if behaviour.is_enabled(Misbehaviour::ChallengeMissing) => Vec::new(),
        () if behaviour.is_enabled(Misbehaviour::ChallengeMalformed) => {
            vec![format!("\"=,;Bearer {}", text.replacen("\",", ",,", 1))]
        }
        () if behaviour.is_enabled(Misbehaviour::ChallengeSeveral) => {
            vec!["Negotiate, Basic realm=\"a, \\\"b\\\", Bearer scope=c\"".to_owned(), text]
        }
        () if behaviour.is_enabled(Misbehaviour::ChallengeHuge) => {
            vec![format!("{text}, error_description=\"{}\"", "x".repeat(64 << 10))]
        }
        () => vec![text],
    };
    texts.into_iter().filter_map(|text| HeaderValue::try_from(text).ok()).collect()
}
