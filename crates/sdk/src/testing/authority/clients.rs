//! Registered clients of the test authority, and their authentication.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::form::{self, Pairs};
use super::http::{self, AuthorityReply};
use super::jwt::ParsedToken;
use super::misbehaviour::Misbehaviour::{NoClientDocuments, RegistrationMissing};
use super::observed::RecordedRequest;
use super::shared::{AuthorityShared, AuthorityState, RegisteredClient, RequiredClientAuth, TestIssuer};

const JWT_BEARER_ASSERTION: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// OAuth error response of the test authority.
#[derive(Debug)]
pub(super) struct OAuthFault {
    pub(super) status: u16,
    pub(super) error: &'static str,
    pub(super) description: String,
}

impl OAuthFault {
    pub(super) fn new(error: &'static str, description: impl Into<String>) -> Self {
        let status = if error == "invalid_client" { 401 } else { 400 };
        OAuthFault { status, error, description: description.into() }
    }

    pub(super) fn reply(&self) -> AuthorityReply {
        let body = json!({ "error": self.error, "error_description": self.description });
        http::json(self.status, &body)
    }
}

/// Finds an OAuth client: preregistered, dynamically registered, or with a metadata document at its URL.
pub(super) fn find(state: &AuthorityState, issuer: TestIssuer, id: &str) -> Option<RegisteredClient> {
    if let Some(client) = state.clients.get(&(issuer, id.to_owned())) {
        return Some(client.clone());
    }
    let document = state.behaviour.documents.get(id)?;
    if state.behaviour.is_any_enabled([NoClientDocuments, RegistrationMissing])
        || !id.starts_with("https://")
        || document["client_id"] != id
    {
        return None;
    }
    let signs = document["token_endpoint_auth_method"] == "private_key_jwt";
    let proof = if signs {
        RequiredClientAuth::Signed(document["jwks"]["keys"][0].clone())
    } else {
        RequiredClientAuth::None
    };
    Some(RegisteredClient { proof, redirect_uris: strings(&document["redirect_uris"]) })
}

/// Returns the strings in a JSON array.
pub(super) fn strings(list: &Value) -> Vec<String> {
    let texts = list.as_array().into_iter().flatten().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

/// Returns whether a redirect URI is allowed: exactly as registered, except for the port of loopback URIs.
pub(super) fn may_redirect(client: &RegisteredClient, url: &str) -> bool {
    let loopback_origins = ["http://127.0.0.1", "http://[::1]", "http://localhost"];
    let path = |url: &str| {
        let rest = loopback_origins.iter().find_map(|host| url.strip_prefix(host))?;
        let digits =
            rest.strip_prefix(':').unwrap_or(rest).trim_start_matches(|char: char| char.is_ascii_digit());
        digits.starts_with('/').then(|| digits.to_owned())
    };
    if client.redirect_uris.is_empty() {
        return path(url).is_some();
    }
    let is_same = |registered_uri: &String| {
        registered_uri == url || path(registered_uri).is_some() && path(registered_uri) == path(url)
    };
    client.redirect_uris.iter().any(is_same)
}

/// Authenticates the client of a request, with its registered method only.
pub(super) fn authenticate(
    shared: &AuthorityShared,
    state: &mut AuthorityState,
    issuer: TestIssuer,
    request: &RecordedRequest,
) -> Result<(String, RegisteredClient), OAuthFault> {
    let invalid_client = |text: &str| OAuthFault::new("invalid_client", text);
    let form = request.form();
    let basic = basic(request);
    let id = basic.as_ref().map(|(id, _)| &**id).or(form::find(&form, "client_id"));
    let assertion = form::find(&form, "client_assertion");
    let signer = assertion.and_then(ParsedToken::parse).map(|token| token.claim("sub").to_owned());
    let id = id.or(signer.as_deref()).ok_or_else(|| invalid_client("the client id is missing"))?;
    let client = find(state, issuer, id).ok_or_else(|| invalid_client("unknown client"))?;
    let methods = usize::from(basic.is_some())
        + usize::from(form::find(&form, "client_secret").is_some())
        + usize::from(assertion.is_some());
    if methods > 1 {
        return Err(OAuthFault::new(
            "invalid_request",
            "a client must use exactly one authentication method",
        ));
    }
    let is_authenticated = match &client.proof {
        RequiredClientAuth::None => methods == 0,
        RequiredClientAuth::Basic(secret) => basic.as_ref().is_some_and(|(_, presented)| presented == secret),
        RequiredClientAuth::Post(secret) => form::find(&form, "client_secret") == Some(secret),
        RequiredClientAuth::Signed(jwk) => verify_assertion(shared, state, issuer, &form, (id, jwk)),
    };
    if is_authenticated {
        Ok((id.to_owned(), client))
    } else {
        Err(invalid_client("client authentication failed"))
    }
}

/// Returns user and password of the `Authorization: Basic` header. Both are form-encoded.
fn basic(request: &RecordedRequest) -> Option<(String, String)> {
    let text = request.header("authorization").strip_prefix("Basic ")?;
    let text = String::from_utf8(STANDARD.decode(text).ok()?).ok()?;
    let (id, secret) = text.split_once(':')?;
    let mut both = form::decode(&format!("{id}={secret}"));
    both.pop()
}

fn verify_assertion(
    shared: &AuthorityShared,
    state: &mut AuthorityState,
    issuer: TestIssuer,
    form: &Pairs,
    (id, jwk): (&str, &Value),
) -> bool {
    let Some(token) = form::find(form, "client_assertion").and_then(ParsedToken::parse) else { return false };
    let url = shared.issuer(issuer);
    form::find(form, "client_assertion_type") == Some(JWT_BEARER_ASSERTION)
        && token.is_signed_by(jwk)
        && token.claim("iss") == id
        && token.claim("sub") == id
        && token.has_audience(&[&url, &format!("{url}/token")])
        && token.is_unexpired(state.now().as_secs())
        && !token.claim("jti").is_empty()
        && state.used_ids.insert(token.claim("jti").to_owned())
}
