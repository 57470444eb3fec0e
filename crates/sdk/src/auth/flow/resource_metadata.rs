//! Protected resource metadata (RFC 9728): names the authorization servers of a server.

use serde::Deserialize;

use crate::auth::error::{AuthError, AuthErrorKind, error_position};
use crate::auth::scopes::Scopes;
use crate::egress::Target;

/// Well-known path of the protected resource metadata, to which the path of the resource is appended.
pub(crate) const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";
/// Maximum number of authorization servers in resource metadata that are considered.
const MAX_AUTHORIZATION_SERVERS: usize = 8;

/// Metadata of the protected resource (RFC 9728), as fetched by the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::auth) struct ResourceMetadata {
    /// Resource identifier to request tokens for, exactly as in the metadata.
    pub(in crate::auth) resource: String,
    pub(in crate::auth) authorization_servers: Vec<String>,
    pub(in crate::auth) scopes: Option<Scopes>,
    pub(in crate::auth) dpop: bool,
}

#[derive(Deserialize)]
struct ResourceMetadataDocument {
    resource: Option<String>,
    authorization_servers: Option<Vec<String>>,
    scopes_supported: Option<Vec<String>>,
    dpop_bound_access_tokens_required: Option<bool>,
}

/// Returns the URLs to try for the protected resource metadata: from the challenge, at the path of the server, at the
/// root.
pub(in crate::auth) fn locations(server: &Target, challenge_url: Option<&str>) -> Vec<String> {
    let origin = server.origin();
    let path = server.path().trim_end_matches('/');
    let mut all: Vec<String> = challenge_url.map(str::to_owned).into_iter().collect();
    for path in [path, ""] {
        let url = format!("{origin}{WELL_KNOWN}{path}");
        if !all.contains(&url) {
            all.push(url);
        }
    }
    all
}

/// Parses the protected resource metadata found at `url`.
pub(in crate::auth) fn parse(body: &[u8], server: &Target, url: &str) -> Result<ResourceMetadata, AuthError> {
    let metadata_error = |problem: &str| {
        let text = format!("the metadata of the server at `{url}` cannot be used: {problem}");
        AuthError::new(AuthErrorKind::Metadata, text)
    };
    let document: ResourceMetadataDocument = serde_json::from_slice(body).map_err(|error| {
        metadata_error(&format!("it does not conform to RFC 9728 ({})", error_position(&error)))
    })?;
    let Some(resource) = document.resource else {
        return Err(metadata_error("the field `resource` is missing"));
    };
    if !covers(&resource, server) {
        let quoted = crate::auth::error::sanitize(&resource);
        return Err(metadata_error(&format!(
            "it describes the resource `{quoted}`, but this server is `{server}`; a token for one must not \
             be sent to the other"
        )));
    }
    let mut authorization_servers = document.authorization_servers.unwrap_or_default();
    if authorization_servers.is_empty() {
        return Err(metadata_error("the field `authorization_servers` is missing"));
    }
    authorization_servers.truncate(MAX_AUTHORIZATION_SERVERS);
    Ok(ResourceMetadata {
        resource,
        authorization_servers,
        scopes: document.scopes_supported.map(|scopes| scopes.iter().collect()),
        dpop: document.dpop_bound_access_tokens_required == Some(true),
    })
}

/// Returns whether a resource is the server itself or a parent path on its origin.
fn covers(resource: &str, server: &Target) -> bool {
    if resource.contains(['#', '?']) {
        return false;
    }
    let Ok(resource) = Target::configured(resource) else { return false };
    let (outer, inner) = (resource.path().trim_end_matches('/'), server.path());
    let rest = inner.strip_prefix(outer);
    resource.same_origin(server) && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(url: &str) -> Target {
        Target::configured(url).unwrap()
    }

    #[test]
    fn where_it_is_looked_for() {
        let server = server("https://a.example/public/mcp/?x=y");
        let path = "https://a.example/.well-known/oauth-protected-resource/public/mcp";
        let root = "https://a.example/.well-known/oauth-protected-resource";
        assert_eq!(locations(&server, None), [path, root]);
        assert_eq!(locations(&server, Some("https://b/c")), ["https://b/c", path, root]);
        assert_eq!(locations(&server, Some(root)), [root, path]);
        assert_eq!(locations(&Target::configured("https://a.example").unwrap(), None), [root]);
    }

    #[test]
    fn a_token_for_one_server_does_not_go_to_another() {
        let here = server("https://a.example/team/mcp");
        for good in [
            "https://a.example/team/mcp",
            "https://a.example",
            "https://a.example/",
            "HTTPS://A.example/team",
        ] {
            assert!(covers(good, &here), "{good}");
        }
        for bad in [
            "https://a.example/team/mcp/more",
            "https://a.example/te",
            "https://a.example/team/mcp-evil",
            "https://b.example/team/mcp",
            "https://a.example.evil.com/team/mcp",
            "http://a.example/team/mcp",
            "https://a.example:8443/team/mcp",
            "https://a.example@evil.com/team/mcp",
            "https://a.example/team/mcp#x",
            "a.example",
            "",
        ] {
            assert!(!covers(bad, &here), "{bad}");
        }
    }

    #[test]
    fn documents_that_say_too_little() {
        let here = server("https://a.example/mcp");
        let read =
            |text: &str| parse(text.as_bytes(), &here, "https://a.example/x").map_err(|e| e.to_string());
        let good = read(
            r#"{"resource": "https://a.example/mcp", "authorization_servers": ["https://b.example"], "scopes_supported": []}"#,
        );
        assert_eq!(good.unwrap().scopes, Some(Scopes::default()));
        for (text, expected) in [
            ("<html>", "does not conform to RFC 9728"),
            ("{}", "the field `resource` is missing"),
            (r#"{"resource":"https://a.example/mcp"}"#, "the field `authorization_servers` is missing"),
            (
                r#"{"resource":"https://a.example/mcp","resource":"https://b.example"}"#,
                "does not conform to RFC 9728",
            ),
            (r#"{"resource":"https://evil.example/mcp"}"#, "a token for one must not be sent to the other"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(expected), "{error}");
        }
    }
}
