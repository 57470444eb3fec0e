//! Token endpoint: validation of token requests.

use http::header::CONTENT_TYPE;

use super::authorize::{resource, scopes};
use super::clients::{Fault, authenticate};
use super::dpop::{self, Unproven};
use super::form::{self, Pairs};
use super::http::Reply;
use super::jwt::{Token, digest};
use super::misbehavior::Switch;
use super::observed::SeenRequest;
use super::shared::{Grant, Issuer, Proof, Shared, State};
use super::token_response::{self, Issued};

const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// Supported grant types.
pub(super) const GRANTS: [&str; 4] =
    ["authorization_code", "refresh_token", "client_credentials", JWT_BEARER];
/// Parameters that contain secrets.
const SECRETS: [&str; 4] = ["client_secret", "code_verifier", "assertion", "client_assertion"];

/// A token request.
pub(super) struct Asked<'a> {
    pub(super) shared: &'a Shared,
    pub(super) issuer: Issuer,
    pub(super) request: &'a SeenRequest,
    pub(super) form: Pairs,
    /// The key that the tokens are bound to.
    pub(super) key: Option<String>,
}

/// Handles a token request; `None` if there must be no response.
pub(super) fn answer(shared: &Shared, issuer: Issuer, request: &SeenRequest) -> Option<Reply> {
    let mut state = shared.lock();
    let form = request.form();
    for name in SECRETS {
        state.keep_secret(form::find(&form, name));
    }
    let mut asked = Asked { shared, issuer, request, form, key: None };
    if state.behaviour.has(Switch::TokenSilent) {
        return None;
    }
    if let Some(reply) = token_response::spoiled(&mut state, &asked) {
        return Some(reply);
    }
    let url = format!("{}/token", shared.issuer(issuer));
    let granted = match dpop::check(&mut state, request, &url, None) {
        Ok(key) => {
            asked.key = key;
            grant(&mut state, &asked)
        }
        Err(unproven) => {
            let text =
                if unproven == Unproven::Nonce { "a nonce is required" } else { "a proof is required" };
            Err(Fault::new(unproven.error(), text))
        }
    };
    let mut reply =
        granted.map_or_else(|fault| fault.reply(), |issued| token_response::reply(&mut state, issued));
    dpop::tell_nonce(&state, &mut reply);
    Some(reply)
}

impl Asked<'_> {
    fn parameter(&self, name: &str) -> Option<&str> {
        form::find(&self.form, name)
    }
}

fn grant(state: &mut State, asked: &Asked<'_>) -> Result<Issued, Fault> {
    let is_form = asked
        .request
        .headers
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/x-www-form-urlencoded"));
    if !is_form {
        return Err(Fault::new("invalid_request", "a token request must be a form"));
    }
    match asked.parameter("grant_type") {
        Some("authorization_code") => code(state, asked),
        Some("refresh_token") => refresh(state, asked),
        Some("client_credentials") => credentials(state, asked),
        Some(JWT_BEARER) => assertion(state, asked),
        _ => Err(Fault::new("unsupported_grant_type", "unsupported grant type")),
    }
}

fn code(state: &mut State, asked: &Asked<'_>) -> Result<Issued, Fault> {
    let (client, _) = authenticate(asked.shared, state, asked.issuer, asked.request)?;
    let wrong = |text: &str| Err(Fault::new("invalid_grant", text));
    let wanted = resource(asked.shared, state, asked.parameter("resource"))?;
    let text = asked.parameter("code").unwrap_or_default().to_owned();
    let (lenient, refuses) = (state.behaviour.has(Switch::CodeTwice), state.behaviour.has(Switch::CodeUsed));
    let Some(code) = state.codes.get_mut(&text) else { return wrong("unknown code") };
    let grant = Grant { key: asked.key.clone(), ..code.grant.clone() };
    if std::mem::replace(&mut code.is_used, true) && !lenient {
        state.reuse(grant.family);
        return wrong("the code was already used");
    }
    if refuses {
        return wrong("the code was already used");
    }
    let is_whose = code.grant.client == client && code.grant.issuer == asked.issuer;
    if !is_whose || code.grant.resource != wanted {
        return wrong("the code was issued to another client, or for another resource");
    }
    if asked.parameter("redirect_uri") != Some(&code.redirect_uri) {
        return wrong("the redirect_uri differs from the authorization request");
    }
    let verifier = asked.parameter("code_verifier").unwrap_or_default();
    if !(43..=128).contains(&verifier.len()) || digest(verifier) != code.challenge {
        return wrong("the code_verifier is wrong");
    }
    if code.grant.key.is_some() && code.grant.key != asked.key {
        return wrong("the code is bound to another key");
    }
    let behaviour = &state.behaviour;
    let is_offline =
        !behaviour.has(Switch::RefreshOffline) || grant.scopes.iter().any(|scope| scope == "offline_access");
    Ok(Issued { grant, refresh: is_offline && !behaviour.has(Switch::RefreshMissing) })
}

fn refresh(state: &mut State, asked: &Asked<'_>) -> Result<Issued, Fault> {
    let (client, kind) = authenticate(asked.shared, state, asked.issuer, asked.request)?;
    let wrong = |text: &str| Err(Fault::new("invalid_grant", text));
    let wanted = resource(asked.shared, state, asked.parameter("resource"))?;
    let text = asked.parameter("refresh_token").unwrap_or_default().to_owned();
    let (stays, refuses) =
        (state.behaviour.has(Switch::RefreshStays), state.behaviour.has(Switch::RefreshRevoked));
    let Some(token) = state.refresh.get_mut(&text) else { return wrong("unknown token") };
    let mut grant = token.grant.clone();
    if grant.client != client || grant.issuer != asked.issuer || grant.resource != wanted {
        return wrong("the token was issued to another client, or for another resource");
    }
    if token.is_spent {
        state.reuse(grant.family);
        return wrong("the token was already used; its family is revoked");
    }
    if matches!(kind.proof, Proof::None) && grant.key != asked.key {
        return wrong("the token is bound to another key");
    }
    if let Some(scope) = asked.parameter("scope") {
        let fewer = scopes(Some(scope))?;
        if !fewer.iter().all(|scope| grant.scopes.contains(scope)) {
            return Err(Fault::new("invalid_scope", "a refresh must not request additional scopes"));
        }
        grant.scopes = fewer;
    }
    token.is_spent = !stays;
    if refuses || state.is_revoked(grant.family) {
        return wrong("the token is revoked");
    }
    state.seen.refreshes += 1;
    grant.key.clone_from(&asked.key);
    Ok(Issued { grant, refresh: !stays })
}

fn credentials(state: &mut State, asked: &Asked<'_>) -> Result<Issued, Fault> {
    let (client, kind) = authenticate(asked.shared, state, asked.issuer, asked.request)?;
    if matches!(kind.proof, Proof::None) {
        return Err(Fault::new("unauthorized_client", "the client has no secret"));
    }
    let resource = resource(asked.shared, state, asked.parameter("resource"))?;
    granted(state, asked, client, resource, asked.parameter("scope"))
}

/// Handles an assertion of another authority about a user or a workload.
fn assertion(state: &mut State, asked: &Asked<'_>) -> Result<Issued, Fault> {
    let shared = asked.shared;
    let wrong = |text: &str| Err(Fault::new("invalid_grant", text));
    let own = shared.issuer(asked.issuer);
    let now = state.now().as_secs();
    let is_good = |token: &Token<'_>| {
        token.is_signed_by(&shared.key.jwk()) && token.is_for(&[&own]) && token.is_alive(now)
    };
    let token = asked.parameter("assertion").and_then(Token::parse).filter(is_good);
    let Some(token) = token else { return wrong("the assertion is invalid or has expired") };
    if token.header["typ"] != "oauth-id-jag+jwt" {
        if token.claim("iss") != shared.workload() {
            return wrong("unknown issuer of the assertion");
        }
        let wanted = asked.parameter("resource").map(|wanted| resource(shared, state, Some(wanted)));
        let wanted = wanted.unwrap_or_else(|| Ok(shared.mcp_url()))?;
        return granted(state, asked, token.claim("sub").to_owned(), wanted, asked.parameter("scope"));
    }
    let (client, _) = authenticate(shared, state, asked.issuer, asked.request)?;
    if token.claim("iss") != shared.idp() || token.claim("client_id") != client {
        return wrong("the assertion was issued to another client");
    }
    if !state.used.insert(token.claim("jti").to_owned()) {
        return wrong("the assertion was already used");
    }
    let wanted = resource(shared, state, Some(token.claim("resource")))?;
    let scope = token.claims["scope"].as_str().or(asked.parameter("scope"));
    granted(state, asked, client, wanted, scope)
}

/// Grants access to the client itself: without a refresh token, since it can request a new token.
fn granted(
    state: &mut State,
    asked: &Asked<'_>,
    client: String,
    resource: String,
    scope: Option<&str>,
) -> Result<Issued, Fault> {
    let scopes = scopes(scope)?;
    let (issuer, family, key) = (asked.issuer, state.family(), asked.key.clone());
    Ok(Issued { grant: Grant { issuer, client, scopes, resource, family, key }, refresh: false })
}
