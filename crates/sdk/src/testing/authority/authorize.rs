//! Authorization endpoint. The user is already logged in and approves everything.

use super::clients::{self, Fault};
use super::form;
use super::http::{Reply, redirect, reply};
use super::metadata::{STRANGER, resource_url};
use super::misbehavior::Switch;
use super::observed::SeenRequest;
use super::shared::{Code, Grant, Issuer, SCOPES, Shared, State};
use crate::server::unguessable;

/// Description with control sequences that must not reach a terminal.
pub(super) const NASTY: &str =
    "denied\u{1b}[2J\u{1b}]0;owned\u{7}\r\nSet-Cookie: a=b\n\u{202e}gnp.exe\u{0}\u{9b}31m";

pub(super) fn answer(shared: &Shared, issuer: Issuer, request: &SeenRequest) -> Reply {
    let mut state = shared.lock();
    let parameter = |name| form::find(&request.query, name);
    // Errors in client id or redirect URI are shown here: redirecting would be an open redirector.
    let client = parameter("client_id").and_then(|id| clients::find(&state, issuer, id));
    let Some(client) = client else { return page("unknown client") };
    let Some(back) = parameter("redirect_uri").filter(|url| clients::may_redirect(&client, url)) else {
        return page("the redirect_uri is not registered for this client");
    };
    let mut answer = match code(shared, &mut state, issuer, request) {
        Ok(code) => vec![("code", code)],
        Err(Fault { error, description, .. }) => {
            vec![("error", error.to_owned()), ("error_description", description)]
        }
    };
    let behaviour = &state.behaviour;
    if behaviour.has(Switch::CodeMissing) {
        answer.clear();
    }
    match parameter("state") {
        _ if behaviour.has(Switch::StateMissing) => {}
        _ if behaviour.has(Switch::StateMixedUp) => answer.push(("state", unguessable())),
        Some(own) => answer.push(("state", own.to_owned())),
        None => {}
    }
    let own = shared.issuer(issuer);
    if behaviour.has_any([Switch::IssWrong, Switch::AccessDeniedIssWrong]) {
        answer.push(("iss", STRANGER.to_owned()));
    } else if behaviour.has(Switch::IssNormalized) {
        answer.push(("iss", format!("{}/", own.replacen("http:", "HTTP:", 1))));
    } else if !behaviour.has_any([Switch::IssMissing, Switch::IssUnsupported]) {
        answer.push(("iss", own));
    }
    let query = form::encode(answer.iter().map(|(name, value)| (*name, &**value)));
    redirect(302, &format!("{back}{}{query}", if back.contains('?') { '&' } else { '?' }))
}

fn page(text: &'static str) -> Reply {
    reply(400, "text/plain", text)
}

fn code(shared: &Shared, state: &mut State, issuer: Issuer, request: &SeenRequest) -> Result<String, Fault> {
    let parameter = |name| form::find(&request.query, name);
    let behaviour = &state.behaviour;
    if behaviour.has_any([Switch::AccessDenied, Switch::AccessDeniedIssWrong]) {
        return Err(Fault::new("access_denied", NASTY));
    }
    if parameter("response_type") != Some("code") {
        return Err(Fault::new("unsupported_response_type", "response_type must be code"));
    }
    let is_digest = |text: &&str| text.len() == 43;
    let challenge = parameter("code_challenge").filter(is_digest);
    let Some(challenge) = challenge.filter(|_| parameter("code_challenge_method") == Some("S256")) else {
        return Err(Fault::new("invalid_request", "a code_challenge of the method S256 is required"));
    };
    let resource = resource(shared, state, parameter("resource"))?;
    let scopes = scopes(parameter("scope"))?;
    let grant = Grant {
        issuer,
        client: parameter("client_id").unwrap_or_default().to_owned(),
        scopes,
        resource,
        family: state.family(),
        key: parameter("dpop_jkt").map(str::to_owned),
    };
    let (redirect_uri, challenge) =
        (parameter("redirect_uri").unwrap_or_default().to_owned(), challenge.to_owned());
    let code = state.secret();
    state.codes.insert(code.clone(), Code { grant, redirect_uri, challenge, is_used: false });
    state.seen.authorizations += 1;
    Ok(code)
}

/// Checks the `resource` parameter. It is required, except in the modes without resource metadata.
pub(super) fn resource(shared: &Shared, state: &State, wanted: Option<&str>) -> Result<String, Fault> {
    let own = resource_url(shared, &state.behaviour);
    let is_old = state.behaviour.has_any([Switch::NoResourceMetadata, Switch::NoMetadata]);
    match wanted {
        Some(wanted) if wanted == own => Ok(own),
        None if is_old => Ok(own),
        Some(wanted) if is_old && wanted.trim_end_matches('/') == shared.resource => Ok(own),
        _ => Err(Fault::new("invalid_target", "resource must be the URL of the protected endpoint")),
    }
}

/// Parses the requested scopes. Default: the first one of [`SCOPES`].
pub(super) fn scopes(asked: Option<&str>) -> Result<Vec<String>, Fault> {
    let asked: Vec<_> = asked.unwrap_or(SCOPES[0]).split_ascii_whitespace().map(str::to_owned).collect();
    match asked.iter().find(|scope| !SCOPES.contains(&&***scope)) {
        Some(unknown) => Err(Fault::new("invalid_scope", format!("unknown scope {unknown}"))),
        None => Ok(asked),
    }
}
