//! Catalogue of protocol violations of the test authority, for use alone or combined.

macro_rules! switches {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A deviation of the test authority from the behaviour that clients expect. Those marked as allowed violate no
        /// rule, and clients must handle them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Misbehaviour { $($(#[$doc])* $name,)* }

        impl Misbehaviour {
            /// All misbehaviours of the test authority.
            pub const ALL: &[Misbehaviour] = &[$(Misbehaviour::$name,)*];
        }
    };
}

switches! {
    // The challenge of the protected endpoint.
    /// 401 without `WWW-Authenticate`. Allowed.
    ChallengeMissing,
    /// A syntactically invalid `WWW-Authenticate`.
    ChallengeMalformed,
    /// Three challenges in two headers, only one of them relevant. Allowed.
    ChallengeSeveral,
    /// `WWW-Authenticate` header of 64 KiB.
    ChallengeHuge,
    /// Challenge whose `resource_metadata` URL is at another origin and gets no response. Allowed.
    ChallengeElsewhere,
    /// 401 for every token, permanently.
    UnauthorizedForever,
    /// 403 `insufficient_scope` permanently, whatever scope a token has.
    ForbiddenForever,

    // The metadata of the protected resource.
    /// Resource metadata whose `resource` is at another origin.
    ResourceElsewhere,
    /// Resource metadata whose `resource` has another path.
    ResourceOtherPath,
    /// Resource metadata with a `resource` whose path starts with the path of the endpoint, but not at a segment
    /// boundary: `/mcp-evil`.
    ResourcePrefix,
    /// Resource metadata without `resource`.
    ResourceMissing,
    /// Resource metadata without `authorization_servers`.
    NoAuthorizationServers,
    /// Two `authorization_servers`, of which the first always fails. Allowed.
    FirstServerBroken,
    /// No resource metadata; the server of the endpoint is its own authority, as in the first revision. Allowed.
    NoResourceMetadata,
    /// No metadata at all; `/authorize`, `/token` and `/register` are at the server of the endpoint. Allowed.
    NoMetadata,
    /// Resource metadata only at the root of its server, with the server as the resource. Allowed.
    ResourceMetadataAtRoot,
    /// HTML instead of resource metadata.
    ResourceMetadataHtml,
    /// Resource metadata response that never ends.
    ResourceMetadataEndless,
    /// No response to the request for resource metadata.
    ResourceMetadataSilent,
    /// Resource metadata redirects to another origin, which clients must not connect to.
    ResourceMetadataRedirects,

    // The metadata of the authorization server.
    /// Authorization server metadata with the `issuer` of another server.
    IssuerWrong,
    /// Authorization server metadata whose `issuer` has an additional trailing slash.
    IssuerTrailingSlash,
    /// Authorization server metadata without `issuer`.
    IssuerMissing,
    /// A new issuer after the first token, which knows none of the previous clients. Allowed.
    IssuerMoves,
    /// Authorization server metadata without `code_challenge_methods_supported`.
    PkceMissing,
    /// Authorization server metadata with `plain` as the only code challenge method.
    PkcePlain,
    /// Endpoints with plain `http` at a host other than this machine.
    EndpointsPlainHttp,
    /// A token endpoint at a private address.
    TokenEndpointPrivate,
    /// A token endpoint at the link-local address of cloud metadata services.
    TokenEndpointLinkLocal,
    /// A token endpoint at a private IPv6 address.
    TokenEndpointPrivateIpv6,
    /// Authorization server metadata without `token_endpoint`.
    TokenEndpointMissing,
    /// A registration endpoint at a private address.
    RegistrationEndpointPrivate,
    /// Authorization endpoint with a `javascript:` URL.
    AuthorizationEndpointJavascript,
    /// Authorization endpoint with a `file:` URL.
    AuthorizationEndpointFile,
    /// A user name in the authorization endpoint, which makes it look like another host.
    AuthorizationEndpointUserinfo,
    /// A command-line option with a shell command in place of the URL of the authorization endpoint.
    AuthorizationEndpointCommand,
    /// Metadata larger than 1 MiB.
    MetadataTooLarge,
    /// Authorization server metadata without end.
    MetadataEndless,
    /// No response to the request for metadata.
    MetadataSilent,
    /// Metadata redirects to another origin, which clients must not connect to.
    MetadataRedirects,
    /// Authorization server metadata redirects to itself.
    MetadataRedirectLoop,
    /// HTML instead of authorization server metadata.
    MetadataHtml,
    /// Truncated authorization server metadata.
    MetadataInvalidJson,
    /// Metadata with two `issuer` members, the first of another server.
    MetadataDuplicateKeys,
    /// Only `OpenID` Connect metadata, at its oldest path. Allowed.
    MetadataOpenIdOnly,

    // Registration.
    /// No support for client metadata documents. Allowed.
    NoClientDocuments,
    /// No method of client registration.
    RegistrationMissing,
    /// Registration rejected with an error.
    RegistrationRefused,
    /// Registration rejected with HTML.
    RegistrationHtml,
    /// A redirect URI other than the registered one.
    RegistrationOtherRedirect,
    /// Registration response without a `client_id`.
    RegistrationWithoutClientId,

    // The redirect back from the browser.
    /// A foreign `state` in the redirect back.
    StateMixedUp,
    /// No `state` in the redirect back.
    StateMissing,
    /// A foreign `iss` in the redirect back.
    IssWrong,
    /// No `iss`, although the metadata announces one.
    IssMissing,
    /// An `iss` that matches only after URL normalization.
    IssNormalized,
    /// An `iss` in the redirect back that the metadata does not announce. Allowed.
    IssUnannounced,
    /// No `iss`, and none announced. Allowed.
    IssUnsupported,
    /// `access_denied`, with a description that contains terminal control sequences.
    AccessDenied,
    /// `access_denied` with a foreign `iss`: no part of the error may be shown.
    AccessDeniedIssWrong,
    /// Neither a code nor an error in the redirect back.
    CodeMissing,
    /// A code that is rejected as already used.
    CodeUsed,
    /// A code that works twice.
    CodeTwice,

    // The token endpoint.
    /// Token endpoint redirects with 307 to another origin, which clients must not connect to.
    TokenRedirects,
    /// Token response is HTML with status 200.
    TokenHtmlOk,
    /// Token response is HTML with status 500.
    TokenHtmlError,
    /// A valid token error, with a description that contains terminal control sequences.
    TokenError,
    /// A token error that echoes the request.
    TokenEchoes,
    /// Token response with status 200 and an empty body.
    TokenEmpty,
    /// A truncated token response.
    TokenInvalidJson,
    /// Token response with two `access_token` members.
    TokenDuplicateKeys,
    /// Token response without `access_token`.
    TokenMissing,
    /// Token response without `token_type`.
    TokenTypeMissing,
    /// Token response with an unknown `token_type`.
    TokenTypeUnknown,
    /// An access token larger than 16 KiB.
    TokenTooLarge,
    /// An access token that contains a line break and an injected header.
    TokenNewline,
    /// No response to the token request.
    TokenSilent,
    /// Token response that never ends.
    TokenEndless,
    /// Token response without `expires_in`. Allowed.
    ExpiresMissing,
    /// A negative `expires_in`.
    ExpiresNegative,
    /// An `expires_in` that overflows.
    ExpiresHuge,
    /// An `expires_in` that is a string.
    ExpiresText,
    /// Never grants the scope `write`. Allowed.
    ScopesFewer,
    /// Token response without a refresh token. Allowed.
    RefreshMissing,
    /// A refresh token only for the scope `offline_access`. Allowed.
    RefreshOffline,
    /// The token endpoint returns the same refresh token each time, instead of rotating it. Allowed.
    RefreshStays,
    /// Issued refresh tokens are rejected.
    RefreshRevoked,
    /// Issued refresh tokens are rejected with a nonstandard error code.
    RefreshRefused,
    /// The first refresh fails with 503, later ones succeed. Allowed.
    RefreshUnavailable,
    /// Token revocation fails.
    RevocationFails,

    // Proof of possession.
    /// Tokens are bound to a key (`DPoP`). Allowed.
    Dpop,
    /// Tokens are bound to a key, and proofs require a nonce. Allowed.
    DpopNonce,
    /// Tokens are bound to a key, and every nonce is rejected.
    DpopNonceForever,
}
