//! Issuer metadata (RFC 8414, `OpenID` Connect Discovery) and JWK sets, fetched over HTTP.

use std::time::Duration;

use ::http::header::{ACCEPT, CACHE_CONTROL};
use ::http::{HeaderMap, HeaderValue, Request, StatusCode};
use linchpin_jsonrpc::{Limits, check};
use serde_json::Value;

use super::issuer_keys::KeySet;
use crate::auth::locations;
use crate::egress::{Body, Egress, Redirects, Target};
use crate::jose::PublicKey;

/// Maximum size of a metadata document or key set of an issuer, in bytes.
const MAX_DOCUMENT_BYTES: usize = 1 << 20;
/// Maximum number of keys read from a key set of an issuer; the rest is ignored.
const MAX_KEYS: usize = 64;
const MAX_REDIRECTS: usize = 3;

/// Fetches the keys of an issuer from the `jwks_uri` of its metadata.
pub(super) async fn discover_keys(egress: &Egress, issuer: &Target, name: &str) -> Result<KeySet, String> {
    let mut failure = None;
    for url in locations(issuer) {
        let target = issuer.discovered(&url).map_err(|error| error.to_string())?;
        match fetch_jwks_uri(egress, &target, name).await {
            Ok(Some(uri)) => {
                let keys = target.discovered(&uri).map_err(|error| error.to_string())?;
                return fetch_keys(egress, &keys).await;
            }
            Ok(None) => {}
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    let no_metadata_error =
        || format!("{issuer} has no metadata: neither oauth-authorization-server nor openid-configuration");
    Err(failure.unwrap_or_else(no_metadata_error))
}

/// Returns the `jwks_uri` of the metadata at `target`; `None` if there is no metadata.
async fn fetch_jwks_uri(egress: &Egress, target: &Target, issuer: &str) -> Result<Option<String>, String> {
    let Some((document, _)) = get_json(egress, target).await? else { return Ok(None) };
    if document.get("issuer").and_then(Value::as_str) != Some(issuer) {
        return Err(format!("the metadata at {target} belongs to another issuer"));
    }
    let uri = document.get("jwks_uri").and_then(Value::as_str);
    uri.map(|uri| Some(uri.to_owned())).ok_or_else(|| format!("the metadata at {target} has no jwks_uri"))
}

/// Fetches the key set at a URL.
pub(super) async fn fetch_keys(egress: &Egress, target: &Target) -> Result<KeySet, String> {
    let (document, max_age) = get_json(egress, target)
        .await?
        .ok_or_else(|| format!("{target} responded with a client error (HTTP 4xx) instead of keys"))?;
    Ok(KeySet { keys: parse_keys(&document).map_err(|error| format!("{error} at {target}"))?, max_age })
}

/// Returns the usable keys of a JWK set. Unusable keys are skipped, because a set may contain keys for other purposes.
pub(super) fn parse_keys(set: &Value) -> Result<Vec<PublicKey>, String> {
    let all = set.get("keys").and_then(Value::as_array).ok_or("no JWK set found")?;
    let usable: Vec<_> = all.iter().take(MAX_KEYS).filter_map(|key| PublicKey::from_jwk(key).ok()).collect();
    if usable.is_empty() {
        return Err("no usable key found".into());
    }
    Ok(usable)
}

/// Fetches a JSON document with its `max-age`; `None` for a 4xx response.
async fn get_json(egress: &Egress, target: &Target) -> Result<Option<(Value, Option<Duration>)>, String> {
    let mut request = Request::new(Body::empty());
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/json"));
    let result = egress.follow(request, target, Redirects::same_origin(MAX_REDIRECTS)).await;
    let (response, _) = result.map_err(|error| error.to_string())?;
    if response.status().is_client_error() {
        return Ok(None);
    }
    if response.status() != StatusCode::OK {
        return Err(format!("{target} responded with {}", response.status().as_u16()));
    }
    let max_age = max_age(response.headers());
    let body =
        response.into_body().read_to_end(MAX_DOCUMENT_BYTES).await.map_err(|error| error.to_string())?;
    let text = std::str::from_utf8(&body).ok().filter(|text| check(text, Limits::default()).is_ok());
    let document = text.and_then(|text| serde_json::from_str(text).ok());
    document.map(|document| Some((document, max_age))).ok_or_else(|| format!("{target} is not JSON"))
}

fn max_age(headers: &HeaderMap) -> Option<Duration> {
    let values = headers.get_all(CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    let mut directives = values.flat_map(|value| value.split(','));
    let seconds = directives.find_map(|directive| directive.trim().strip_prefix("max-age="))?;
    seconds.trim_matches('"').parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freshness_is_read_from_the_headers() {
        let max_age_of = |value: &str| {
            max_age(&[(CACHE_CONTROL, value.parse().unwrap())].into_iter().collect::<HeaderMap>())
        };
        assert_eq!(max_age_of("public, max-age=600, must-revalidate"), Some(Duration::from_mins(10)));
        assert_eq!(max_age_of("max-age=0"), Some(Duration::ZERO));
        for nothing in ["no-store", "max-age=-1", "max-age=", "s-maxage=5", "max-age=99999999999999999999999"]
        {
            assert_eq!(max_age_of(nothing), None, "{nothing}");
        }
    }
}
