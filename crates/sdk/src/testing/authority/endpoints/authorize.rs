//! Authorization endpoint of the test authority. The user is already logged in and approves everything.

use super::metadata::{FOREIGN_ISSUER, resource_url};
use crate::server::random_id;
use crate::testing::authority::clients::{self, OAuthFault};
use crate::testing::authority::form;
use crate::testing::authority::http::{AuthorityReply, redirect, reply};
use crate::testing::authority::misbehaviour::Misbehaviour;
use crate::testing::authority::observed::RecordedRequest;
use crate::testing::authority::shared::{AuthorityShared, AuthorityState, Code, Grant, SCOPES, TestIssuer};

/// Description with control sequences that must not reach a terminal.
pub(in crate::testing::authority) const TERMINAL_ESCAPES: &str =
    "denied\u{1b}[2J\u{1b}]0;owned\u{7}\r\nSet-Cookie: a=b\n\u{202e}gnp.exe\u{0}\u{9b}31m";

pub(in crate::testing::authority) fn authorize(
    shared: &AuthorityShared,
    issuer: TestIssuer,
    request: &RecordedRequest,
) -> AuthorityReply {
    let mut state = shared.lock();
    let parameter = |name| form::find(&request.query, name);
    // Errors in client id or redirect URI are shown here: redirecting would be an open redirector.
    let client = parameter("client_id").and_then(|id| clients::find(&state, issuer, id));
    let Some(client) = client else { return error_page("unknown client") };
    let Some(back) = parameter("redirect_uri").filter(|url| clients::may_redirect(&client, url)) else {
        return error_page("the redirect_uri is not registered for this client");
    };
    let mut parameters = match issue_code(shared, &mut state, issuer, request) {
        Ok(code) => vec![("code", code)],
        Err(OAuthFault { error, description, .. }) => {
            vec![("error", error.to_owned()), ("error_description", description)]
        }
    };
    let behaviour = &state.behaviour;
    if behaviour.is_enabled(Misbehaviour::CodeMissing) {
        parameters.clear();
    }
    match parameter("state") {
        _ if behaviour.is_enabled(Misbehaviour::StateMissing) => {}
        _ if behaviour.is_enabled(Misbehaviour::StateMixedUp) => parameters.push(("state", random_id())),
        Some(state_value) => parameters.push(("state", state_value.to_owned())),
        None => {}
    }
    let issuer_url = shared.issuer(issuer);
    if behaviour.is_any_enabled([Misbehaviour::IssWrong, Misbehaviour::AccessDeniedIssWrong]) {
        parameters.push(("iss", FOREIGN_ISSUER.to_owned()));
    } else if behaviour.is_enabled(Misbehaviour::IssNormalized) {
        parameters.push(("iss", format!("{}/", issuer_url.replacen("http:", "HTTP:", 1))));
    } else if !behaviour.is_any_enabled([Misbehaviour::IssMissing, Misbehaviour::IssUnsupported]) {
        parameters.push(("iss", issuer_url));
    }
    let query = form::encode(parameters.iter().map(|(name, value)| (*name, &**value)));
    redirect(302, &format!("{back}{}{query}", if back.contains('?') { '&' } else { '?' }))
}

fn error_page(text: &'static str) -> AuthorityReply {
    reply(400, "text/plain", text)
}

fn issue_code(
    shared: &AuthorityShared,
    state: &mut AuthorityState,
    issuer: TestIssuer,
    request: &RecordedRequest,
) -> Result<String, OAuthFault> {
    let parameter = |name| form::find(&request.query, name);
    let behaviour = &state.behaviour;
    if behaviour.is_any_enabled([Misbehaviour::AccessDenied, Misbehaviour::AccessDeniedIssWrong]) {
        return Err(OAuthFault::new("access_denied", TERMINAL_ESCAPES));
    }
    if parameter("response_type") != Some("code") {
        return Err(OAuthFault::new("unsupported_response_type", "response_type must be code"));
    }
    let is_digest = |text: &&str| text.len() == 43;
    let challenge = parameter("code_challenge").filter(is_digest);
    let Some(challenge) = challenge.filter(|_| parameter("code_challenge_method") == Some("S256")) else {
        return Err(OAuthFault::new("invalid_request", "a code_challenge of the method S256 is required"));
    };
    let resource = check_resource(shared, state, parameter("resource"))?;
    let scopes = parse_scopes(parameter("scope"))?;
    let grant = Grant {
        issuer,
        client: parameter("client_id").unwrap_or_default().to_owned(),
        scopes,
        resource,
        family: state.new_family(),
        key: parameter("dpop_jkt").map(str::to_owned),
    };
    let (redirect_uri, challenge) =
        (parameter("redirect_uri").unwrap_or_default().to_owned(), challenge.to_owned());
    let code = state.new_secret();
    state.codes.insert(code.clone(), Code { grant, redirect_uri, challenge, is_used: false });
    state.observed.authorizations += 1;
    Ok(code)
}

/// Checks that the `resource` parameter of a request names the protected resource. It is required, except in the modes
/// without resource metadata.
pub(in crate::testing::authority) fn check_resource(
    shared: &AuthorityShared,
    state: &AuthorityState,
    requested: Option<&str>,
) -> Result<String, OAuthFault> {
    let resource_url = resource_url(shared, &state.behaviour);
    let is_old = state.behaviour.is_any_enabled([Misbehaviour::NoResourceMetadata, Misbehaviour::NoMetadata]);
    match requested {
        Some(requested) if requested == resource_url => Ok(resource_url),
        None if is_old => Ok(resource_url),
        Some(requested) if is_old && requested.trim_end_matches('/') == shared.resource => Ok(resource_url),
        _ => Err(OAuthFault::new("invalid_target", "resource must be the URL of the protected endpoint")),
    }
}

/// Parses the scopes that an authorization or token request asks for. Default: the first one of [`SCOPES`].
pub(in crate::testing::authority) fn parse_scopes(
    requested: Option<&str>,
) -> Result<Vec<String>, OAuthFault> {
    let requested: Vec<_> =
        requested.unwrap_or(SCOPES[0]).split_ascii_whitespace().map(str::to_owned).collect();
    match requested.iter().find(|scope| !SCOPES.contains(&&***scope)) {
        Some(unknown) => Err(OAuthFault::new("invalid_scope", format!("unknown scope {unknown}"))),
        None => Ok(requested),
    }
}
