//! Fields in which the test authority names a URL, for tests that replace that URL.

use serde_json::json;

use super::Behaviour;

/// Field of a response in which the test authority, or the endpoint that it protects, names a URL that clients use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UrlField {
    /// `resource_metadata` of `WWW-Authenticate`.
    ResourceMetadata,
    /// `authorization_servers` of the metadata of the resource.
    Issuer,
    /// `authorization_endpoint`, which the user opens.
    AuthorizationEndpoint,
    /// `token_endpoint` of the authorization server metadata.
    TokenEndpoint,
    /// `registration_endpoint` of the authorization server metadata.
    RegistrationEndpoint,
    /// `jwks_uri`: the keys of an issuer, which servers fetch.
    JwksUri,
    /// `revocation_endpoint` of the authorization server metadata.
    RevocationEndpoint,
    /// `Location` of a redirect of the authorization server metadata.
    MetadataRedirect,
}

impl UrlField {
    /// All fields in which the test authority names a URL.
    pub const ALL: [UrlField; 8] = [
        UrlField::ResourceMetadata,
        UrlField::Issuer,
        UrlField::AuthorizationEndpoint,
        UrlField::TokenEndpoint,
        UrlField::RegistrationEndpoint,
        UrlField::JwksUri,
        UrlField::RevocationEndpoint,
        UrlField::MetadataRedirect,
    ];
}

impl Behaviour {
    /// Replaces one URL field of the simulated metadata or challenge, to test how clients handle the URL.
    pub fn with_url(self, field: UrlField, url: &str) -> Self {
        match field {
            UrlField::ResourceMetadata => self.challenge(format!("Bearer resource_metadata=\"{url}\"")),
            UrlField::Issuer => self.resource_metadata("authorization_servers", json!([url])),
            UrlField::AuthorizationEndpoint => self.metadata("authorization_endpoint", url),
            UrlField::TokenEndpoint => self.metadata("token_endpoint", url),
            UrlField::RegistrationEndpoint => self.metadata("registration_endpoint", url),
            UrlField::JwksUri => self.metadata("jwks_uri", url),
            UrlField::RevocationEndpoint => self.metadata("revocation_endpoint", url),
            UrlField::MetadataRedirect => self.redirect_metadata(url),
        }
    }
}
