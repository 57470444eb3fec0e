//! Registration endpoint (RFC 7591).

use serde_json::json;

use super::authorize::NASTY;
use super::clients::{Fault, texts};
use super::http::{Reply, html, json as json_reply, nothing_here};
use super::misbehavior::Switch;
use super::observed::SeenRequest;
use super::shared::{Client, Issuer, Proof, Shared};
use crate::server::unguessable;

pub(super) fn answer(shared: &Shared, issuer: Issuer, request: &SeenRequest) -> Reply {
    let mut state = shared.lock();
    if state.behaviour.has(Switch::RegistrationMissing) {
        return nothing_here();
    }
    if state.behaviour.has(Switch::RegistrationRefused) {
        return Fault::new("invalid_redirect_uri", NASTY).reply();
    }
    if state.behaviour.has(Switch::RegistrationHtml) {
        return html(403);
    }
    let mut client = request.json();
    let redirect_uris = texts(&client["redirect_uris"]);
    let is_web = client["application_type"].as_str().unwrap_or("web") == "web";
    let is_plain = |url: &String| url.starts_with("http://");
    if redirect_uris.is_empty() || is_web && redirect_uris.iter().any(is_plain) {
        let text = "redirect_uris are required, with https for the application_type web";
        return Fault::new("invalid_redirect_uri", text).reply();
    }
    let method = client["token_endpoint_auth_method"].as_str().unwrap_or("client_secret_basic").to_owned();
    let proof = match &*method {
        "none" => Proof::None,
        "client_secret_basic" => Proof::Basic(state.secret()),
        "client_secret_post" => Proof::Post(state.secret()),
        "private_key_jwt" => Proof::Signed(client["jwks"]["keys"][0].clone()),
        _ => return Fault::new("invalid_client_metadata", "unknown token_endpoint_auth_method").reply(),
    };
    let id = unguessable();
    client["client_id"] = json!(id);
    client["client_id_issued_at"] = json!(state.now().as_secs());
    client["token_endpoint_auth_method"] = json!(method);
    if let Proof::Basic(secret) | Proof::Post(secret) = &proof {
        client["client_secret"] = json!(secret);
        client["client_secret_expires_at"] = json!(0);
    }
    if state.behaviour.has(Switch::RegistrationOtherRedirect) {
        client["redirect_uris"] = json!(["https://stranger.example/callback"]);
    }
    if state.behaviour.has(Switch::RegistrationWithoutClientId) {
        client.as_object_mut().map(|client| client.remove("client_id"));
    }
    state.clients.insert((issuer, id), Client { proof, redirect_uris });
    state.seen.registrations += 1;
    json_reply(201, &client)
}
