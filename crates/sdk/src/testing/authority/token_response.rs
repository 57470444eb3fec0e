//! Responses of the token endpoint, valid or spoiled.

use serde_json::{Value, json};

use super::authorize::NASTY;
use super::clients::Fault;
use super::form;
use super::http::{Reply, endless, html, redirect, reply as text_reply};
use super::misbehavior::Switch;
use super::shared::{Access, Grant, Refresh, State};
use super::token::Asked;

/// Size that is too large for a header.
const TOO_LARGE: usize = 16 << 10;

/// A grant, and whether it includes a refresh token.
pub(super) struct Issued {
    pub(super) grant: Grant,
    pub(super) refresh: bool,
}

/// Returns a response that ignores the request, if a misbehaviour requires it.
pub(super) fn spoiled(state: &mut State, asked: &Asked<'_>) -> Option<Reply> {
    let is_refresh = form::find(&asked.form, "grant_type") == Some("refresh_token");
    if is_refresh && state.behaviour.has(Switch::RefreshUnavailable) && !state.was_unavailable {
        state.was_unavailable = true;
        return Some(html(503));
    }
    state.behaviour.switches.iter().find_map(|switch| {
        Some(match switch {
            Switch::TokenEndless => endless(),
            Switch::TokenRedirects => redirect(307, &format!("{}/token", asked.shared.canary)),
            Switch::TokenHtmlOk => html(200),
            Switch::TokenHtmlError => html(500),
            Switch::TokenError => Fault::new("invalid_grant", NASTY).reply(),
            Switch::TokenEchoes => {
                let sent = asked.form.iter().filter(|(name, _)| name != "client_id");
                let sent: Vec<_> = sent.map(|(name, value)| format!("{name} {value}")).collect();
                Fault::new("invalid_request", sent.join(", ")).reply()
            }
            Switch::RefreshRefused if is_refresh => {
                Fault::new("interaction_required", "user interaction is required").reply()
            }
            Switch::TokenEmpty => text_reply(200, "application/json", ""),
            _ => return None,
        })
    })
}

/// Issues tokens.
pub(super) fn reply(state: &mut State, issued: Issued) -> Reply {
    let Issued { mut grant, refresh } = issued;
    if state.behaviour.has(Switch::ScopesFewer) {
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
        let token = state.secret();
        body["refresh_token"] = json!(token);
        state.refresh.insert(token, Refresh { grant: grant.clone(), is_spent: false });
    }
    let end = Some(state.now() + lifetime);
    state.access.insert(token, Access { grant, end });
    state.seen.tokens += 1;
    spoil(state, &mut body);
    let text = body.to_string();
    let text = match () {
        () if state.behaviour.has(Switch::TokenInvalidJson) => text[..text.len() / 2].to_owned(),
        () if state.behaviour.has(Switch::TokenDuplicateKeys) => {
            format!(r#"{},"access_token":"another"}}"#, &text[..text.len() - 1])
        }
        () => text,
    };
    text_reply(200, "application/json", text)
}

fn access_token(state: &mut State) -> String {
    let token = state.secret();
    match () {
        () if state.behaviour.has(Switch::TokenTooLarge) => token + &"x".repeat(TOO_LARGE),
        () if state.behaviour.has(Switch::TokenNewline) => token + "\r\nX-Injected: yes",
        () => token,
    }
}

fn spoil(state: &State, body: &mut Value) {
    let changes = state.behaviour.switches.iter().filter_map(|switch| {
        Some(match switch {
            Switch::TokenMissing => ("access_token", Value::Null),
            Switch::TokenTypeMissing => ("token_type", Value::Null),
            Switch::TokenTypeUnknown => ("token_type", json!("mac")),
            Switch::ExpiresMissing => ("expires_in", Value::Null),
            Switch::ExpiresNegative => ("expires_in", json!(-3_600)),
            Switch::ExpiresHuge => ("expires_in", json!(u64::MAX)),
            Switch::ExpiresText => ("expires_in", json!("3600")),
            _ => return None,
        })
    });
    super::metadata::change(body, changes.map(|(name, value)| (name.to_owned(), value)).collect());
}
