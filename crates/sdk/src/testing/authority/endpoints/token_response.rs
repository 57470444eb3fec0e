//! Responses of the test authority's token endpoint, valid or misbehaving.

use serde_json::{Value, json};

use super::authorize::TERMINAL_ESCAPES;
use super::token::TokenRequest;
use crate::testing::authority::clients::OAuthFault;
use crate::testing::authority::form;
use crate::testing::authority::http::{AuthorityReply, endless_reply, html, redirect, reply as text_reply};
use crate::testing::authority::misbehaviour::Misbehaviour;
use crate::testing::authority::shared::{Access, AuthorityState, Grant, Refresh};

/// Size of an access token that is too large for an HTTP header.
const OVERSIZED_TOKEN_BYTES: usize = 16 << 10;

/// Grant for which the test authority issues tokens, and whether a refresh token is among them.
pub(in crate::testing::authority) struct IssuedGrant {
    pub(in crate::testing::authority) grant: Grant,
    pub(in crate::testing::authority) refresh: bool,
}

/// Returns the token response that an enabled misbehaviour prescribes, whatever the request contains.
pub(in crate::testing::authority) fn misbehaving_response(
    state: &mut AuthorityState,
    request: &TokenRequest<'_>,
) -> Option<AuthorityReply> {
    let is_refresh = form::find(&request.form, "grant_type") == Some("refresh_token");
    if is_refresh && state.behaviour.is_enabled(Misbehaviour::RefreshUnavailable) && !state.has_failed_refresh
    {
        state.has_failed_refresh = true;
        return Some(html(503));
    }
    state.behaviour.misbehaviours.iter().find_map(|misbehaviour| {
        Some(match misbehaviour {
            Misbehaviour::TokenEndless => endless_reply(),
            Misbehaviour::TokenRedirects => redirect(307, &format!("{}/token", request.shared.canary_url)),
            Misbehaviour::TokenHtmlOk => html(200),
            Misbehaviour::TokenHtmlError => html(500),
            Misbehaviour::TokenError => OAuthFault::new("invalid_grant", TERMINAL_ESCAPES).reply(),
            Misbehaviour::TokenEchoes => {
                let sent = request.form.iter().filter(|(name, _)| name != "client_id");
                let sent: Vec<_> = sent.map(|(name, value)| format!("{name} {value}")).collect();
                OAuthFault::new("invalid_request", sent.join(", ")).reply()
            }
            Misbehaviour::RefreshRefused if is_refresh => {
                OAuthFault::new("interaction_required", "user interaction is required").reply()
            }
            Misbehaviour::TokenEmpty => text_reply(200, "application/json", ""),
            _ => return None,
        })
    })
}

/// Issues access and refresh tokens and creates the token response.
pub(in crate::testing::authority) fn issue_tokens(
    state: &mut AuthorityState,
    issued: IssuedGrant,
) -> AuthorityReply {
    let IssuedGrant { mut grant, refresh } = issued;
    if state.behaviour.is_enabled(Misbehaviour::ScopesFewer) {
        grant.scopes.retain(|scope| scope != "write");
    }
    let token = access_token(state);
    let lifetime = state.behaviour.lifetime;
    let mut body = json!({
        "access_token": token,
        "token_type": if grant.key.is_some() { "DPoP" } else { "Bearer" },
        "expires_in": lifetime.as_secs(),
        "scope": grant.scopes.join(" "),
    });
    if refresh {
        let token = state.new_secret();
        body["refresh_token"] = json!(token);
        state.refresh_tokens.insert(token, Refresh { grant: grant.clone(), is_spent: false });
    }
    let end = Some(state.now() + lifetime);
    state.access_tokens.insert(token, Access { grant, end });
    state.observed.tokens += 1;
    misbehave(state, &mut body);
    let text = body.to_string();
    let text = match () {
        () if state.behaviour.is_enabled(Misbehaviour::TokenInvalidJson) => text[..text.len() / 2].to_owned(),
        () if state.behaviour.is_enabled(Misbehaviour::TokenDuplicateKeys) => {
            format!(r#"{},"access_token":"another"}}"#, &text[..text.len() - 1])
        }
        () => text,
    };
    text_reply(200, "application/json", text)
}

fn access_token(state: &mut AuthorityState) -> String {
    let token = state.new_secret();
    match () {
        () if state.behaviour.is_enabled(Misbehaviour::TokenTooLarge) => {
            token + &"x".repeat(OVERSIZED_TOKEN_BYTES)
        }
        () if state.behaviour.is_enabled(Misbehaviour::TokenNewline) => token + "\r\nX-Injected: yes",
        () => token,
    }
}

fn misbehave(state: &AuthorityState, body: &mut Value) {
    let changes = state.behaviour.misbehaviours.iter().filter_map(|misbehaviour| {
        Some(match misbehaviour {
            Misbehaviour::TokenMissing => ("access_token", Value::Null),
            Misbehaviour::TokenTypeMissing => ("token_type", Value::Null),
            Misbehaviour::TokenTypeUnknown => ("token_type", json!("mac")),
            Misbehaviour::ExpiresMissing => ("expires_in", Value::Null),
            Misbehaviour::ExpiresNegative => ("expires_in", json!(-3_600)),
            Misbehaviour::ExpiresHuge => ("expires_in", json!(u64::MAX)),
            Misbehaviour::ExpiresText => ("expires_in", json!("3600")),
            _ => return None,
        })
    });
    super::metadata::override_fields(body, changes.map(|(name, value)| (name.to_owned(), value)).collect());
}
