//! The token endpoint (RFC 6749 5, RFC 8693, RFC 7523): what it is asked for and what it says.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::error::{AuthError, AuthErrorKind, place, quoted};
use super::exchange::{Exchange, Purpose, Reply};
use super::pkce::Verifier;
use super::refusal::{is_page, oauth_error};
use super::scopes::Scopes;
use super::secret::Secret;

/// The longest token that is taken: it has to fit into a header.
const LONGEST: usize = 12 << 10;
/// No token is believed to live longer, in seconds.
const LONGEST_LIFE: u64 = 10 * 365 * 86_400;

const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";
const ID_TOKEN: &str = "urn:ietf:params:oauth:token-type:id_token";

/// What stands behind the wish for a token.
pub(super) enum Claim {
    /// A person has signed in.
    Code { code: Secret, verifier: Verifier, redirect_uri: String },
    /// An earlier token ran out.
    Refresh(Secret),
    /// The client speaks for itself.
    Credentials,
    /// Somebody whom the authorization server trusts says who asks.
    Assertion(Secret),
}

impl Claim {
    /// The form, but for who sends it.
    pub(super) fn request(&self, endpoint: &str, resource: &str, scopes: &Scopes) -> Exchange {
        let mut request = Exchange::form(Purpose::Token, endpoint);
        match self {
            Claim::Code { code, verifier, redirect_uri } => {
                request.field("grant_type", "authorization_code");
                request.secret("code", code.expose());
                request.secret("code_verifier", verifier.expose());
                request.field("redirect_uri", redirect_uri);
            }
            Claim::Refresh(token) => {
                request.field("grant_type", "refresh_token");
                request.secret("refresh_token", token.expose());
            }
            Claim::Credentials => request.field("grant_type", "client_credentials"),
            Claim::Assertion(assertion) => {
                request.field("grant_type", JWT_BEARER);
                request.secret("assertion", assertion.expose());
            }
        }
        // A code has its scopes already; a refresh without them keeps what there was.
        if matches!(self, Claim::Credentials | Claim::Assertion(_)) && !scopes.is_empty() {
            request.field("scope", &scopes.to_string());
        }
        request.field("resource", resource);
        request
    }
}

/// Asks an identity provider for an assertion that the authorization server `audience` trusts.
pub(super) fn token_exchange(
    endpoint: &str,
    id_token: &Secret,
    audience: &str,
    resource: &str,
    scopes: &Scopes,
) -> Exchange {
    let mut request = Exchange::form(Purpose::Assertion, endpoint).typed();
    request.field("grant_type", TOKEN_EXCHANGE);
    request.field("requested_token_type", ID_JAG);
    request.secret("subject_token", id_token.expose());
    request.field("subject_token_type", ID_TOKEN);
    request.field("audience", audience);
    request.field("resource", resource);
    if !scopes.is_empty() {
        request.field("scope", &scopes.to_string());
    }
    request
}

/// What was given.
pub(super) struct Tokens {
    pub(super) access: Secret,
    /// Whether it is bound to our key.
    pub(super) dpop: bool,
    pub(super) refresh: Option<Secret>,
    /// In seconds from now.
    pub(super) expires_in: Option<u64>,
    /// What it is good for, if that is not what was asked.
    pub(super) scopes: Option<Scopes>,
}

#[derive(Deserialize)]
struct Answer {
    access_token: Option<String>,
    token_type: Option<String>,
    issued_token_type: Option<String>,
    refresh_token: Option<String>,
    expires_in: Option<Value>,
    scope: Option<Value>,
    error: Option<String>,
}

/// Reads what the token endpoint of `issuer` says.
pub(super) fn read(reply: &Reply, issuer: &str) -> Result<Tokens, AuthError> {
    let failed = |what: &str| failure(issuer, what);
    let answer = answer(reply, issuer)?;
    let access = answer.access_token.ok_or_else(|| failed("its answer has no `access_token`"))?;
    check_token(&access).map_err(|what| failed(&format!("its token {what}")))?;
    let kind = answer.token_type.ok_or_else(|| failed("its answer has no `token_type`"))?;
    let dpop = kind.eq_ignore_ascii_case("dpop");
    if !dpop && !kind.eq_ignore_ascii_case("bearer") {
        return Err(failed(&format!(
            "its token is of the type `{}`, which is not known here",
            quoted(&kind)
        )));
    }
    let refresh = answer.refresh_token.filter(|token| !token.is_empty() && token.len() <= LONGEST);
    Ok(Tokens {
        access: access.into(),
        dpop,
        refresh: refresh.map(Secret::from),
        expires_in: answer.expires_in.as_ref().and_then(seconds),
        scopes: answer.scope.as_ref().and_then(scopes),
    })
}

/// Reads the assertion that an identity provider gives.
pub(super) fn read_assertion(reply: &Reply, provider: &str) -> Result<Secret, AuthError> {
    let answer = answer(reply, provider)?;
    let failed = |what: &str| failure(provider, what);
    if answer.issued_token_type.as_deref() != Some(ID_JAG) {
        return Err(failed("what it gave is no identity assertion (`issued_token_type`)"));
    }
    let assertion = answer.access_token.ok_or_else(|| failed("its answer has no `access_token`"))?;
    check_token(&assertion).map_err(|what| failed(&format!("its assertion {what}")))?;
    Ok(assertion.into())
}

fn answer(reply: &Reply, issuer: &str) -> Result<Answer, AuthError> {
    let refused = || {
        let (code, what) = oauth_error(reply);
        let error = failure(issuer, &what).with_code(code);
        if error.is_of_client() {
            let text = format!(
                "{error}: the client's id or secret is not taken; set those that are registered there"
            );
            return AuthError::new(error.kind(), text).with_code(error.code().map(str::to_owned));
        }
        error
    };
    if !reply.is_success() {
        return Err(refused());
    }
    let answer: Answer = serde_json::from_slice(&reply.body).map_err(|error| {
        let what = if is_page(reply) {
            "it answered with a page for people in place of a token".to_owned()
        } else {
            format!("its answer is not what RFC 6749 says ({})", place(&error))
        };
        failure(issuer, &what)
    })?;
    // Some refuse with a status that says the opposite.
    if answer.access_token.is_none() && answer.error.is_some() { Err(refused()) } else { Ok(answer) }
}

fn failure(issuer: &str, what: &str) -> AuthError {
    AuthError::new(AuthErrorKind::Token, format!("`{}` gave no token: {what}", quoted(issuer)))
}

/// A header takes visible characters only, and so many.
fn check_token(token: &str) -> Result<(), &'static str> {
    match token {
        "" => Err("is empty"),
        token if token.len() > LONGEST => Err("is too long for a header"),
        token if !token.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Err("has characters that no header can have")
        }
        _ => Ok(()),
    }
}

/// Scopes as a text, or as some servers write them, as a list.
fn scopes(value: &Value) -> Option<Scopes> {
    match value {
        Value::String(text) => Some(Scopes::read(text)),
        Value::Array(list) => Some(list.iter().filter_map(Value::as_str).collect()),
        _ => None,
    }
}

/// A lifetime as a number, or as some servers write it, as text. What makes no sense counts as not said.
fn seconds(value: &Value) -> Option<u64> {
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
    seconds.map(|seconds| seconds.min(LONGEST_LIFE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(status: u16, body: &str) -> Reply {
        Reply { status, body: body.as_bytes().to_vec(), nonce: None }
    }

    #[test]
    fn what_can_be_used() {
        let tokens = read(
            &reply(
                200,
                r#"{"access_token":"a","token_type":"bearer","expires_in":"60","refresh_token":"","scope":"x y"}"#,
            ),
            "https://a.example",
        );
        let tokens = tokens.unwrap();
        assert_eq!((tokens.access.expose(), tokens.expires_in, tokens.dpop), ("a", Some(60), false));
        assert!(tokens.refresh.is_none() && tokens.scopes.unwrap().contains("y"));
        for (text, life) in
            [("-5", None), ("1e300", Some(LONGEST_LIFE)), ("60.5", Some(60)), ("null", None), ("[]", None)]
        {
            let text = format!(r#"{{"access_token":"a","token_type":"DPoP","expires_in":{text}}}"#);
            assert_eq!(read(&reply(200, &text), "x").unwrap().expires_in, life, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_used_is_said() {
        let long = format!(r#"{{"access_token":"{}","token_type":"Bearer"}}"#, "x".repeat(LONGEST + 1));
        for (status, body, says) in [
            (200, "", "not what RFC 6749 says"),
            (200, "<html>", "a page for people in place of a token"),
            (200, "{}", "no `access_token`"),
            (200, r#"{"access_token":"a"}"#, "no `token_type`"),
            (200, r#"{"access_token":"a","token_type":"mac"}"#, "of the type `mac`"),
            (200, r#"{"access_token":"","token_type":"Bearer"}"#, "is empty"),
            (200, r#"{"access_token":"a\r\nX: y","token_type":"Bearer"}"#, "no header can have"),
            (
                200,
                r#"{"access_token":"a","access_token":"b","token_type":"Bearer"}"#,
                "not what RFC 6749 says",
            ),
            (200, &long, "too long"),
            (200, r#"{"error":"bad_refresh_token","error_description":"x"}"#, "`bad_refresh_token` (x)"),
            (
                401,
                r#"{"error":"invalid_client"}"#,
                "`invalid_client`: the client's id or secret is not taken",
            ),
            (307, "", "HTTP 307, a redirect"),
            (500, "<html>", "HTTP 500 with a page for people"),
            (
                400,
                r#"{"error":"invalid_grant","error_description":"no\u001b[31m"}"#,
                "`invalid_grant` (no[31m)",
            ),
        ] {
            let error = read(&reply(status, body), "https://a.example").err().unwrap().to_string();
            assert!(
                error.starts_with("`https://a.example` gave no token: ") && error.contains(says),
                "{error}"
            );
        }
    }
}
