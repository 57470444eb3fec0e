//! Authorization request and redirect response (RFC 6749 section 4.1, RFC 9207).

use serde::{Deserialize, Serialize};

use super::pkce::{CodeVerifier, random_text};
use super::server_metadata::ServerMetadata;
use crate::auth::error::{AuthError, AuthErrorKind, sanitize};
use crate::auth::form_urlencoded;
use crate::auth::scopes::{OFFLINE_ACCESS, Scopes};
use crate::auth::secret::{self, Secret};

/// Pending authorization request: the values that its redirect back is checked against. It is consumed by the redirect,
/// so it can be used only once.
#[derive(Clone, Serialize, Deserialize)]
pub(in crate::auth) struct AuthorizationRequest {
    #[serde(with = "secret::required")]
    state: Secret,
    verifier: CodeVerifier,
    redirect_uri: String,
    /// Issuer that the redirect must come from.
    issuer: String,
    /// Whether the redirect must contain the issuer (`iss`).
    iss_required: bool,
}

/// Builds the authorization URL and the state to hold until the redirect arrives.
pub(in crate::auth) fn authorization_request(
    server: &ServerMetadata,
    endpoint: &str,
    client_id: &str,
    redirect_uri: &str,
    resource: &str,
    scopes: &Scopes,
) -> (String, AuthorizationRequest) {
    let (state, verifier) = (random_text(), CodeVerifier::random());
    let mut url = endpoint.to_owned();
    url.push(if url.contains('?') { '&' } else { '?' });
    for (name, value) in [
        ("response_type", "code"),
        ("client_id", client_id),
        ("redirect_uri", redirect_uri),
        ("state", state.expose()),
        ("code_challenge", &verifier.challenge()),
        ("code_challenge_method", "S256"),
        ("resource", resource),
    ] {
        form_urlencoded::append(&mut url, name, value);
    }
    if !scopes.is_empty() {
        form_urlencoded::append(&mut url, "scope", &scopes.to_string());
    }
    if scopes.contains(OFFLINE_ACCESS) {
        // OpenID Connect requires the consent prompt for `offline_access`.
        form_urlencoded::append(&mut url, "prompt", "consent");
    }
    let pending = AuthorizationRequest {
        state,
        verifier,
        redirect_uri: redirect_uri.to_owned(),
        issuer: server.issuer.clone(),
        iss_required: server.iss_in_response,
    };
    (url, pending)
}

/// Query parameters with which the authorization server redirects the browser back.
#[derive(Default)]
struct RedirectParams {
    code: Option<Secret>,
    state: Option<Secret>,
    iss: Option<String>,
    error: Option<String>,
    description: Option<String>,
}

impl RedirectParams {
    /// Parses the parameters of an OAuth redirect from its URL or query. A duplicate parameter is an error, because its
    /// value would be ambiguous.
    fn parse(redirect: &str) -> Option<Self> {
        let query = redirect.split_once('?').map_or(redirect, |(_, query)| query);
        let query = query.split('#').next().unwrap_or_default();
        let mut params = RedirectParams::default();
        for (name, value) in form_urlencoded::decode(query) {
            let value = value.into_owned();
            let duplicate = match &*name {
                "code" => params.code.replace(value.into()).is_some(),
                "state" => params.state.replace(value.into()).is_some(),
                "iss" => params.iss.replace(value).is_some(),
                "error" => params.error.replace(value).is_some(),
                "error_description" => params.description.replace(value).is_some(),
                _ => false,
            };
            if duplicate {
                return None;
            }
        }
        Some(params)
    }
}

/// Checked redirect of an authorization server: code, verifier and redirect URI for the token request.
pub(in crate::auth) struct AuthorizationResponse {
    pub(in crate::auth) code: Secret,
    pub(in crate::auth) verifier: CodeVerifier,
    pub(in crate::auth) redirect_uri: String,
}

impl AuthorizationRequest {
    /// Validates the redirect back from the authorization server, and returns the authorization code. Nothing in it is
    /// used or shown before `state` and `iss` are verified.
    pub(in crate::auth) fn verify_redirect(self, redirect: &str) -> Result<AuthorizationResponse, AuthError> {
        let callback_error =
            |problem: &str| AuthError::new(AuthErrorKind::Callback, format!("{problem}; sign in again"));
        let params = RedirectParams::parse(redirect)
            .ok_or_else(|| callback_error("the redirect has a duplicate parameter"))?;
        if params.state.as_ref() != Some(&self.state) {
            return Err(callback_error("the redirect does not belong to this sign-in (`state`)"));
        }
        match &params.iss {
            Some(iss) if *iss != self.issuer => {
                return Err(callback_error(&format!(
                    "the redirect comes from another authorization server than `{}` (`iss`)",
                    sanitize(&self.issuer)
                )));
            }
            None if self.iss_required => {
                return Err(callback_error(&format!(
                    "the redirect lacks the `iss` parameter that `{}` announces",
                    sanitize(&self.issuer)
                )));
            }
            _ => {}
        }
        if let Some(error) = params.error {
            let code = sanitize(&error);
            let description = params.description.map(|text| sanitize(&text)).filter(|text| !text.is_empty());
            let description = description.map_or(String::new(), |text| format!(" ({text})"));
            let text =
                format!("`{}` denied authorization: error `{code}`{description}", sanitize(&self.issuer));
            return Err(AuthError::new(AuthErrorKind::Denied, text).with_code(Some(code)));
        }
        let code = params.code.filter(|code| !code.expose().is_empty());
        let code = code.ok_or_else(|| callback_error("the redirect has no authorization code"))?;
        Ok(AuthorizationResponse { code, verifier: self.verifier, redirect_uri: self.redirect_uri })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::flow::server_metadata::default_endpoints;

    const REDIRECT_URI: &str = "http://127.0.0.1:1/callback";

    fn server(iss: bool) -> ServerMetadata {
        ServerMetadata { iss_in_response: iss, ..default_endpoints("https://a.example") }
    }

    fn pending(iss: bool) -> (String, AuthorizationRequest) {
        authorization_request(
            &server(iss),
            "https://a.example/authorize",
            "me",
            REDIRECT_URI,
            "https://b.example/mcp",
            &Scopes::parse("x offline_access"),
        )
    }

    fn verify(iss_promised: bool, query: &str) -> Result<AuthorizationResponse, String> {
        let (_, pending) = pending(iss_promised);
        let state = pending.state.expose().to_owned();
        pending
            .verify_redirect(&format!("{REDIRECT_URI}?{}", query.replace("STATE", &state)))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn where_people_are_led() {
        let (url, pending) = pending(true);
        assert!(url.starts_with(
            "https://a.example/authorize?response_type=code&client_id=me&redirect_uri=http%3A%2F%2F"
        ));
        for part in [
            "&code_challenge_method=S256",
            "&resource=https%3A%2F%2Fb.example%2Fmcp",
            "&scope=x%20offline_access",
            "&prompt=consent",
            &format!("&code_challenge={}", pending.verifier.challenge()),
            &format!("&state={}", pending.state.expose()),
        ] {
            assert!(url.contains(part), "{url} {part}");
        }
    }

    #[test]
    fn who_answers_is_checked_before_what_they_say() {
        assert!(verify(true, "code=c&state=STATE&iss=https%3A%2F%2Fa.example").is_ok());
        assert!(verify(false, "code=c&state=STATE").is_ok());
        assert!(verify(false, "code=c&state=STATE&iss=https%3A%2F%2Fa.example").is_ok());
        for (iss_required, query, expected) in [
            (true, "code=c&state=STATE", "lacks the `iss` parameter that `https://a.example` announces"),
            (true, "code=c&state=STATE&iss=https%3A%2F%2Fa.example%2F", "another authorization server"),
            (false, "code=c&state=STATE&iss=https%3A%2F%2Fevil.example", "another authorization server"),
            (false, "code=c&state=STATE&iss=HTTPS%3A%2F%2Fa.example", "another authorization server"),
            (false, "code=c&state=other", "does not belong to this sign-in"),
            (false, "code=c", "does not belong to this sign-in"),
            (false, "error=access_denied&error_description=EVIL", "does not belong to this sign-in"),
            (
                false,
                "error=access_denied&error_description=EVIL&state=STATE&iss=x",
                "another authorization server",
            ),
            (false, "code=c&code=d&state=STATE", "a duplicate parameter"),
            (false, "state=STATE", "has no authorization code"),
            (
                false,
                "error=access_denied&error_description=not%20today%1b&state=STATE",
                "`access_denied` (not today)",
            ),
        ] {
            let error = verify(iss_required, query).err().unwrap();
            assert!(error.contains(expected) && !error.contains("EVIL"), "{query}: {error}");
        }
    }
}
