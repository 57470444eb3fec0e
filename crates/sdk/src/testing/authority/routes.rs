//! Routing of requests to endpoints.

use http::Method;
use http::request::Parts;
use serde_json::json;

use super::http::{Reply, html, json as json_reply, nothing_here};
use super::misbehavior::Switch::{NoMetadata, NoResourceMetadata};
use super::observed::{Place, SeenRequest};
use super::shared::{Issuer, Shared};
use super::{authorize, idp, metadata, protected_resource, register, revoke, token};

const RESOURCE_METADATA: &str = "/.well-known/oauth-protected-resource";
/// Represents all metadata paths.
const METADATA: &str = "metadata";

/// Handles a request; `None` if there must be no response.
pub(super) async fn answer(shared: &Shared, request: &SeenRequest, parts: Parts) -> Option<Reply> {
    let (place, path) = (request.place, &*request.path);
    if place == Place::Resource && path == "/mcp" {
        return Some(protected_resource::answer(shared, request, parts).await);
    }
    if place == Place::Resource && path.starts_with(RESOURCE_METADATA) {
        return metadata::resource(shared, path);
    }
    if path.contains("/broken") {
        return Some(html(500));
    }
    if path.ends_with("/idp") || path.starts_with("/idp/") {
        let is_token = request.method == Method::POST && path == "/idp/token";
        return Some(if is_token { idp::exchange(shared, request) } else { metadata::idp(shared) });
    }
    let (issuer, endpoint) = find(shared, place, path);
    match (&request.method, endpoint) {
        (&Method::GET, METADATA) => metadata::authority(shared, issuer, path),
        (&Method::GET, "/authorize") => Some(authorize::answer(shared, issuer, request)),
        (&Method::GET, "/jwks") => Some(json_reply(200, &json!({ "keys": [shared.key.jwk()] }))),
        (&Method::POST, "/token") => token::answer(shared, issuer, request),
        (&Method::POST, "/register") => Some(register::answer(shared, issuer, request)),
        (&Method::POST, "/revoke") => Some(revoke::answer(shared, issuer, request)),
        _ => Some(nothing_here()),
    }
}

/// Returns the issuer and its endpoint for a path.
fn find<'a>(shared: &Shared, place: Place, path: &'a str) -> (Issuer, &'a str) {
    let is_own_authority = shared.lock().behaviour.has_any([NoResourceMetadata, NoMetadata]);
    let is_here = |issuer: &Issuer| match issuer {
        Issuer::Resource => is_own_authority && place == Place::Resource,
        _ => !is_own_authority && place == Place::Authority,
    };
    let of = |issuer: Issuer| {
        let prefix = issuer.path();
        let names = ["oauth-authorization-server", "openid-configuration"];
        let inserted = names.map(|name| format!("/.well-known/{name}{prefix}"));
        let appended = format!("{prefix}/.well-known/openid-configuration");
        if inserted.iter().any(|own| own == path) || appended == path {
            return Some((issuer, METADATA));
        }
        Some((issuer, path.strip_prefix(prefix)?))
    };
    Issuer::ALL.into_iter().filter(is_here).find_map(of).unwrap_or((Issuer::Tenant, ""))
}
