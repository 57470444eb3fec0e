//! Routing of the test authority's requests to its endpoints.

pub(super) mod authorize;
mod idp;
pub(super) mod metadata;
pub(super) mod protected_resource;
mod register;
mod revoke;
pub(super) mod token;
mod token_response;

use http::Method;
use http::request::Parts;
use serde_json::json;

use super::http::{AuthorityReply, html, json as json_reply, not_found};
use super::misbehaviour::Misbehaviour::{NoMetadata, NoResourceMetadata};
use super::observed::{AuthorityHost, RecordedRequest};
use super::shared::{AuthorityShared, TestIssuer};

const RESOURCE_METADATA: &str = "/.well-known/oauth-protected-resource";
/// Route name that stands for every path of the authorization server metadata.
const METADATA_ENDPOINT: &str = "metadata";

/// Handles an HTTP request to the test authority; `None` if there must be no response.
pub(super) async fn route(
    shared: &AuthorityShared,
    request: &RecordedRequest,
    parts: Parts,
) -> Option<AuthorityReply> {
    let (host, path) = (request.host, &*request.path);
    if host == AuthorityHost::Resource && path == "/mcp" {
        return Some(protected_resource::handle(shared, request, parts).await);
    }
    if host == AuthorityHost::Resource && path.starts_with(RESOURCE_METADATA) {
        return metadata::resource(shared, path);
    }
    if path.contains("/broken") {
        return Some(html(500));
    }
    if path.ends_with("/idp") || path.starts_with("/idp/") {
        let is_token = request.method == Method::POST && path == "/idp/token";
        return Some(if is_token { idp::exchange(shared, request) } else { metadata::idp(shared) });
    }
    let (issuer, endpoint) = find_endpoint(shared, host, path);
    match (&request.method, endpoint) {
        (&Method::GET, METADATA_ENDPOINT) => metadata::authority(shared, issuer, path),
        (&Method::GET, "/authorize") => Some(authorize::authorize(shared, issuer, request)),
        (&Method::GET, "/jwks") => Some(json_reply(200, &json!({ "keys": [shared.key.jwk()] }))),
        (&Method::POST, "/token") => token::handle_token_request(shared, issuer, request),
        (&Method::POST, "/register") => Some(register::register(shared, issuer, request)),
        (&Method::POST, "/revoke") => Some(revoke::revoke(shared, issuer, request)),
        _ => Some(not_found()),
    }
}

/// Returns which simulated issuer serves a path, and the endpoint name within it.
fn find_endpoint<'a>(shared: &AuthorityShared, host: AuthorityHost, path: &'a str) -> (TestIssuer, &'a str) {
    let is_own_authority = shared.lock().behaviour.is_any_enabled([NoResourceMetadata, NoMetadata]);
    let is_on_host = |issuer: &TestIssuer| match issuer {
        TestIssuer::Resource => is_own_authority && host == AuthorityHost::Resource,
        _ => !is_own_authority && host == AuthorityHost::Authority,
    };
    let endpoint_of = |issuer: TestIssuer| {
        let prefix = issuer.path();
        let names = ["oauth-authorization-server", "openid-configuration"];
        let inserted = names.map(|name| format!("/.well-known/{name}{prefix}"));
        let appended = format!("{prefix}/.well-known/openid-configuration");
        if inserted.iter().any(|inserted_path| inserted_path == path) || appended == path {
            return Some((issuer, METADATA_ENDPOINT));
        }
        Some((issuer, path.strip_prefix(prefix)?))
    };
    TestIssuer::ALL.into_iter().filter(is_on_host).find_map(endpoint_of).unwrap_or((TestIssuer::Tenant, ""))
}
