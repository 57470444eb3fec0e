//! Protected resource metadata of the server (RFC 9728): its paths and document.

use serde_json::{Map, Value};

use super::builder::{Auth, Dpop};
use super::dpop::PROOF_ALGORITHMS;
use crate::auth::WELL_KNOWN;
use crate::egress::Target;
use crate::jose::Algorithm;

/// Returns the well-known path of the metadata of this resource.
pub(super) fn path(resource: &Target) -> String {
    format!("{WELL_KNOWN}{}", resource.path().trim_end_matches('/'))
}

/// Returns all paths that serve the metadata, including the root path that clients try without a challenge.
pub(super) fn paths(resource: &Target) -> Vec<String> {
    let mut paths = vec![path(resource), WELL_KNOWN.to_owned()];
    paths.dedup();
    paths
}

pub(super) fn document(auth: &Auth) -> Vec<u8> {
    let mut document = Map::new();
    document.insert("resource".into(), auth.resource.clone().into());
    document.insert("authorization_servers".into(), auth.issuers.clone().into());
    let scopes = auth.supported.as_ref().unwrap_or(&auth.required);
    if !scopes.is_empty() {
        document.insert("scopes_supported".into(), scopes.clone().into());
    }
    document.insert("bearer_methods_supported".into(), Value::from_iter(["header"]));
    if let Some(dpop) = auth.dpop {
        let algorithms = Value::from_iter(PROOF_ALGORITHMS.map(Algorithm::name));
        document.insert("dpop_signing_alg_values_supported".into(), algorithms);
        document.insert("dpop_bound_access_tokens_required".into(), (dpop == Dpop::Required).into());
    }
    for (name, value) in [("resource_name", &auth.name), ("resource_documentation", &auth.documentation)] {
        if let Some(value) = value {
            document.insert(name.into(), value.clone().into());
        }
    }
    Value::Object(document).to_string().into_bytes()
}
