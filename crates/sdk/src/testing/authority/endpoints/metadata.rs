//! Metadata documents of the test authority and of the protected endpoint, and their misbehaviours.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::token::GRANTS;
use crate::testing::authority::behaviour::Behaviour;
use crate::testing::authority::http::{
    AuthorityReply, endless_reply, html, json as json_reply, not_found, redirect, reply,
};
use crate::testing::authority::misbehaviour::Misbehaviour;
use crate::testing::authority::shared::{AuthorityShared, SCOPES, TestIssuer};

/// Size of a metadata document that is slightly more than a client should read.
const OVERSIZED_METADATA_BYTES: usize = (1 << 20) + 1;
pub(in crate::testing::authority) const FOREIGN_ISSUER: &str = "https://stranger.example";

/// Returns the URL that tokens of the test authority are issued for.
pub(in crate::testing::authority) fn resource_url(shared: &AuthorityShared, behaviour: &Behaviour) -> String {
    if let Some(Value::String(resource)) = behaviour.resource_metadata.get("resource") {
        return resource.clone();
    }
    if behaviour.is_enabled(Misbehaviour::ResourceMetadataAtRoot) {
        shared.resource.clone()
    } else {
        shared.mcp_url()
    }
}

/// Returns the URL of the protected resource metadata.
pub(in crate::testing::authority) fn resource_metadata_url(
    shared: &AuthorityShared,
    behaviour: &Behaviour,
) -> String {
    let path = if behaviour.is_enabled(Misbehaviour::ResourceMetadataAtRoot) { "" } else { "/mcp" };
    format!("{}/.well-known/oauth-protected-resource{path}", shared.resource)
}

/// Returns the protected resource metadata; `None` if there must be no response.
pub(in crate::testing::authority) fn resource(
    shared: &AuthorityShared,
    path: &str,
) -> Option<AuthorityReply> {
    let state = shared.lock();
    let behaviour = &state.behaviour;
    if behaviour.is_enabled(Misbehaviour::ResourceMetadataSilent) {
        return None;
    }
    let is_metadata_path = resource_metadata_url(shared, behaviour).ends_with(path);
    if !is_metadata_path
        || behaviour.is_any_enabled([Misbehaviour::NoResourceMetadata, Misbehaviour::NoMetadata])
    {
        return Some(not_found());
    }
    if behaviour.is_enabled(Misbehaviour::ResourceMetadataHtml) {
        return Some(html(200));
    }
    if behaviour.is_enabled(Misbehaviour::ResourceMetadataEndless) {
        return Some(endless_reply());
    }
    if behaviour.is_enabled(Misbehaviour::ResourceMetadataRedirects) {
        return Some(redirect(302, &format!("{}{path}", shared.canary_url)));
    }
    let has_moved = behaviour.is_enabled(Misbehaviour::IssuerMoves) && state.observed.tokens > 0;
    let mut servers =
        vec![shared.issuer(if has_moved { TestIssuer::Replacement } else { TestIssuer::Tenant })];
    if behaviour.is_enabled(Misbehaviour::FirstServerBroken) {
        servers.insert(0, format!("{}/broken", shared.authority));
    }
    let mut document = json!({
        "resource": resource_url(shared, behaviour),
        "authorization_servers": servers,
        "scopes_supported": [SCOPES[0]],
        "bearer_methods_supported": ["header"],
        "resource_name": "A protected endpoint",
    });
    let overridden = behaviour
        .misbehaviours
        .iter()
        .filter_map(|&misbehaviour| misbehaving_resource_field(shared, misbehaviour));
    override_fields(&mut document, overridden.map(|(name, value)| (name.to_owned(), value)).collect());
    override_fields(&mut document, behaviour.resource_metadata.clone());
    Some(json_reply(200, &document))
}

/// Returns the field that a misbehaviour changes in the protected resource metadata; null removes it.
fn misbehaving_resource_field(
    shared: &AuthorityShared,
    misbehaviour: Misbehaviour,
) -> Option<(&'static str, Value)> {
    Some(match misbehaviour {
        Misbehaviour::ResourceElsewhere => ("resource", json!(format!("{FOREIGN_ISSUER}/mcp"))),
        Misbehaviour::ResourceOtherPath => ("resource", json!(format!("{}/other", shared.resource))),
        Misbehaviour::ResourcePrefix => ("resource", json!(format!("{}-evil", shared.mcp_url()))),
        Misbehaviour::ResourceMissing => ("resource", Value::Null),
        Misbehaviour::NoAuthorizationServers => ("authorization_servers", Value::Null),
        _ => return None,
    })
}

/// Returns the authorization server metadata; `None` if there must be no response.
pub(in crate::testing::authority) fn authority(
    shared: &AuthorityShared,
    issuer: TestIssuer,
    path: &str,
) -> Option<AuthorityReply> {
    let state = shared.lock();
    let behaviour = &state.behaviour;
    let is_openid_path = path.ends_with("/.well-known/openid-configuration");
    if behaviour.is_enabled(Misbehaviour::NoMetadata)
        || behaviour.is_enabled(Misbehaviour::MetadataOpenIdOnly) && !is_openid_path
    {
        return Some(not_found());
    }
    if behaviour.is_enabled(Misbehaviour::MetadataSilent) {
        return None;
    }
    let mut document = document(shared, issuer);
    let overridden = behaviour
        .misbehaviours
        .iter()
        .filter_map(|&misbehaviour| misbehaving_field(shared, issuer, misbehaviour));
    override_fields(&mut document, overridden.map(|(name, value)| (name.to_owned(), value)).collect());
    if behaviour.is_enabled(Misbehaviour::EndpointsPlainHttp) {
        let names = ["authorization_endpoint", "token_endpoint", "registration_endpoint"];
        let plain = names.map(|name| (name.to_owned(), json!(format!("http://auth.example.com/{name}"))));
        override_fields(&mut document, plain.into());
    }
    if behaviour.is_enabled(Misbehaviour::RegistrationMissing) {
        let names = ["registration_endpoint", "client_id_metadata_document_supported"];
        override_fields(&mut document, names.map(|name| (name.to_owned(), Value::Null)).into());
    }
    override_fields(&mut document, behaviour.metadata.clone());
    Some(misbehaving_reply(shared, behaviour, &document, path))
}

fn misbehaving_reply(
    shared: &AuthorityShared,
    behaviour: &Behaviour,
    document: &Value,
    path: &str,
) -> AuthorityReply {
    if let Some(url) = &behaviour.metadata_redirect {
        return redirect(302, url);
    }
    let text = document.to_string();
    let misbehaving = behaviour.misbehaviours.iter().find_map(|misbehaviour| {
        Some(match misbehaviour {
            Misbehaviour::MetadataTooLarge => {
                let padding = "x".repeat(OVERSIZED_METADATA_BYTES);
                reply(200, "application/json", format!(r#"{{"padding":"{padding}",{}"#, &text[1..]))
            }
            Misbehaviour::MetadataEndless => endless_reply(),
            Misbehaviour::MetadataRedirects => redirect(302, &format!("{}{path}", shared.canary_url)),
            Misbehaviour::MetadataRedirectLoop => redirect(302, path),
            Misbehaviour::MetadataHtml => html(200),
            Misbehaviour::MetadataInvalidJson => reply(200, "application/json", text[..16].to_owned()),
            Misbehaviour::MetadataDuplicateKeys => {
                let twice = format!(r#"{{"issuer":"{FOREIGN_ISSUER}",{}"#, &text[1..]);
                reply(200, "application/json", twice)
            }
            _ => return None,
        })
    });
    misbehaving.unwrap_or_else(|| reply(200, "application/json", text))
}

fn document(shared: &AuthorityShared, issuer: TestIssuer) -> Value {
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
fn misbehaving_field(
    shared: &AuthorityShared,
    issuer: TestIssuer,
    misbehaviour: Misbehaviour,
) -> Option<(&'static str, Value)> {
    let (token, authorization) = ("token_endpoint", "authorization_endpoint");
    let iss = "authorization_response_iss_parameter_supported";
    Some(match misbehaviour {
        Misbehaviour::IssuerWrong => ("issuer", json!(FOREIGN_ISSUER)),
        Misbehaviour::IssuerTrailingSlash => ("issuer", json!(format!("{}/", shared.issuer(issuer)))),
        Misbehaviour::IssuerMissing => ("issuer", Value::Null),
        Misbehaviour::PkceMissing => ("code_challenge_methods_supported", Value::Null),
        Misbehaviour::PkcePlain => ("code_challenge_methods_supported", json!(["plain"])),
        Misbehaviour::TokenEndpointPrivate => (token, json!("https://10.0.0.1/token")),
        Misbehaviour::TokenEndpointLinkLocal => (token, json!("https://169.254.169.254/token")),
        Misbehaviour::TokenEndpointPrivateIpv6 => (token, json!("https://[fd00::1]/token")),
        Misbehaviour::TokenEndpointMissing => (token, Value::Null),
        Misbehaviour::RegistrationEndpointPrivate => {
            ("registration_endpoint", json!("https://10.0.0.1/register"))
        }
        Misbehaviour::AuthorizationEndpointJavascript => (authorization, json!("javascript:alert(1)")),
        Misbehaviour::AuthorizationEndpointFile => (authorization, json!("file:///bin/sh")),
        Misbehaviour::AuthorizationEndpointUserinfo => (
            authorization,
            json!(format!("http://accounts.example.com@{}/authorize", &shared.canary_url[7..])),
        ),
        Misbehaviour::AuthorizationEndpointCommand => {
            (authorization, json!("--renderer-cmd-prefix=$(touch /tmp/x)"))
        }
        Misbehaviour::NoClientDocuments => ("client_id_metadata_document_supported", Value::Null),
        Misbehaviour::IssUnannounced | Misbehaviour::IssUnsupported => (iss, Value::Null),
        Misbehaviour::Dpop | Misbehaviour::DpopNonce | Misbehaviour::DpopNonceForever => {
            ("dpop_signing_alg_values_supported", json!(["ES256"]))
        }
        _ => return None,
    })
}

/// Responds with the metadata of the simulated identity provider.
pub(in crate::testing::authority) fn idp(shared: &AuthorityShared) -> AuthorityReply {
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

pub(in crate::testing::authority) fn override_fields(document: &mut Value, changes: BTreeMap<String, Value>) {
    let Some(document) = document.as_object_mut() else { return };
    for (name, value) in changes {
        if value.is_null() {
            document.remove(&name);
        } else {
            document.insert(name, value);
        }
    }
}
