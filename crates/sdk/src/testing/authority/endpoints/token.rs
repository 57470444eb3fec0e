//! Token endpoint of the test authority: validation of token requests.

use http::header::CONTENT_TYPE;

use super::authorize::{check_resource, parse_scopes};
use super::token_response::{self, IssuedGrant};
use crate::testing::authority::clients::{OAuthFault, authenticate};
use crate::testing::authority::dpop::{self, ProofRejection};
use crate::testing::authority::form::{self, Pairs};
use crate::testing::authority::http::AuthorityReply;
use crate::testing::authority::jwt::{ParsedToken, digest};
use crate::testing::authority::misbehaviour::Misbehaviour;
use crate::testing::authority::observed::RecordedRequest;
use crate::testing::authority::shared::{
    AuthorityShared, AuthorityState, Grant, RequiredClientAuth, TestIssuer,
};

const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// Grant types that the test authority supports.
pub(in crate::testing::authority) const GRANTS: [&str; 4] =
    ["authorization_code", "refresh_token", "client_credentials", JWT_BEARER];
/// Parameters of a token request that contain secrets.
const SECRETS: [&str; 4] = ["client_secret", "code_verifier", "assertion", "client_assertion"];

/// Request to the token endpoint of the test authority, while it is checked.
pub(in crate::testing::authority) struct TokenRequest<'a> {
    pub(in crate::testing::authority) shared: &'a AuthorityShared,
    pub(in crate::testing::authority) issuer: TestIssuer,
    pub(in crate::testing::authority) request: &'a RecordedRequest,
    pub(in crate::testing::authority) form: Pairs,
    /// Thumbprint of the `DPoP` key that the tokens are bound to, if any.
    pub(in crate::testing::authority) key: Option<String>,
}

/// Handles a token request; `None` if there must be no response.
pub(in crate::testing::authority) fn handle_token_request(
    shared: &AuthorityShared,
    issuer: TestIssuer,
    request: &RecordedRequest,
) -> Option<AuthorityReply> {
    let mut state = shared.lock();
    let form = request.form();
    for name in SECRETS {
        state.record_secret(form::find(&form, name));
    }
    let mut token_request = TokenRequest { shared, issuer, request, form, key: None };
    if state.behaviour.is_enabled(Misbehaviour::TokenSilent) {
        return None;
    }
    if let Some(reply) = token_response::misbehaving_response(&mut state, &token_request) {
        return Some(reply);
    }
    let url = format!("{}/token", shared.issuer(issuer));
    let granted = match dpop::check_proof(&mut state, request, &url, None) {
        Ok(key) => {
            token_request.key = key;
            grant(&mut state, &token_request)
        }
        Err(missing_proof) => {
            let text = if missing_proof == ProofRejection::Nonce {
                "a nonce is required"
            } else {
                "a proof is required"
            };
            Err(OAuthFault::new(missing_proof.error(), text))
        }
    };
    let mut reply =
        granted.map_or_else(|fault| fault.reply(), |issued| token_response::issue_tokens(&mut state, issued));
    dpop::add_nonce(&state, &mut reply);
    Some(reply)
}

impl TokenRequest<'_> {
    fn parameter(&self, name: &str) -> Option<&str> {
        form::find(&self.form, name)
    }
}

fn grant(state: &mut AuthorityState, token_request: &TokenRequest<'_>) -> Result<IssuedGrant, OAuthFault> {
    let is_form = token_request
        .request
        .headers
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/x-www-form-urlencoded"));
    if !is_form {
        return Err(OAuthFault::new("invalid_request", "a token request must be a form"));
    }
    match token_request.parameter("grant_type") {
        Some("authorization_code") => grant_code(state, token_request),
        Some("refresh_token") => grant_refresh(state, token_request),
        Some("client_credentials") => grant_client_credentials(state, token_request),
        Some(JWT_BEARER) => grant_assertion(state, token_request),
        _ => Err(OAuthFault::new("unsupported_grant_type", "unsupported grant type")),
    }
}

fn grant_code(
    state: &mut AuthorityState,
    token_request: &TokenRequest<'_>,
) -> Result<IssuedGrant, OAuthFault> {
    let (client, _) = authenticate(token_request.shared, state, token_request.issuer, token_request.request)?;
    let invalid_grant = |text: &str| Err(OAuthFault::new("invalid_grant", text));
    let resource_url = check_resource(token_request.shared, state, token_request.parameter("resource"))?;
    let text = token_request.parameter("code").unwrap_or_default().to_owned();
    let (lenient, is_rejected) = (
        state.behaviour.is_enabled(Misbehaviour::CodeTwice),
        state.behaviour.is_enabled(Misbehaviour::CodeUsed),
    );
    let Some(code) = state.codes.get_mut(&text) else { return invalid_grant("unknown code") };
    let grant = Grant { key: token_request.key.clone(), ..code.grant.clone() };
    if std::mem::replace(&mut code.is_used, true) && !lenient {
        state.record_reuse(grant.family);
        return invalid_grant("the code was already used");
    }
    if is_rejected {
        return invalid_grant("the code was already used");
    }
    let belongs_to_client = code.grant.client == client && code.grant.issuer == token_request.issuer;
    if !belongs_to_client || code.grant.resource != resource_url {
        return invalid_grant("the code was issued to another client, or for another resource");
    }
    if token_request.parameter("redirect_uri") != Some(&code.redirect_uri) {
        return invalid_grant("the redirect_uri differs from the authorization request");
    }
    let verifier = token_request.parameter("code_verifier").unwrap_or_default();
    if !(43..=128).contains(&verifier.len()) || digest(verifier) != code.challenge {
        return invalid_grant("the code_verifier is wrong");
    }
    if code.grant.key.is_some() && code.grant.key != token_request.key {
        return invalid_grant("the code is bound to another key");
    }
    let behaviour = &state.behaviour;
    let is_offline = !behaviour.is_enabled(Misbehaviour::RefreshOffline)
        || grant.scopes.iter().any(|scope| scope == "offline_access");
    Ok(IssuedGrant { grant, refresh: is_offline && !behaviour.is_enabled(Misbehaviour::RefreshMissing) })
}

fn grant_refresh(
    state: &mut AuthorityState,
    token_request: &TokenRequest<'_>,
) -> Result<IssuedGrant, OAuthFault> {
    let (client, kind) =
        authenticate(token_request.shared, state, token_request.issuer, token_request.request)?;
    let invalid_grant = |text: &str| Err(OAuthFault::new("invalid_grant", text));
    let resource_url = check_resource(token_request.shared, state, token_request.parameter("resource"))?;
    let text = token_request.parameter("refresh_token").unwrap_or_default().to_owned();
    let (is_reusable, is_rejected) = (
        state.behaviour.is_enabled(Misbehaviour::RefreshStays),
        state.behaviour.is_enabled(Misbehaviour::RefreshRevoked),
    );
    let Some(token) = state.refresh_tokens.get_mut(&text) else { return invalid_grant("unknown token") };
    let mut grant = token.grant.clone();
    if grant.client != client || grant.issuer != token_request.issuer || grant.resource != resource_url {
        return invalid_grant("the token was issued to another client, or for another resource");
    }
    if token.is_spent {
        state.record_reuse(grant.family);
        return invalid_grant("the token was already used; its family is revoked");
    }
    if matches!(kind.proof, RequiredClientAuth::None) && grant.key != token_request.key {
        return invalid_grant("the token is bound to another key");
    }
    if let Some(scope) = token_request.parameter("scope") {
        let narrowed = parse_scopes(Some(scope))?;
        if !narrowed.iter().all(|scope| grant.scopes.contains(scope)) {
            return Err(OAuthFault::new("invalid_scope", "a refresh must not request additional scopes"));
        }
        grant.scopes = narrowed;
    }
    token.is_spent = !is_reusable;
    if is_rejected || state.is_revoked(grant.family) {
        return invalid_grant("the token is revoked");
    }
    state.observed.refreshes += 1;
    grant.key.clone_from(&token_request.key);
    Ok(IssuedGrant { grant, refresh: !is_reusable })
}

fn grant_client_credentials(
    state: &mut AuthorityState,
    request: &TokenRequest<'_>,
) -> Result<IssuedGrant, OAuthFault> {
    let (client, kind) = authenticate(request.shared, state, request.issuer, request.request)?;
    if matches!(kind.proof, RequiredClientAuth::None) {
        return Err(OAuthFault::new("unauthorized_client", "the client has no secret"));
    }
    let resource = check_resource(request.shared, state, request.parameter("resource"))?;
    grant_to_client(state, request, client, resource, request.parameter("scope"))
}

/// Grants access for an assertion of another authority about a user or a workload.
fn grant_assertion(
    state: &mut AuthorityState,
    request: &TokenRequest<'_>,
) -> Result<IssuedGrant, OAuthFault> {
    let shared = request.shared;
    let invalid_grant = |text: &str| Err(OAuthFault::new("invalid_grant", text));
    let issuer_url = shared.issuer(request.issuer);
    let now = state.now().as_secs();
    let is_valid = |token: &ParsedToken<'_>| {
        token.is_signed_by(&shared.key.jwk()) && token.has_audience(&[&issuer_url]) && token.is_unexpired(now)
    };
    let token = request.parameter("assertion").and_then(ParsedToken::parse).filter(is_valid);
    let Some(token) = token else { return invalid_grant("the assertion is invalid or has expired") };
    if token.header["typ"] != "oauth-id-jag+jwt" {
        if token.claim("iss") != shared.workload() {
            return invalid_grant("unknown issuer of the assertion");
        }
        let resource_url = request
            .parameter("resource")
            .map(|resource_url| check_resource(shared, state, Some(resource_url)));
        let resource_url = resource_url.unwrap_or_else(|| Ok(shared.mcp_url()))?;
        return grant_to_client(
            state,
            request,
            token.claim("sub").to_owned(),
            resource_url,
            request.parameter("scope"),
        );
    }
    let (client, _) = authenticate(shared, state, request.issuer, request.request)?;
    if token.claim("iss") != shared.idp() || token.claim("client_id") != client {
        return invalid_grant("the assertion was issued to another client");
    }
    if !state.used_ids.insert(token.claim("jti").to_owned()) {
        return invalid_grant("the assertion was already used");
    }
    let resource_url = check_resource(shared, state, Some(token.claim("resource")))?;
    let scope = token.claims["scope"].as_str().or(request.parameter("scope"));
    grant_to_client(state, request, client, resource_url, scope)
}

/// Grants access to the client itself: without a refresh token, since it can request a new token.
fn grant_to_client(
    state: &mut AuthorityState,
    request: &TokenRequest<'_>,
    client: String,
    resource: String,
    scope: Option<&str>,
) -> Result<IssuedGrant, OAuthFault> {
    let scopes = parse_scopes(scope)?;
    let (issuer, family, key) = (request.issuer, state.new_family(), request.key.clone());
    Ok(IssuedGrant { grant: Grant { issuer, client, scopes, resource, family, key }, refresh: false })
}
