//! OAuth flow as a sans-IO state machine: it receives events and returns the next action.
//!
//! ```text
//! resource metadata ─► server metadata ─► refresh ──────────────────────────► token
//!   (RFC 9728)          (RFC 8414, OIDC)    │ rejected, or no refresh token      ▲
//!                                           ▼                                    │
//!                                     registration ─► user signs in ─────► code ─┤
//!                                                     client credentials ────────┤
//!                                                     assertion ─────────────────┘
//! ```
//!
//! Each step has its own file with the rules of its standard; this file defines only their order.

pub(super) mod acquire;
pub(super) mod authorization;
pub(super) mod client_identity;
pub(super) mod discovery;
pub(super) mod dpop;
pub(super) mod http;
pub(super) mod oauth_error;
pub(super) mod pkce;
pub(super) mod private_key;
pub(super) mod registration;
pub(super) mod resource_metadata;
pub(super) mod server_metadata;
pub(super) mod token_endpoint;
mod token_request;

use std::collections::VecDeque;
use std::sync::Arc;

use self::authorization::AuthorizationRequest;
use self::client_identity::ClientIdentity;
use self::http::{FlowRequest, FlowResponse};
use self::resource_metadata::ResourceMetadata;
use self::server_metadata::ServerMetadata;
use self::token_endpoint::TokenGrant;
use super::challenge::Challenge;
use super::error::{AuthError, AuthErrorKind};
use super::oauth::{GrantType, OAuthConfig};
use super::scopes::Scopes;
use super::secret::Secret;
use super::store::record::TokenRecord;
use crate::egress::Target;
use crate::jose::SigningKey;

/// Next action that the authorization flow requests from its runner.
#[derive(Debug)]
pub(super) enum FlowAction {
    /// Send the request and report the response.
    Send(FlowRequest),
    /// The caller must determine the redirect URI of the client and report it.
    GetRedirectUri,
    /// Redirect the user to this URL and report the URL of the redirect back.
    RedirectUser(String),
    /// Get an assertion of the client's or user's identity for this authorization server.
    GetAssertion { audience: String },
    /// The flow is complete and has this token.
    Done(Box<TokenRecord>),
}

/// Input of the authorization flow: its start, or the outcome of its last action.
pub(super) enum FlowEvent {
    Start,
    Response(FlowResponse),
    /// No response was received, for this reason.
    Unreachable(AuthError),
    /// Redirect URI of the client, which the redirect handler has provided.
    RedirectUri(String),
    /// The URL of the redirect back from the authorization server.
    Redirect(String),
    Assertion(Secret),
}

/// Configuration, server and stored tokens with which an authorization flow starts.
pub(super) struct FlowInput {
    pub(super) profile: Arc<OAuthConfig>,
    /// MCP server that requires authentication.
    pub(super) server: Target,
    pub(super) challenge: Challenge,
    /// Stored token record of the server, if there is one.
    pub(super) stored: Option<TokenRecord>,
    /// Whether there is a redirect handler, so that a user can sign in.
    pub(super) can_redirect: bool,
}

/// State machine of one OAuth authorization, from the challenge of the server to the token.
pub(super) struct Flow {
    pub(super) input: FlowInput,
    pub(super) step: FlowStep,
    pub(super) resource_metadata: Option<ResourceMetadata>,
    pub(super) server_metadata: Option<ServerMetadata>,
    pub(super) identity: Option<ClientIdentity>,
    pub(super) key: Option<SigningKey>,
    /// Redirect URI of the client, once known.
    pub(super) redirect_uri: Option<String>,
    /// Whether the authorization server no longer knows the registered client.
    pub(super) is_client_unknown: bool,
    /// Whether the token of the flow comes from a refresh.
    pub(super) is_refreshed: bool,
    /// Whether the flow must only refresh the token, and must not start a sign-in.
    pub(super) is_refresh_only: bool,
    /// Scopes to request from the authorization server.
    pub(super) scopes: Scopes,
    /// First failure of the metadata search, returned if all alternatives fail.
    pub(super) failure: Option<AuthError>,
}

pub(super) enum FlowStep {
    Start,
    /// Search for protected resource metadata at the URL of the challenge and the well-known URLs.
    ResourceMetadata {
        url: String,
        next_urls: VecDeque<String>,
    },
    /// Search for authorization server metadata at the well-known URLs.
    ServerMetadata(MetadataSearch),
    /// Waiting for the redirect URI of the redirect handler.
    RedirectUri,
    Registration {
        /// Whether the client registration lists the scopes.
        with_scopes: bool,
    },
    Redirect(AuthorizationRequest),
    /// Waiting for an assertion of the platform or the identity provider.
    Assertion,
    /// Waiting for the response of the identity provider to the token exchange.
    TokenExchange,
    TokenRequest {
        claim: TokenGrant,
        nonce: Option<String>,
    },
    Done,
}

/// State of the search for authorization server metadata: the current URL, and those to try next.
pub(super) struct MetadataSearch {
    /// Issuer whose metadata is searched; `None` is the server's own origin, as in the revision of March 2025.
    pub(super) issuer: Option<String>,
    pub(super) url: String,
    pub(super) next_urls: VecDeque<String>,
    /// Issuers to try if the current one cannot be used.
    pub(super) next_issuers: VecDeque<String>,
}

impl Flow {
    pub(super) fn new(input: FlowInput) -> Self {
        Flow {
            input,
            step: FlowStep::Start,
            resource_metadata: None,
            server_metadata: None,
            identity: None,
            key: None,
            redirect_uri: None,
            is_client_unknown: false,
            is_refreshed: false,
            is_refresh_only: false,
            scopes: Scopes::default(),
            failure: None,
        }
    }

    /// Advances the flow with an event, and returns the next action. `now` is in seconds since the Unix epoch.
    pub(super) fn next(&mut self, event: FlowEvent, now: u64) -> Result<FlowAction, AuthError> {
        let event = match event {
            FlowEvent::Unreachable(error) => return self.on_unreachable(error, now),
            event => event,
        };
        match (std::mem::replace(&mut self.step, FlowStep::Done), event) {
            (FlowStep::Start, FlowEvent::Start) => self.find_resource(),
            (FlowStep::ResourceMetadata { url, next_urls }, FlowEvent::Response(reply)) => {
                self.on_resource_metadata(&url, next_urls, &reply)
            }
            (FlowStep::ServerMetadata(search), FlowEvent::Response(reply)) => {
                self.on_server_metadata(search, &reply, now)
            }
            (FlowStep::RedirectUri, FlowEvent::RedirectUri(uri)) => {
                self.redirect_uri = Some(uri);
                self.register_or_authorize(now)
            }
            (FlowStep::Registration { with_scopes }, FlowEvent::Response(reply)) => {
                self.on_registration(with_scopes, &reply, now)
            }
            (FlowStep::Redirect(pending), FlowEvent::Redirect(url)) => self.on_redirect(pending, &url, now),
            (FlowStep::Assertion, FlowEvent::Assertion(assertion)) => self.on_assertion(assertion, now),
            (FlowStep::TokenExchange, FlowEvent::Response(reply)) => self.on_token_exchange(&reply, now),
            (FlowStep::TokenRequest { claim, nonce }, FlowEvent::Response(reply)) => {
                self.on_token_response(claim, nonce.as_deref(), &reply, now)
            }
            _ => Err(AuthError::new(
                AuthErrorKind::Setup,
                "this sign-in has finished or received an unexpected event",
            )),
        }
    }

    /// Continues the flow after an unreachable URL: tries the alternatives, if there are any.
    fn on_unreachable(&mut self, error: AuthError, now: u64) -> Result<FlowAction, AuthError> {
        match std::mem::replace(&mut self.step, FlowStep::Done) {
            FlowStep::ResourceMetadata { next_urls, .. } => {
                self.try_next_resource_url(next_urls, Some(error))
            }
            FlowStep::ServerMetadata(search) => self.try_next_server_url(search, Some(error), now),
            _ => Err(error),
        }
    }

    /// Returns the resource identifier that tokens are requested for.
    pub(super) fn resource(&self) -> String {
        match (&self.resource_metadata, &self.input.stored) {
            (Some(metadata), _) => metadata.resource.clone(),
            (None, Some(earlier)) => earlier.resource.clone(),
            // Without the query, which may contain a key, and without a trailing slash.
            (None, None) => self.input.server.to_string().trim_end_matches('/').to_owned(),
        }
    }

    /// Returns whether a failed refresh makes the stored grant useless, so that a new token must be requested. A
    /// self-registered client can register again, and a client without a user can request a new token.
    pub(super) fn ends_grant(&self, error: &AuthError) -> bool {
        let can_begin_again = self.input.profile.client.is_none()
            || !matches!(self.input.profile.grant, GrantType::AuthorizationCode);
        error.ends_grant() || (error.is_client_error() && can_begin_again)
    }

    /// Returns the stored token record if it was issued by the current authorization server.
    pub(super) fn stored_record(&self) -> Option<&TokenRecord> {
        let issuer = self.server_metadata.as_ref().map(|authority| &authority.issuer);
        self.input.stored.as_ref().filter(|earlier| Some(&earlier.issuer) == issuer)
    }

    fn require_server_metadata(&self) -> Result<&ServerMetadata, AuthError> {
        self.server_metadata.as_ref().ok_or_else(not_started_error)
    }
}

fn not_started_error() -> AuthError {
    AuthError::new(AuthErrorKind::Setup, "the sign-in was resumed before it started")
}
