//! Metadata of the authority and of the protected resource, and its misbehaviours.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::behaviour::Behaviour;
use super::http::{Reply, endless, html, json as json_reply, nothing_here, redirect, reply};
use super::misbehavior::Switch;
use super::shared::{Issuer, SCOPES, Shared};
use super::token::GRANTS;

/// Slightly more than a client should read.
const TOO_LARGE: usize = (1 << 20) + 1;
pub(super) const STRANGER: &str = "https://stranger.example";

/// Returns the exact URL that tokens are issued for.
pub(super) fn resource_url(shared: &Shared, behaviour: &Behaviour) -> String {
    if let Some(Value::String(said)) = behaviour.resource_metadata.get("resource") {
        return said.clone();
    }
    if behaviour.has(Switch::ResourceMetadataAtRoot) { shared.resource.clone() } else { shared.mcp_url() }
}

/// Returns the URL of the protected resource metadata.
pub(super) fn resource_metadata_url(shared: &Shared, behaviour: &Behaviour) -> String {
    let path = if behaviour.has(Switch::ResourceMetadataAtRoot) { "" } else { "/mcp" };
    format!("{}/.well-known/oauth-protected-resource{path}", shared.resource)
}

/// Returns the protected resource metadata; `None` if there must be no response.
pub(super) fn resource(shared: &Shared, path: &str) -> Option<Reply> {
    let state = shared.lock();
    let behaviour = &state.behaviour;
    if behaviour.has(Switch::ResourceMetadataSilent) {
        return None;
    }
    let is_here = resource_metadata_url(shared, behaviour).ends_with(path);
    if !is_here || behaviour.has_any([Switch::NoResourceMetadata, Switch::NoMetadata]) {
        return Some(nothing_here());
    }
    if behaviour.has(Switch::ResourceMetadataHtml) {
        return Some(html(200));
    }
    if behaviour.has(Switch::ResourceMetadataEndless) {
        return Some(endless());
    }
    if behaviour.has(Switch::ResourceMetadataRedirects) {
        return Some(redirect(302, &format!("{}{path}", shared.canary)));
    }
    let has_moved = behaviour.has(Switch::IssuerMoves) && state.seen.tokens > 0;
    let mut servers = vec![shared.issuer(if has_moved { Issuer::Moved } else { Issuer::Tenant })];
    if behaviour.has(Switch::FirstServerBroken) {
        servers.insert(0, format!("{}/broken", shared.authority));
    }
    let mut document = json!({
        "resource": resource_url(shared, behaviour),
        "authorization_servers": servers,
        "scopes_supported": [SCOPES[0]],
        "bearer_methods_supported": ["header"],
        "resource_name": "A protected endpoint",
    });
    let spoiled = behaviour.switches.iter().filter_map(|&switch| resource_field(shared, switch));
    change(&mut document, spoiled.map(|(name, value)| (name.to_owned(), value)).collect());
    change(&mut document, behaviour.resource_metadata.clone());
    Some(json_reply(200, &document))
}

/// Returns the field that a misbehaviour changes in the protected resource metadata; null removes it.
fn resource_field(shared: &Shared, switch: Switch) -> Option<(&'static str, Value)> {
    Some(match switch {
        Switch::ResourceElsewhere => ("resource", json!(format!("{STRANGER}/mcp"))),
        Switch::ResourceOtherPath => ("resource", json!(format!("{}/other", shared.resource))),
        Switch::ResourcePrefix => ("resource", json!(format!("{}-evil", shared.mcp_url()))),
        Switch::ResourceMissing => ("resource", Value::Null),
        Switch::NoAuthorizationServers => ("authorization_servers", Value::Null),
        _ => return None,
    })
}

/// Returns the authorization server metadata; `None` if there must be no response.
pub(super) fn authority(shared: &Shared, issuer: Issuer, path: &str) -> Option<Reply> {
    let state = shared.lock();
    let behaviour = &state.behaviour;
    let is_old_place = path.ends_with("/.well-known/openid-configuration");
    if behaviour.has(Switch::NoMetadata) || behaviour.has(Switch::MetadataOpenIdOnly) && !is_old_place {
        return Some(nothing_here());
    }
    if behaviour.has(Switch::MetadataSilent) {
        return None;
    }
    let mut document = document(shared, issuer);
    let spoiled = behaviour.switches.iter().filter_map(|&switch| field(shared, issuer, switch));
    change(&mut document, spoiled.map(|(name, value)| (name.to_owned(), value)).collect());
    if behaviour.has(Switch::EndpointsPlainHttp) {
        let names = ["authorization_endpoint", "token_endpoint", "registration_endpoint"];
        let plain = names.map(|name| (name.to_owned(), json!(format!("http://auth.example.com/{name}"))));
        change(&mut document, plain.into());
    }
    if behaviour.has(Switch::RegistrationMissing) {
        let names = ["registration_endpoint", "client_id_metadata_document_supported"];
        change(&mut document, names.map(|name| (name.to_owned(), Value::Null)).into());
    }
    change(&mut document, behaviour.metadata.clone());
    Some(spoiled_reply(shared, behaviour, &document, path))
}

fn spoiled_reply(shared: &Shared, behaviour: &Behaviour, document: &Value, path: &str) -> Reply {
    if let Some(url) = &behaviour.metadata_redirect {
        return redirect(302, url);
    }
    let text = document.to_string();
    let spoil = behaviour.switches.iter().find_map(|switch| {
        Some(match switch {
            Switch::MetadataTooLarge => {
                let padding = "x".repeat(TOO_LARGE);
                reply(200, "application/json", format!(r#"{{"padding":"{padding}",{}"#, &text[1..]))
            }
            Switch::MetadataEndless => endless(),
            Switch::MetadataRedirects => redirect(302, &format!("{}{path}", shared.canary)),
            Switch::MetadataRedirectLoop => redirect(302, path),
            Switch::MetadataHtml => html(200),
            Switch::MetadataInvalidJson => reply(200, "application/json", text[..16].to_owned()),
            Switch::MetadataDuplicateKeys => {
                let twice = format!(r#"{{"issuer":"{STRANGER}",{}"#, &text[1..]);
                reply(200, "application/json", twice)
            }
            _ => return None,
        })
    });
    spoil.unwrap_or_else(|| reply(200, "application/json", text))
}

fn document(shared: &Shared, issuer: Issuer) -> Value {
    let url = shared.issuer(issuer);
    json!({
        "issuer": url,
        "authorization_endpoint": format!("{url}/authorize"),
        "token_endpoint": format!("{url}/token"),
        "registration_endpoint": format!("{url}/register"),
        "revocation_endpoint": format!("{url}/revoke"),
        "jwks_uri": format!("{url}/jwks"),
        "scopes_supported": SCOPES,
        "response_types_supported": ["code"],
        "grant_types_supported": GRANTS,
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported":
            ["none", "client_secret_basic", "client_secret_post", "private_key_jwt"],
        "token_endpoint_auth_signing_alg_values_supported": ["ES256"],
        "authorization_grant_profiles_supported": ["urn:ietf:params:oauth:grant-profile:id-jag"],
        "authorization_response_iss_parameter_supported": true,
        "client_id_metadata_document_supported": true,
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    })
}

/// Returns the field that a misbehaviour changes in the authorization server metadata; null removes it.
fn field(shared: &Shared, issuer: Issuer, switch: Switch) -> Option<(&'static str, Value)> {
    let (token, authorization) = ("token_endpoint", "authorization_endpoint");
    let iss = "authorization_response_iss_parameter_supported";
    Some(match switch {
        Switch::IssuerWrong => ("issuer", json!(STRANGER)),
        Switch::IssuerTrailingSlash => ("issuer", json!(format!("{}/", shared.issuer(issuer)))),
        Switch::IssuerMissing => ("issuer", Value::Null),
        Switch::PkceMissing => ("code_challenge_methods_supported", Value::Null),
        Switch::PkcePlain => ("code_challenge_methods_supported", json!(["plain"])),
        Switch::TokenEndpointPrivate => (token, json!("https://10.0.0.1/token")),
        Switch::TokenEndpointLinkLocal => (token, json!("https://169.254.169.254/token")),
        Switch::TokenEndpointPrivateIpv6 => (token, json!("https://[fd00::1]/token")),
        Switch::TokenEndpointMissing => (token, Value::Null),
        Switch::RegistrationEndpointPrivate => ("registration_endpoint", json!("https://10.0.0.1/register")),
        Switch::AuthorizationEndpointJavascript => (authorization, json!("javascript:alert(1)")),
        Switch::AuthorizationEndpointFile => (authorization, json!("file:///bin/sh")),
        Switch::AuthorizationEndpointUserinfo => {
            (authorization, json!(format!("http://accounts.example.com@{}/authorize", &shared.canary[7..])))
        }
        Switch::AuthorizationEndpointCommand => {
            (authorization, json!("--renderer-cmd-prefix=$(touch /tmp/x)"))
        }
        Switch::NoClientDocuments => ("client_id_metadata_document_supported", Value::Null),
        Switch::IssUnannounced | Switch::IssUnsupported => (iss, Value::Null),
        Switch::Dpop | Switch::DpopNonce | Switch::DpopNonceForever => {
            ("dpop_signing_alg_values_supported", json!(["ES256"]))
        }
        _ => return None,
    })
}

/// Returns the metadata of the identity provider.
pub(super) fn idp(shared: &Shared) -> Reply {
    let url = shared.idp();
    json_reply(
        200,
        &json!({
            "issuer": url,
            "token_endpoint": format!("{url}/token"),
            "jwks_uri": format!("{url}/jwks"),
            "grant_types_supported": ["urn:ietf:params:oauth:grant-type:token-exchange"],
        }),
    )
}

pub(super) fn change(document: &mut Value, changes: BTreeMap<String, Value>) {
    let Some(document) = document.as_object_mut() else { return };
    for (name, value) in changes {
        if value.is_null() {
            document.remove(&name);
        } else {
            document.insert(name, value);
        }
    }
}
