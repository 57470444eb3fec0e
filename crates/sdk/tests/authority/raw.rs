//! Client built from single requests.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, Method, Request};
use linchpin::egress::{Body, Egress, Target};
use linchpin::testing::authority::{Authority, Behaviour, KnownClient, Misbehaviour, Redirect};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

pub(crate) const BACK: &str = "http://127.0.0.1:9/callback";
pub(crate) const VERIFIER: &str = "a-verifier-that-is-as-long-as-it-has-to-be-0123456789";
/// Maximum body size that a client should read.
const MAX: usize = 1 << 20;

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    pub(crate) fn error(&self) -> (u16, String) {
        (self.status, self.json()["error"].as_str().unwrap_or_default().to_owned())
    }
}

pub(crate) async fn start(behaviour: Behaviour) -> Authority {
    Authority::start(behaviour).await.unwrap()
}

pub(crate) async fn with(switch: Misbehaviour) -> Authority {
    start(Authority::conforming().with(switch)).await
}

/// Sends a request. Fails if the response has no end or is too large.
pub(crate) async fn try_send(
    method: Method,
    url: &str,
    headers: &[(&str, &str)],
    body: String,
) -> Result<Answer, String> {
    let mut request = Request::builder().method(method);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::from(body)).unwrap();
    let response = Egress::builder().build().unwrap().send(request, &Target::configured(url).unwrap()).await;
    let (parts, body) = response.map_err(|error| error.to_string())?.into_parts();
    let body = body.read_to_end(MAX).await.map_err(|error| error.to_string())?;
    let body = String::from_utf8(body.to_vec()).unwrap();
    Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body })
}

pub(crate) async fn send(method: Method, url: &str, headers: &[(&str, &str)], body: String) -> Answer {
    try_send(method, url, headers, body).await.unwrap()
}

pub(crate) async fn get(url: &str) -> Answer {
    send(Method::GET, url, &[], String::new()).await
}

pub(crate) async fn post_form(url: &str, headers: &[(&str, &str)], form: &[(&str, &str)]) -> Answer {
    let kind = (CONTENT_TYPE.as_str(), "application/x-www-form-urlencoded");
    send(Method::POST, url, &[headers, &[kind]].concat(), encode(form)).await
}

pub(crate) fn encode(form: &[(&str, &str)]) -> String {
    let escaped = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<Vec<_>>().concat();
    let pairs = form.iter().map(|(name, value)| format!("{name}={}", escaped(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// Returns the pairs with some of them changed; an empty value removes one.
pub(crate) fn changed<'a>(
    pairs: &[(&'a str, &'a str)],
    changes: &[(&'a str, &'a str)],
) -> Vec<(&'a str, &'a str)> {
    let kept = pairs.iter().filter(|(name, _)| changes.iter().all(|(other, _)| name != other));
    kept.chain(changes.iter().filter(|(_, value)| !value.is_empty())).copied().collect()
}

pub(crate) fn challenge() -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(VERIFIER))
}

/// Returns the metadata URL of the default issuer.
pub(crate) fn metadata_url(authority: &Authority) -> String {
    authority.issuer().replacen("/tenant", "/.well-known/oauth-authorization-server/tenant", 1)
}

pub(crate) fn resource_metadata_url(authority: &Authority) -> String {
    authority.mcp_url().replacen("/mcp", "/.well-known/oauth-protected-resource/mcp", 1)
}

pub(crate) async fn metadata(authority: &Authority) -> Value {
    get(&metadata_url(authority)).await.json()
}

pub(crate) async fn resource_metadata(authority: &Authority) -> Value {
    get(&resource_metadata_url(authority)).await.json()
}

/// Returns an authorization URL of the public client, with some parameters changed.
pub(crate) fn authorization_url(authority: &Authority, changes: &[(&str, &str)]) -> String {
    let (challenge, resource) = (challenge(), authority.mcp_url());
    let parameters = [
        ("client_id", KnownClient::Public.id()),
        ("redirect_uri", BACK),
        ("response_type", "code"),
        ("code_challenge", &challenge),
        ("code_challenge_method", "S256"),
        ("state", "a-state"),
        ("resource", &resource),
        ("scope", "read"),
    ];
    format!("{}/authorize?{}", authority.issuer(), encode(&changed(&parameters, changes)))
}

pub(crate) async fn approve(authority: &Authority, changes: &[(&str, &str)]) -> Redirect {
    authority.approve(&authorization_url(authority, changes)).await.unwrap()
}

/// Sends a token request of the public client for a code, with some parameters changed.
pub(crate) async fn redeem(authority: &Authority, code: &str, changes: &[(&str, &str)]) -> Answer {
    let resource = authority.mcp_url();
    let form = [
        ("grant_type", "authorization_code"),
        ("client_id", KnownClient::Public.id()),
        ("code", code),
        ("redirect_uri", BACK),
        ("code_verifier", VERIFIER),
        ("resource", &resource),
    ];
    post_form(&format!("{}/token", authority.issuer()), &[], &changed(&form, changes)).await
}

/// Signs in, and returns the response of the token endpoint.
pub(crate) async fn sign_in(authority: &Authority, scope: &str) -> Answer {
    let redirect = approve(authority, &[("scope", scope)]).await;
    redeem(authority, redirect.parameter("code").unwrap(), &[]).await
}

pub(crate) async fn refresh(authority: &Authority, token: &str) -> Answer {
    let resource = authority.mcp_url();
    let form = [
        ("grant_type", "refresh_token"),
        ("client_id", KnownClient::Public.id()),
        ("refresh_token", token),
        ("resource", &resource),
    ];
    post_form(&format!("{}/token", authority.issuer()), &[], &form).await
}

/// Calls a tool of the protected endpoint, with a token unless it is empty.
pub(crate) async fn call(authority: &Authority, tool: &str, token: &str) -> Answer {
    let authorization = format!("Bearer {token}");
    let headers = if token.is_empty() { vec![] } else { vec![(AUTHORIZATION.as_str(), &*authorization)] };
    call_with(authority, tool, &headers).await
}

pub(crate) async fn call_with(authority: &Authority, tool: &str, headers: &[(&str, &str)]) -> Answer {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "raw", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "name": tool, "arguments": {}, "_meta": meta });
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let always = [
        (CONTENT_TYPE.as_str(), "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", tool),
    ];
    let headers = [&always[..], headers].concat();
    send(Method::POST, &authority.mcp_url(), &headers, message.to_string()).await
}

pub(crate) fn access_token(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()["access_token"].as_str().unwrap().to_owned()
}

pub(crate) fn refresh_token(answer: &Answer) -> String {
    answer.json()["refresh_token"].as_str().unwrap().to_owned()
}
