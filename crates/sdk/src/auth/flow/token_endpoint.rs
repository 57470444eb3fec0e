//! Token requests and responses (RFC 6749 section 5, RFC 8693, RFC 7523).

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::http::{FlowRequest, FlowResponse, Purpose};
use super::oauth_error::{is_html, oauth_error};
use super::pkce::CodeVerifier;
use crate::auth::error::{AuthError, AuthErrorKind, error_position, sanitize};
use crate::auth::scopes::Scopes;
use crate::auth::secret::Secret;

/// Maximum length of a token of the token endpoint, in bytes: it has to fit into a header.
const MAX_TOKEN_LEN: usize = 12 << 10;
/// Maximum lifetime of an access token, in seconds; longer ones are capped.
const MAX_TOKEN_LIFETIME: u64 = 10 * 365 * 86_400;

const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";
const ID_TOKEN: &str = "urn:ietf:params:oauth:token-type:id_token";

/// What a token request presents to get tokens: code, refresh token, client credentials or assertion.
pub(in crate::auth) enum TokenGrant {
    /// Authorization code of a user's sign-in.
    Code { code: Secret, verifier: CodeVerifier, redirect_uri: String },
    /// A refresh token.
    Refresh(Secret),
    /// Client credentials.
    Credentials,
    /// JWT assertion by a party that the authorization server trusts.
    Assertion(Secret),
}

impl TokenGrant {
    /// Builds the token request without client authentication.
    pub(in crate::auth) fn request(&self, endpoint: &str, resource: &str, scopes: &Scopes) -> FlowRequest {
        let mut request = FlowRequest::form(Purpose::Token, endpoint);
        match self {
            TokenGrant::Code { code, verifier, redirect_uri } => {
                request.field("grant_type", "authorization_code");
                request.secret_field("code", code.expose());
                request.secret_field("code_verifier", verifier.expose());
                request.field("redirect_uri", redirect_uri);
            }
            TokenGrant::Refresh(token) => {
                request.field("grant_type", "refresh_token");
                request.secret_field("refresh_token", token.expose());
            }
            TokenGrant::Credentials => request.field("grant_type", "client_credentials"),
            TokenGrant::Assertion(assertion) => {
                request.field("grant_type", JWT_BEARER);
                request.secret_field("assertion", assertion.expose());
            }
        }
        // The scopes of a code are fixed, and a refresh without scopes retains the granted ones.
        if matches!(self, TokenGrant::Credentials | TokenGrant::Assertion(_)) && !scopes.is_empty() {
            request.field("scope", &scopes.to_string());
        }
        request.field("resource", resource);
        request
    }
}

/// Builds a token exchange request for an assertion that the authorization server `audience` trusts.
pub(in crate::auth) fn token_exchange(
    endpoint: &str,
    id_token: &Secret,
    audience: &str,
    resource: &str,
    scopes: &Scopes,
) -> FlowRequest {
    let mut request = FlowRequest::form(Purpose::Assertion, endpoint).configured();
    request.field("grant_type", TOKEN_EXCHANGE);
    request.field("requested_token_type", ID_JAG);
    request.secret_field("subject_token", id_token.expose());
    request.field("subject_token_type", ID_TOKEN);
    request.field("audience", audience);
    request.field("resource", resource);
    if !scopes.is_empty() {
        request.field("scope", &scopes.to_string());
    }
    request
}

/// Parsed response of the token endpoint.
pub(in crate::auth) struct TokenResponse {
    pub(in crate::auth) access: Secret,
    /// Whether the access token is bound to the client's key.
    pub(in crate::auth) dpop: bool,
    pub(in crate::auth) refresh: Option<Secret>,
    /// Lifetime of the access token in seconds.
    pub(in crate::auth) expires_in: Option<u64>,
    /// Scopes that were granted, if they differ from the requested ones.
    pub(in crate::auth) scopes: Option<Scopes>,
}

#[derive(Deserialize)]
struct TokenResponseBody {
    access_token: Option<String>,
    token_type: Option<String>,
    issued_token_type: Option<String>,
    refresh_token: Option<String>,
    expires_in: Option<Value>,
    scope: Option<Value>,
    error: Option<String>,
}

/// Parses the response of the token endpoint of `issuer`.
pub(in crate::auth) fn parse_token_response(
    reply: &FlowResponse,
    issuer: &str,
) -> Result<TokenResponse, AuthError> {
    let failed = |problem: &str| no_token_error(issuer, problem);
    let answer = parse_body(reply, issuer)?;
    let access = answer.access_token.ok_or_else(|| failed("its response has no `access_token`"))?;
    check_token("token", &access).map_err(|problem| failed(&problem))?;
    let kind = answer.token_type.ok_or_else(|| failed("its response has no `token_type`"))?;
    let dpop = kind.eq_ignore_ascii_case("dpop");
    if !dpop && !kind.eq_ignore_ascii_case("bearer") {
        return Err(failed(&format!("its token has the unsupported type `{}`", sanitize(&kind))));
    }
    let refresh = answer.refresh_token.filter(|token| !token.is_empty() && token.len() <= MAX_TOKEN_LEN);
    Ok(TokenResponse {
        access: access.into(),
        dpop,
        refresh: refresh.map(Secret::from),
        expires_in: answer.expires_in.as_ref().and_then(parse_lifetime),
        scopes: answer.scope.as_ref().and_then(parse_scopes),
    })
}

/// Parses the response of an identity provider and returns its assertion.
pub(in crate::auth) fn parse_assertion_response(
    reply: &FlowResponse,
    provider: &str,
) -> Result<Secret, AuthError> {
    let answer = parse_body(reply, provider)?;
    let failed = |problem: &str| no_token_error(provider, problem);
    if answer.issued_token_type.as_deref() != Some(ID_JAG) {
        return Err(failed("its response is not an identity assertion (`issued_token_type`)"));
    }
    let assertion = answer.access_token.ok_or_else(|| failed("its response has no `access_token`"))?;
    check_token("assertion", &assertion).map_err(|problem| failed(&problem))?;
    Ok(assertion.into())
}

fn parse_body(reply: &FlowResponse, issuer: &str) -> Result<TokenResponseBody, AuthError> {
    let refused = || {
        let (code, problem) = oauth_error(reply);
        let error = no_token_error(issuer, &problem).with_code(code);
        if error.is_client_error() {
            let text =
                format!("{error}: the client id or secret was rejected; set the values registered there");
            return AuthError::new(error.kind(), text).with_code(error.code().map(str::to_owned));
        }
        error
    };
    if !reply.is_success() {
        return Err(refused());
    }
    let answer: TokenResponseBody = serde_json::from_slice(&reply.body).map_err(|error| {
        let problem = if is_html(reply) {
            "it responded with an HTML page instead of a token".to_owned()
        } else {
            format!("its response does not conform to RFC 6749 ({})", error_position(&error))
        };
        no_token_error(issuer, &problem)
    })?;
    // Some servers send errors with a success status.
    if answer.access_token.is_none() && answer.error.is_some() { Err(refused()) } else { Ok(answer) }
}

fn no_token_error(issuer: &str, problem: &str) -> AuthError {
    AuthError::new(AuthErrorKind::Token, format!("`{}` issued no token: {problem}", sanitize(issuer)))
}

/// Checks that a token fits into a header: visible ASCII characters, limited length.
fn check_token(noun: &str, token: &str) -> Result<(), String> {
    match token {
        "" => Err(format!("its {noun} is empty")),
        token if token.len() > MAX_TOKEN_LEN => {
            Err(format!("its {noun} is longer than 12 KiB, which is too long for a header"))
        }
        token if !token.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Err(format!("its {noun} has characters that are not allowed in a header"))
        }
        _ => Ok(()),
    }
}

/// Parses scopes: a string, or a list as some servers send it.
fn parse_scopes(value: &Value) -> Option<Scopes> {
    match value {
        Value::String(text) => Some(Scopes::parse(text)),
        Value::Array(list) => Some(list.iter().filter_map(Value::as_str).collect()),
        _ => None,
    }
}

/// Parses a lifetime: a number, or a string as some servers send it. Invalid values are ignored.
fn parse_lifetime(value: &Value) -> Option<u64> {
    let seconds = match value {
        Value::Number(number) => {
            let fraction = || number.as_f64().filter(|seconds| *seconds >= 0.0);
            let whole =
                |seconds| Duration::try_from_secs_f64(seconds).map_or(u64::MAX, |life| life.as_secs());
            number.as_u64().or_else(|| fraction().map(whole))
        }
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    seconds.map(|seconds| seconds.min(MAX_TOKEN_LIFETIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(status: u16, body: &str) -> FlowResponse {
        FlowResponse { status, body: body.as_bytes().to_vec(), nonce: None }
    }

    #[test]
    fn what_can_be_used() {
        let tokens = parse_token_response(
            &reply(
                200,
                r#"{"access_token":"a","token_type":"bearer","expires_in":"60","refresh_token":"","scope":"x y"}"#,
            ),
            "https://a.example",
        );
        let tokens = tokens.unwrap();
        assert_eq!((tokens.access.expose(), tokens.expires_in, tokens.dpop), ("a", Some(60), false));
        assert!(tokens.refresh.is_none() && tokens.scopes.unwrap().contains("y"));
        for (text, life) in [
            ("-5", None),
            ("1e300", Some(MAX_TOKEN_LIFETIME)),
            ("60.5", Some(60)),
            ("null", None),
            ("[]", None),
        ] {
            let text = format!(r#"{{"access_token":"a","token_type":"DPoP","expires_in":{text}}}"#);
            assert_eq!(parse_token_response(&reply(200, &text), "x").unwrap().expires_in, life, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_used_is_said() {
        let long = format!(r#"{{"access_token":"{}","token_type":"Bearer"}}"#, "x".repeat(MAX_TOKEN_LEN + 1));
        for (status, body, expected) in [
            (200, "", "does not conform to RFC 6749"),
            (200, "<html>", "an HTML page instead of a token"),
            (200, "{}", "no `access_token`"),
            (200, r#"{"access_token":"a"}"#, "no `token_type`"),
            (200, r#"{"access_token":"a","token_type":"mac"}"#, "unsupported type `mac`"),
            (200, r#"{"access_token":"","token_type":"Bearer"}"#, "is empty"),
            (200, r#"{"access_token":"a\r\nX: y","token_type":"Bearer"}"#, "not allowed in a header"),
            (
                200,
                r#"{"access_token":"a","access_token":"b","token_type":"Bearer"}"#,
                "does not conform to RFC 6749",
            ),
            (200, &long, "too long"),
            (200, r#"{"error":"bad_refresh_token","error_description":"x"}"#, "`bad_refresh_token` (x)"),
            (401, r#"{"error":"invalid_client"}"#, "`invalid_client`: the client id or secret was rejected"),
            (307, "", "HTTP 307, a redirect"),
            (500, "<html>", "HTTP 500 and an HTML page"),
            (
                400,
                r#"{"error":"invalid_grant","error_description":"no\u001b[31m"}"#,
                "`invalid_grant` (no[31m)",
            ),
        ] {
            let error =
                parse_token_response(&reply(status, body), "https://a.example").err().unwrap().to_string();
            assert!(
                error.starts_with("`https://a.example` issued no token: ") && error.contains(expected),
                "{error}"
            );
        }
    }
}
