//! Metadata fields from which clients discover a URL.

use serde_json::json;

use super::Behaviour;

/// A field in which an authority, or the endpoint that it protects, names a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Learned {
    /// `resource_metadata` of `WWW-Authenticate`.
    ResourceMetadata,
    /// `authorization_servers` of the metadata of the resource.
    Issuer,
    /// `authorization_endpoint`, which the user opens.
    AuthorizationEndpoint,
    /// `token_endpoint`.
    TokenEndpoint,
    /// `registration_endpoint`.
    RegistrationEndpoint,
    /// `jwks_uri`: the keys of an issuer, which servers fetch.
    JwksUri,
    /// `revocation_endpoint`.
    RevocationEndpoint,
    /// `Location` of a redirect of the authorization server metadata.
    MetadataRedirect,
}

impl Learned {
    /// All variants.
    pub const ALL: [Learned; 8] = [
        Learned::ResourceMetadata,
        Learned::Issuer,
        Learned::AuthorizationEndpoint,
        Learned::TokenEndpoint,
        Learned::RegistrationEndpoint,
        Learned::JwksUri,
        Learned::RevocationEndpoint,
        Learned::MetadataRedirect,
    ];
}

impl Behaviour {
    /// Sets the URL of one field.
    pub fn naming(self, place: Learned, url: &str) -> Self {
        match place {
            Learned::ResourceMetadata => self.challenge(format!("Bearer resource_metadata=\"{url}\"")),
            Learned::Issuer => self.resource_metadata("authorization_servers", json!([url])),
            Learned::AuthorizationEndpoint => self.metadata("authorization_endpoint", url),
            Learned::TokenEndpoint => self.metadata("token_endpoint", url),
            Learned::RegistrationEndpoint => self.metadata("registration_endpoint", url),
            Learned::JwksUri => self.metadata("jwks_uri", url),
            Learned::RevocationEndpoint => self.metadata("revocation_endpoint", url),
            Learned::MetadataRedirect => self.redirect_metadata(url),
        }
    }
}
