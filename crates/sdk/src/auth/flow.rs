//! The way to a token, as a machine without input or output: it is told what happened and says what to do next.
//!
//! ```text
//! resource metadata ─► server metadata ─► refresh ──────────────────────────► token
//!   (RFC 9728)          (RFC 8414, OIDC)    │ refused, or nothing to refresh     ▲
//!                                           ▼                                    │
//!                                     registration ─► a person signs in ─► code ─┤
//!                                                     the client's own secret ───┤
//!                                                     an assertion of others ────┘
//! ```
//!
//! Each step is a file of its own, with the rules of its standard; this one only knows their order.

use std::collections::VecDeque;
use std::sync::Arc;

use super::authorize::Pending;
use super::challenge::Challenge;
use super::error::AuthError;
use super::exchange::{Exchange, Reply};
use super::identity::Identity;
use super::oauth::{Grant, Profile};
use super::record::Record;
use super::resource_metadata::ResourceMetadata;
use super::scopes::Scopes;
use super::secret::Secret;
use super::server_metadata::ServerMetadata;
use super::token::Claim;
use crate::egress::Target;
use crate::jose::SigningKey;

/// What to do next.
#[derive(Debug)]
pub(super) enum Action {
    /// Send this, and say what came back.
    Send(Exchange),
    /// Say where people come back to.
    Prepare,
    /// Lead a person there, and say where they came back to.
    Visit(String),
    /// Get an assertion of who asks, made out to this authorization server.
    Assert { audience: String },
    /// That was it.
    Done(Box<Record>),
}

/// What happened.
pub(super) enum Event {
    Begin,
    Replied(Reply),
    /// Nothing came back, for this reason.
    Unreachable(AuthError),
    /// People come back to this URL.
    Prepared(String),
    /// The person came back, at this URL.
    Returned(String),
    Asserted(Secret),
}

/// What a flow starts from.
pub(super) struct Start {
    pub(super) profile: Arc<Profile>,
    /// The server that wants to know who asks.
    pub(super) server: Target,
    pub(super) challenge: Challenge,
    /// What was kept.
    pub(super) earlier: Option<Record>,
    /// Whether somebody can be asked to sign in.
    pub(super) person: bool,
}

/// One way to a token.
pub(super) struct Flow {
    pub(super) start: Start,
    pub(super) step: Step,
    pub(super) resource: Option<ResourceMetadata>,
    pub(super) authority: Option<ServerMetadata>,
    pub(super) identity: Option<Identity>,
    pub(super) key: Option<SigningKey>,
    /// Where people come back to, once it is known.
    pub(super) redirect_uri: Option<String>,
    /// Whether the authorization server forgot what it once registered.
    pub(super) is_forgotten: bool,
    /// Whether the token came of a refresh.
    pub(super) is_renewed: bool,
    /// Whether nothing but a refresh is wanted.
    pub(super) is_only_renewal: bool,
    /// What is asked for.
    pub(super) scopes: Scopes,
    /// What went wrong first, for when nothing goes right.
    pub(super) failure: Option<AuthError>,
}

pub(super) enum Step {
    Begin,
    /// Looks for what the server says of itself.
    Resource {
        at: String,
        then: VecDeque<String>,
    },
    /// Looks for what an authorization server says of itself.
    Authority(Search),
    /// Waits to hear where people come back to.
    Preparing,
    Registering {
        /// Whether the client said what it will ask for.
        with_scopes: bool,
    },
    Visiting(Pending),
    /// Waits for an assertion.
    Asserting,
    /// Waits for an identity provider's answer.
    Exchanging,
    Claiming {
        claim: Claim,
        nonce: Option<String>,
    },
    Over,
}

/// The search for the metadata of authorization servers.
pub(super) struct Search {
    /// Whose; `None` is the server's own origin, as of old.
    pub(super) issuer: Option<String>,
    pub(super) at: String,
    pub(super) then: VecDeque<String>,
    /// Others, if this one cannot be used.
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

    /// Takes in what happened, at this time in seconds since 1970.
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
                super::AuthErrorKind::Setup,
                "this sign-in is over, or was told of something else",
            )),
        }
    }

    /// A place that was asked cannot be reached. Where there are others, they are tried.
    fn failed(&mut self, error: AuthError, now: u64) -> Result<Action, AuthError> {
        match std::mem::replace(&mut self.step, Step::Over) {
            Step::Resource { then, .. } => self.next_resource(then, Some(error)),
            Step::Authority(search) => self.next_authority(search, Some(error), now),
            _ => Err(error),
        }
    }

    /// What tokens are asked for, to the letter.
    pub(super) fn resource(&self) -> String {
        match (&self.resource, &self.start.earlier) {
            (Some(metadata), _) => metadata.resource.clone(),
            (None, Some(earlier)) => earlier.resource.clone(),
            // Without the query, which may hold a key, and without a slash that says nothing.
            (None, None) => self.start.server.to_string().trim_end_matches('/').to_owned(),
        }
    }

    /// Whether a refusal to renew means that there is nothing to renew. A client that has registered itself can do so again;
    /// one that needs no person can go on without.
    pub(super) fn is_over(&self, error: &AuthError) -> bool {
        let can_begin_again =
            self.start.profile.client.is_none() || !matches!(self.start.profile.grant, Grant::Person);
        error.ends_grant() || (error.is_of_client() && can_begin_again)
    }

    /// What was kept, if this authorization server gave it.
    pub(super) fn earlier(&self) -> Option<&Record> {
        let issuer = self.authority.as_ref().map(|authority| &authority.issuer);
        self.start.earlier.as_ref().filter(|earlier| Some(&earlier.issuer) == issuer)
    }
}
