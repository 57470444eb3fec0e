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

use std::collections::VecDeque;
use std::sync::Arc;

use self::authorization::Pending;
use self::client_identity::Identity;
use self::http::{Exchange, Reply};
use self::resource_metadata::ResourceMetadata;
use self::server_metadata::ServerMetadata;
use self::token_endpoint::Claim;
use super::challenge::Challenge;
use super::error::{AuthError, AuthErrorKind};
use super::oauth::{Grant, Profile};
use super::scopes::Scopes;
use super::secret::Secret;
use super::store::record::Record;
use crate::egress::Target;
use crate::jose::SigningKey;

/// Next action.
#[derive(Debug)]
pub(super) enum Action {
    /// Send the request and report the response.
    Send(Exchange),
    /// Report the redirect URI.
    Prepare,
    /// Redirect the user to this URL and report the URL of the redirect back.
    Visit(String),
    /// Get an assertion of the client's or user's identity for this authorization server.
    Assert { audience: String },
    /// The flow is complete.
    Done(Box<Record>),
}

/// Input of the state machine.
pub(super) enum Event {
    Begin,
    Replied(Reply),
    /// No response was received, for this reason.
    Unreachable(AuthError),
    /// The redirect URI.
    Prepared(String),
    /// The URL of the redirect back from the authorization server.
    Returned(String),
    Asserted(Secret),
}

/// Input of a flow.
pub(super) struct Start {
    pub(super) profile: Arc<Profile>,
    /// The server that requires authentication.
    pub(super) server: Target,
    pub(super) challenge: Challenge,
    /// The stored token record.
    pub(super) earlier: Option<Record>,
    /// Whether a user can be redirected.
    pub(super) person: bool,
}

/// One run of the authorization flow.
pub(super) struct Flow {
    pub(super) start: Start,
    pub(super) step: Step,
    pub(super) resource: Option<ResourceMetadata>,
    pub(super) authority: Option<ServerMetadata>,
    pub(super) identity: Option<Identity>,
    pub(super) key: Option<SigningKey>,
    /// The redirect URI, once known.
    pub(super) redirect_uri: Option<String>,
    /// Whether the authorization server no longer knows the registered client.
    pub(super) is_forgotten: bool,
    /// Whether the token comes from a refresh.
    pub(super) is_renewed: bool,
    /// Whether only a refresh is requested.
    pub(super) is_only_renewal: bool,
    /// Requested scopes.
    pub(super) scopes: Scopes,
    /// The first failure, returned if all alternatives fail.
    pub(super) failure: Option<AuthError>,
}

pub(super) enum Step {
    Begin,
    /// Searching for resource metadata.
    Resource {
        at: String,
        then: VecDeque<String>,
    },
    /// Searching for authorization server metadata.
    Authority(Search),
    /// Waiting for the redirect URI.
    Preparing,
    Registering {
        /// Whether the registration lists the scopes.
        with_scopes: bool,
    },
    Visiting(Pending),
    /// Waiting for an assertion.
    Asserting,
    /// Waiting for the response of the identity provider.
    Exchanging,
    Claiming {
        claim: Claim,
        nonce: Option<String>,
    },
    Over,
}

/// Search for the metadata of authorization servers.
pub(super) struct Search {
    /// The issuer; `None` is the server's own origin, as in the revision of March 2025.
    pub(super) issuer: Option<String>,
    pub(super) at: String,
    pub(super) then: VecDeque<String>,
    /// Remaining issuers, if this one cannot be used.
    pub(super) others: VecDeque<String>,
}

impl Flow {
    pub(super) fn new(start: Start) -> Self {
        Flow {
            start,
            step: Step::Begin,
            resource: None,
            authority: None,
            identity: None,
            key: None,
            redirect_uri: None,
            is_forgotten: false,
            is_renewed: false,
            is_only_renewal: false,
            scopes: Scopes::default(),
            failure: None,
        }
    }

    /// Processes an event. `now` is in seconds since the Unix epoch.
    pub(super) fn next(&mut self, event: Event, now: u64) -> Result<Action, AuthError> {
        let event = match event {
            Event::Unreachable(error) => return self.failed(error, now),
            event => event,
        };
        match (std::mem::replace(&mut self.step, Step::Over), event) {
            (Step::Begin, Event::Begin) => self.find_resource(),
            (Step::Resource { at, then }, Event::Replied(reply)) => self.resource_replied(&at, then, &reply),
            (Step::Authority(search), Event::Replied(reply)) => self.authority_replied(search, &reply, now),
            (Step::Preparing, Event::Prepared(uri)) => {
                self.redirect_uri = Some(uri);
                self.become_known(now)
            }
            (Step::Registering { with_scopes }, Event::Replied(reply)) => {
                self.registered(with_scopes, &reply, now)
            }
            (Step::Visiting(pending), Event::Returned(url)) => self.returned(pending, &url, now),
            (Step::Asserting, Event::Asserted(assertion)) => self.asserted(assertion, now),
            (Step::Exchanging, Event::Replied(reply)) => self.exchanged(&reply, now),
            (Step::Claiming { claim, nonce }, Event::Replied(reply)) => {
                self.claimed(claim, nonce.as_deref(), &reply, now)
            }
            _ => Err(AuthError::new(
                AuthErrorKind::Setup,
                "this sign-in has finished or received an unexpected event",
            )),
        }
    }

    /// Handles an unreachable URL: tries the alternatives, if there are any.
    fn failed(&mut self, error: AuthError, now: u64) -> Result<Action, AuthError> {
        match std::mem::replace(&mut self.step, Step::Over) {
            Step::Resource { then, .. } => self.next_resource(then, Some(error)),
            Step::Authority(search) => self.next_authority(search, Some(error), now),
            _ => Err(error),
        }
    }

    /// Returns the resource identifier that tokens are requested for.
    pub(super) fn resource(&self) -> String {
        match (&self.resource, &self.start.earlier) {
            (Some(metadata), _) => metadata.resource.clone(),
            (None, Some(earlier)) => earlier.resource.clone(),
            // Without the query, which may contain a key, and without a trailing slash.
            (None, None) => self.start.server.to_string().trim_end_matches('/').to_owned(),
        }
    }

    /// Returns whether a failed refresh ends the grant. A self-registered client can register again, and a client
    /// without a user can request a new token.
    pub(super) fn is_over(&self, error: &AuthError) -> bool {
        let can_begin_again =
            self.start.profile.client.is_none() || !matches!(self.start.profile.grant, Grant::Person);
        error.ends_grant() || (error.is_of_client() && can_begin_again)
    }

    /// Returns the stored record if it was issued by this authorization server.
    pub(super) fn earlier(&self) -> Option<&Record> {
        let issuer = self.authority.as_ref().map(|authority| &authority.issuer);
        self.start.earlier.as_ref().filter(|earlier| Some(&earlier.issuer) == issuer)
    }

    fn authority(&self) -> Result<&ServerMetadata, AuthError> {
        self.authority.as_ref().ok_or_else(nothing_known)
    }
}

fn nothing_known() -> AuthError {
    AuthError::new(AuthErrorKind::Setup, "the sign-in was resumed before it started")
}
