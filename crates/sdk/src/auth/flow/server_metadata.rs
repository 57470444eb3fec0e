//! Search for and parsing of authorization server metadata (RFC 8414, `OpenID` Connect Discovery).

use serde::Deserialize;

use crate::auth::error::{AuthError, AuthErrorKind, error_position, sanitize};
use crate::auth::scopes::Scopes;
use crate::egress::Target;

const OAUTH_WELL_KNOWN: &str = "/.well-known/oauth-authorization-server";
const OPENID_WELL_KNOWN: &str = "/.well-known/openid-configuration";

/// Metadata of an authorization server, as fetched by the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::auth) struct ServerMetadata {
    /// Issuer identifier, exactly as in the metadata.
    pub(in crate::auth) issuer: String,
    pub(in crate::auth) authorization_endpoint: Option<String>,
    pub(in crate::auth) token_endpoint: String,
    pub(in crate::auth) registration_endpoint: Option<String>,
    pub(in crate::auth) revocation_endpoint: Option<String>,
    /// Whether PKCE with S256 is supported; `None` without metadata.
    pub(in crate::auth) pkce: Option<bool>,
    pub(in crate::auth) scopes: Option<Scopes>,
    /// Client authentication methods that the token endpoint supports.
    pub(in crate::auth) auth_methods: Option<Vec<String>>,
    pub(in crate::auth) dpop_algorithms: Option<Vec<String>>,
    pub(in crate::auth) supports_client_id_documents: bool,
    /// Whether authorization responses contain `iss` (RFC 9207).
    pub(in crate::auth) iss_in_response: bool,
}

#[derive(Deserialize)]
struct ServerMetadataDocument {
    issuer: Option<String>,
    authorization_endpoint: Option<String>,
    token_endpoint: Option<String>,
    registration_endpoint: Option<String>,
    revocation_endpoint: Option<String>,
    code_challenge_methods_supported: Option<Vec<String>>,
    scopes_supported: Option<Vec<String>>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    dpop_signing_alg_values_supported: Option<Vec<String>>,
    client_id_metadata_document_supported: Option<bool>,
    authorization_response_iss_parameter_supported: Option<bool>,
}

/// Issuer that the metadata of an authorization server must name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::auth) enum ExpectedIssuer<'a> {
    /// The metadata must name exactly this issuer.
    Issuer(&'a str),
    /// The origin of the MCP server, as in the revision of March 2025, where no issuer was named.
    Origin(&'a str),
}

/// Returns the URLs to try for the metadata of an issuer, in the order of the MCP specification.
pub(crate) fn locations(issuer: &Target) -> Vec<String> {
    let (origin, path) = (issuer.origin(), issuer.path().trim_end_matches('/'));
    if path.is_empty() {
        return vec![format!("{origin}{OAUTH_WELL_KNOWN}"), format!("{origin}{OPENID_WELL_KNOWN}")];
    }
    vec![
        format!("{origin}{OAUTH_WELL_KNOWN}{path}"),
        format!("{origin}{OPENID_WELL_KNOWN}{path}"),
        format!("{origin}{path}{OPENID_WELL_KNOWN}"),
    ]
}

/// Returns the default endpoints of the revision of March 2025, for a server without metadata.
pub(in crate::auth) fn default_endpoints(origin: &str) -> ServerMetadata {
    ServerMetadata {
        issuer: origin.to_owned(),
        authorization_endpoint: Some(format!("{origin}/authorize")),
        token_endpoint: format!("{origin}/token"),
        registration_endpoint: Some(format!("{origin}/register")),
        revocation_endpoint: None,
        pkce: None,
        scopes: None,
        auth_methods: None,
        dpop_algorithms: None,
        supports_client_id_documents: false,
        iss_in_response: false,
    }
}

/// Parses the authorization server metadata found at `url`.
pub(in crate::auth) fn parse(
    body: &[u8],
    expected: ExpectedIssuer<'_>,
    url: &str,
) -> Result<ServerMetadata, AuthError> {
    let metadata_error = |problem: &str| {
        let text = format!("the metadata of the authorization server at `{url}` cannot be used: {problem}");
        AuthError::new(AuthErrorKind::Metadata, text)
    };
    let document: ServerMetadataDocument = serde_json::from_slice(body).map_err(|error| {
        metadata_error(&format!("it does not conform to RFC 8414 ({})", error_position(&error)))
    })?;
    let issuer = document.issuer.ok_or_else(|| metadata_error("the field `issuer` is missing"))?;
    let is_expected = match expected {
        ExpectedIssuer::Issuer(expected) => issuer == expected,
        ExpectedIssuer::Origin(origin) => issuer.strip_suffix('/').unwrap_or(&issuer) == origin,
    };
    if !is_expected {
        let (ExpectedIssuer::Issuer(expected) | ExpectedIssuer::Origin(expected)) = expected;
        let (found, expected) = (sanitize(&issuer), sanitize(expected));
        return Err(metadata_error(&format!(
            "its issuer is `{found}` but must be exactly `{expected}`; it may be an impersonation"
        )));
    }
    let token_endpoint =
        document.token_endpoint.ok_or_else(|| metadata_error("the field `token_endpoint` is missing"))?;
    for (name, endpoint) in [
        ("authorization_endpoint", document.authorization_endpoint.as_deref()),
        ("token_endpoint", Some(&*token_endpoint)),
        ("registration_endpoint", document.registration_endpoint.as_deref()),
        ("revocation_endpoint", document.revocation_endpoint.as_deref()),
    ] {
        check_endpoint(endpoint).map_err(|reason| {
            let error = metadata_error(&format!("its `{name}` is not a safe URL: {reason}"));
            error.with_denied_host(endpoint.unwrap_or_default())
        })?;
    }
    let methods = document.code_challenge_methods_supported;
    Ok(ServerMetadata {
        issuer,
        authorization_endpoint: document.authorization_endpoint,
        token_endpoint,
        registration_endpoint: document.registration_endpoint,
        revocation_endpoint: document.revocation_endpoint,
        pkce: Some(methods.is_some_and(|methods| methods.iter().any(|method| method == "S256"))),
        scopes: document.scopes_supported.map(|scopes| scopes.iter().collect()),
        auth_methods: document.token_endpoint_auth_methods_supported,
        dpop_algorithms: document.dpop_signing_alg_values_supported,
        supports_client_id_documents: document.client_id_metadata_document_supported == Some(true),
        iss_in_response: document.authorization_response_iss_parameter_supported == Some(true),
    })
}

/// Checks that an endpoint, which receives secrets, cannot be eavesdropped on.
fn check_endpoint(url: Option<&str>) -> Result<(), String> {
    let Some(url) = url else { return Ok(()) };
    let target = Target::configured(url).map_err(|error| error.to_string())?;
    if url.contains('#') {
        return Err("the URL has a fragment".to_owned());
    }
    if !target.is_secure() {
        return Err(format!("`{target}` uses plain `http`, but `https` is required"));
    }
    Ok(())
}

impl ServerMetadata {
    /// Returns whether the authorization server can bind tokens to an ES256 key (`DPoP`).
    pub(in crate::auth) fn supports_dpop(&self) -> bool {
        self.dpop_algorithms.as_ref().is_some_and(|algorithms| algorithms.iter().any(|name| name == "ES256"))
    }

    /// Returns the authorization endpoint for `server`, if PKCE protects the code and the URL is safe.
    pub(in crate::auth) fn authorization_endpoint(&self, server: &Target) -> Result<&str, AuthError> {
        let sign_in_error = |problem: &str| {
            let text = format!("sign-in at `{}` is not possible: {problem}", sanitize(&self.issuer));
            AuthError::new(AuthErrorKind::Metadata, text)
        };
        if self.pkce == Some(false) {
            return Err(sign_in_error(
                "its metadata does not list `S256` under `code_challenge_methods_supported`, and without \
                 PKCE an authorization code could be stolen",
            ));
        }
        let endpoint = self.authorization_endpoint.as_deref();
        let endpoint =
            endpoint.ok_or_else(|| sign_in_error("its metadata has no `authorization_endpoint`"))?;
        let target = Target::configured(endpoint).map_err(|error| sign_in_error(&error.to_string()))?;
        if !server.may_redirect_to(&target) {
            let url = sanitize(&target.to_string());
            return Err(sign_in_error(&format!(
                "its `authorization_endpoint` is `{url}`, which is on a more private network than the \
                 server; a browser must not be redirected there"
            ))
            .with_denied_host(endpoint));
        }
        Ok(endpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_it_is_looked_for() {
        let locations_of = |issuer: &str| locations(&Target::configured(issuer).unwrap());
        assert_eq!(
            locations_of("https://a.example/"),
            [
                "https://a.example/.well-known/oauth-authorization-server",
                "https://a.example/.well-known/openid-configuration"
            ]
        );
        assert_eq!(
            locations_of("https://a.example/tenant1"),
            [
                "https://a.example/.well-known/oauth-authorization-server/tenant1",
                "https://a.example/.well-known/openid-configuration/tenant1",
                "https://a.example/tenant1/.well-known/openid-configuration",
            ]
        );
    }

    const HONEST: &str = "https://a.example";

    fn error(text: &str) -> String {
        parse(text.as_bytes(), ExpectedIssuer::Issuer(HONEST), "https://a.example/x")
            .expect_err(text)
            .to_string()
    }

    #[test]
    fn issuers_are_compared_to_the_letter() {
        for other in
            ["https://a.example/", "https://A.example", "https://a.example:443", "https://evil.example"]
        {
            let text = format!(r#"{{"issuer":"{other}","token_endpoint":"https://a.example/token"}}"#);
            assert!(error(&text).contains("must be exactly"), "{other}");
        }
        let slash = r#"{"issuer":"https://a.example/","token_endpoint":"https://a.example/token"}"#;
        let legacy = parse(slash.as_bytes(), ExpectedIssuer::Origin(HONEST), "https://a.example/x").unwrap();
        assert_eq!(legacy.issuer, "https://a.example/");
    }

    #[test]
    fn endpoints_must_be_safe() {
        for (endpoint, expected) in [
            ("http://a.example/token", "uses plain `http`"),
            ("javascript:alert(1)", "must begin with https"),
            ("https://user@a.example/token", "user name"),
            ("https://a.example/token#x", "fragment"),
            ("https://2130706433/token", "its host is a number"),
        ] {
            let text = format!(r#"{{"issuer":"{HONEST}","token_endpoint":"{endpoint}"}}"#);
            assert!(error(&text).contains(expected), "{endpoint}: {}", error(&text));
        }
        let local = format!(r#"{{"issuer":"{HONEST}","token_endpoint":"http://127.0.0.1:1/token"}}"#);
        assert!(
            parse(local.as_bytes(), ExpectedIssuer::Issuer(HONEST), "x").is_ok(),
            "the policy of egress decides later"
        );
    }

    #[test]
    fn codes_need_pkce() {
        for (methods, good) in
            [("[\"S256\",\"plain\"]", true), ("[\"plain\"]", false), ("[]", false), ("null", false)]
        {
            let text = format!(
                r#"{{"issuer":"{HONEST}","token_endpoint":"https://a.example/t","authorization_endpoint":"https://a.example/a",
                "code_challenge_methods_supported":{methods}}}"#
            );
            let read = parse(text.as_bytes(), ExpectedIssuer::Issuer(HONEST), "x").unwrap();
            assert_eq!(
                read.authorization_endpoint(&Target::configured(HONEST).unwrap()).is_ok(),
                good,
                "{methods}"
            );
        }
    }
}
