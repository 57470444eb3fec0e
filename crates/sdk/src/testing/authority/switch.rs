//! The ways in which the authority can misbehave, one at a time or several together.

macro_rules! switches {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// One way not to be what a client expects. What is called allowed breaks no rule and must be coped with.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Switch { $($(#[$doc])* $name,)* }

        impl Switch {
            /// All of them.
            pub const ALL: &[Switch] = &[$(Switch::$name,)*];
        }
    };
}

switches! {
    // The challenge of the protected endpoint.
    /// 401 without `WWW-Authenticate`. Allowed.
    ChallengeMissing,
    /// `WWW-Authenticate` that no grammar has.
    ChallengeMalformed,
    /// Three challenges in two headers, of which one is ours. Allowed.
    ChallengeSeveral,
    /// `WWW-Authenticate` of 64 KiB.
    ChallengeHuge,
    /// `resource_metadata` at another origin, where nothing answers. Allowed.
    ChallengeElsewhere,
    /// 401 for ever, whatever token is shown.
    UnauthorizedForever,
    /// 403 `insufficient_scope` for ever, whatever scope a token has.
    ForbiddenForever,

    // The metadata of the protected resource.
    /// `resource` at another origin.
    ResourceElsewhere,
    /// `resource` with another path.
    ResourceOtherPath,
    /// `resource` whose path has the path of the endpoint as its beginning, but not as a folder: `/mcp-evil`.
    ResourcePrefix,
    /// No `resource`.
    ResourceMissing,
    /// No `authorization_servers`.
    NoAuthorizationServers,
    /// Two `authorization_servers`, of which the first always fails. Allowed.
    FirstServerBroken,
    /// No metadata of the resource; the server of the endpoint is its own authority, as it was at first. Allowed.
    NoResourceMetadata,
    /// No metadata at all, and `/authorize`, `/token` and `/register` at the server of the endpoint. Allowed.
    NoMetadata,
    /// Metadata of the resource at the root of its server alone, with the server as the resource. Allowed.
    ResourceMetadataAtRoot,
    /// HTML for the metadata of the resource.
    ResourceMetadataHtml,
    /// Metadata of the resource that never ends.
    ResourceMetadataEndless,
    /// Metadata of the resource that never comes.
    ResourceMetadataSilent,
    /// Metadata of the resource that is at another origin, where nobody should connect to.
    ResourceMetadataRedirects,

    // The metadata of the authorization server.
    /// `issuer` of somebody else.
    IssuerWrong,
    /// `issuer` with a slash more at the end.
    IssuerTrailingSlash,
    /// No `issuer`.
    IssuerMissing,
    /// Another issuer from the first token on, which knows none of the clients of the one before. Allowed.
    IssuerMoves,
    /// No `code_challenge_methods_supported`.
    PkceMissing,
    /// `plain` as the only code challenge method.
    PkcePlain,
    /// Endpoints with plain `http` at a name that is not this machine's.
    EndpointsPlainHttp,
    /// A token endpoint at a private address.
    TokenEndpointPrivate,
    /// A token endpoint at the link-local address where clouds keep credentials.
    TokenEndpointLinkLocal,
    /// A token endpoint at a private address of IPv6.
    TokenEndpointPrivateIpv6,
    /// No `token_endpoint`.
    TokenEndpointMissing,
    /// A registration endpoint at a private address.
    RegistrationEndpointPrivate,
    /// `javascript:` for the authorization endpoint.
    AuthorizationEndpointJavascript,
    /// `file:` for the authorization endpoint.
    AuthorizationEndpointFile,
    /// A user name in the authorization endpoint, which makes it look like another place.
    AuthorizationEndpointUserinfo,
    /// A command where the authorization endpoint should be.
    AuthorizationEndpointCommand,
    /// Metadata larger than 1 MiB.
    MetadataTooLarge,
    /// Metadata that never ends.
    MetadataEndless,
    /// Metadata that never comes.
    MetadataSilent,
    /// Metadata that is at another origin, where nobody should connect to.
    MetadataRedirects,
    /// Metadata that is always somewhere else.
    MetadataRedirectLoop,
    /// HTML for metadata.
    MetadataHtml,
    /// Metadata that breaks off.
    MetadataInvalidJson,
    /// Metadata that says `issuer` twice, the first time of somebody else.
    MetadataDuplicateKeys,
    /// Metadata of `OpenID` Connect alone, at the oldest of its places. Allowed.
    MetadataOpenIdOnly,

    // Registration.
    /// No clients that describe themselves at a URL. Allowed.
    NoClientDocuments,
    /// No registration of any kind.
    RegistrationMissing,
    /// Registration refused with an error.
    RegistrationRefused,
    /// Registration refused with HTML.
    RegistrationHtml,
    /// Another redirect URI than the one that was registered.
    RegistrationOtherRedirect,
    /// Registration without a `client_id`.
    RegistrationWithoutClientId,

    // The way back from the browser.
    /// The `state` of somebody else.
    StateMixedUp,
    /// No `state`.
    StateMissing,
    /// The `iss` of somebody else.
    IssWrong,
    /// No `iss`, though the metadata promises one.
    IssMissing,
    /// An `iss` that is the same only to one who normalizes URLs.
    IssNormalized,
    /// An `iss` that the metadata does not promise. Allowed.
    IssUnannounced,
    /// Neither an `iss` nor a promise of one. Allowed.
    IssUnsupported,
    /// `access_denied`, with a description that does things to terminals.
    AccessDenied,
    /// The same with the `iss` of somebody else: nothing of it may be shown.
    AccessDeniedIssWrong,
    /// Neither a code nor an error.
    CodeMissing,
    /// A code that is said to be used already.
    CodeUsed,
    /// A code that works twice.
    CodeTwice,

    // The token endpoint.
    /// 307 to another origin, where nobody should connect to.
    TokenRedirects,
    /// HTML with 200.
    TokenHtmlOk,
    /// HTML with 500.
    TokenHtmlError,
    /// An error as it should be, with a description that does things to terminals.
    TokenError,
    /// An error that repeats what was sent.
    TokenEchoes,
    /// Nothing with 200.
    TokenEmpty,
    /// Tokens that break off.
    TokenInvalidJson,
    /// `access_token` twice.
    TokenDuplicateKeys,
    /// No `access_token`.
    TokenMissing,
    /// No `token_type`.
    TokenTypeMissing,
    /// A `token_type` that nobody knows.
    TokenTypeUnknown,
    /// An access token larger than 16 KiB.
    TokenTooLarge,
    /// An access token with the end of a line in it, and a header after that.
    TokenNewline,
    /// An answer that never comes.
    TokenSilent,
    /// An answer that never ends.
    TokenEndless,
    /// No `expires_in`. Allowed.
    ExpiresMissing,
    /// A negative `expires_in`.
    ExpiresNegative,
    /// An `expires_in` beyond the end of time.
    ExpiresHuge,
    /// An `expires_in` that is text.
    ExpiresText,
    /// Never the scope `write`, whoever asks for it. Allowed.
    ScopesFewer,
    /// No refresh token. Allowed.
    RefreshMissing,
    /// A refresh token only for those who ask for `offline_access`. Allowed.
    RefreshOffline,
    /// The same refresh token for ever. Allowed.
    RefreshStays,
    /// Refresh tokens are given out, and refused.
    RefreshRevoked,
    /// Refresh tokens are given out, and refused with a code that no standard has.
    RefreshRefused,
    /// Refresh tokens are answered with 503 once, and taken after that. Allowed.
    RefreshUnavailable,
    /// Tokens are not taken back.
    RevocationFails,

    // Proof of possession.
    /// Tokens are bound to a key. Allowed.
    Dpop,
    /// They are, and proofs must have a nonce. Allowed.
    DpopNonce,
    /// They are, and no nonce is ever right.
    DpopNonceForever,
}
