//! Client registration endpoint (RFC 7591) of the test authority.

use serde_json::json;

use super::authorize::TERMINAL_ESCAPES;
use crate::server::random_id;
use crate::testing::authority::clients::{OAuthFault, strings};
use crate::testing::authority::http::{AuthorityReply, html, json as json_reply, not_found};
use crate::testing::authority::misbehaviour::Misbehaviour;
use crate::testing::authority::observed::RecordedRequest;
use crate::testing::authority::shared::{AuthorityShared, RegisteredClient, RequiredClientAuth, TestIssuer};

pub(in crate::testing::authority) fn register(
    shared: &AuthorityShared,
    issuer: TestIssuer,
    request: &RecordedRequest,
) -> AuthorityReply {
    let mut state = shared.lock();
    if state.behaviour.is_enabled(Misbehaviour::RegistrationMissing) {
        return not_found();
    }
    if state.behaviour.is_enabled(Misbehaviour::RegistrationRefused) {
        return OAuthFault::new("invalid_redirect_uri", TERMINAL_ESCAPES).reply();
    }
    if state.behaviour.is_enabled(Misbehaviour::RegistrationHtml) {
        return html(403);
    }
    let mut client = request.json();
    let redirect_uris = strings(&client["redirect_uris"]);
    let is_web = client["application_type"].as_str().unwrap_or("web") == "web";
    let is_plain = |url: &String| url.starts_with("http://");
    if redirect_uris.is_empty() || is_web && redirect_uris.iter().any(is_plain) {
        let text = "redirect_uris are required, with https for the application_type web";
        return OAuthFault::new("invalid_redirect_uri", text).reply();
    }
    let method = client["token_endpoint_auth_method"].as_str().unwrap_or("client_secret_basic").to_owned();
    let proof = match &*method {
        "none" => RequiredClientAuth::None,
        "client_secret_basic" => RequiredClientAuth::Basic(state.new_secret()),
        "client_secret_post" => RequiredClientAuth::Post(state.new_secret()),
        "private_key_jwt" => RequiredClientAuth::Signed(client["jwks"]["keys"][0].clone()),
        _ => return OAuthFault::new("invalid_client_metadata", "unknown token_endpoint_auth_method").reply(),
    };
    let id = random_id();
    client["client_id"] = json!(id);
    client["client_id_issued_at"] = json!(state.now().as_secs());
    client["token_endpoint_auth_method"] = json!(method);
    if let RequiredClientAuth::Basic(secret) | RequiredClientAuth::Post(secret) = &proof {
        client["client_secret"] = json!(secret);
        client["client_secret_expires_at"] = json!(0);
    }
    if state.behaviour.is_enabled(Misbehaviour::RegistrationOtherRedirect) {
        client["redirect_uris"] = json!(["https://stranger.example/callback"]);
    }
    if state.behaviour.is_enabled(Misbehaviour::RegistrationWithoutClientId) {
        client.as_object_mut().map(|client| client.remove("client_id"));
    }
    state.clients.insert((issuer, id), RegisteredClient { proof, redirect_uris });
    state.observed.registrations += 1;
    json_reply(201, &client)
}
