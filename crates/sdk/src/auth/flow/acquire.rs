//! Steps of the OAuth flow that get a token: registration, authorization and token request.

use super::authorization::{self, AuthorizationRequest};
use super::http::FlowResponse;
use super::registration::{self, RegistrationMethod};
use super::server_metadata::{ServerMetadata, default_endpoints};
use super::token_endpoint::{self, TokenGrant};
use super::{Flow, FlowAction, FlowInput, FlowStep, not_started_error};
use crate::auth::challenge::Challenge;
use crate::auth::error::{AuthError, AuthErrorKind};
use crate::auth::oauth::{GrantType, PreregisteredClient};
use crate::auth::scopes::{OFFLINE_ACCESS, Scopes};
use crate::auth::secret::Secret;
use crate::auth::store::record::TokenRecord;
use crate::jose::SigningKey;

impl Flow {
    /// Creates a flow that only refreshes a token, at the token endpoint of its record.
    pub(in crate::auth) fn refresh(start: FlowInput, record: TokenRecord) -> (Self, Option<TokenGrant>) {
        let claim = record.refresh_token.clone().map(TokenGrant::Refresh);
        let mut flow = Flow::new(FlowInput { challenge: Challenge::default(), ..start });
        flow.server_metadata = Some(ServerMetadata {
            issuer: record.issuer.clone(),
            token_endpoint: record.token_endpoint.clone(),
            revocation_endpoint: record.revocation_endpoint.clone(),
            ..default_endpoints("")
        });
        flow.scopes = Scopes::parse(&record.requested);
        flow.identity = Some(flow.input.profile.with_current_secret(record.identity.clone()));
        flow.key = record.key().cloned();
        flow.input.stored = Some(record);
        flow.is_refresh_only = true;
        (flow, claim)
    }

    /// Continues once the authorization server is known: refreshes the stored token, or starts authorization.
    pub(in crate::auth) fn start_acquisition(&mut self, now: u64) -> Result<FlowAction, AuthError> {
        self.key = self.stored_record().and_then(|earlier| earlier.key().cloned());
        if self.wants_dpop() && self.key.is_none() {
            self.key = Some(SigningKey::generate_es256());
        }
        // A refresh cannot add scopes.
        let earlier = self.stored_record().filter(|_| !self.input.challenge.is_insufficient_scope());
        if let Some((token, identity)) =
            earlier.and_then(|e| Some((e.refresh_token.clone()?, e.identity.clone())))
        {
            self.identity = Some(self.input.profile.with_current_secret(identity));
            return self.request_token(TokenGrant::Refresh(token), None, now);
        }
        self.register_or_authorize(now)
    }

    fn wants_dpop(&self) -> bool {
        let requested = self.input.profile.dpop
            || self.input.challenge.dpop
            || self.resource_metadata.as_ref().is_some_and(|resource| resource.dpop);
        requested && self.server_metadata.as_ref().is_some_and(ServerMetadata::supports_dpop)
    }

    pub(in crate::auth) fn register_or_authorize(&mut self, now: u64) -> Result<FlowAction, AuthError> {
        if self.needs_user() && self.redirect_uri.is_none() {
            self.require_server_metadata()?.authorization_endpoint(&self.input.server)?; // fail before the user is redirected
            if !self.input.can_redirect {
                let text = "sign-in required, but no user can be redirected: set a redirect handler";
                return Err(AuthError::new(AuthErrorKind::SignInRequired, text));
            }
            self.step = FlowStep::RedirectUri;
            return Ok(FlowAction::GetRedirectUri);
        }
        // A server that rejected scopes in a registration before would reject them again.
        let with_scopes = self.stored_record().is_none_or(|earlier| earlier.identity.scopes.is_some());
        self.register(with_scopes, now)
    }

    /// Registers the client if needed, with or without the scopes that will be requested.
    fn register(&mut self, with_scopes: bool, now: u64) -> Result<FlowAction, AuthError> {
        let authority = self.require_server_metadata()?;
        let earlier =
            self.stored_record().filter(|_| !self.is_client_unknown).map(|earlier| earlier.identity.clone());
        let (profile, redirect_uri) = (&self.input.profile, self.redirect_uri.as_deref());
        let scopes = with_scopes.then(|| self.scopes_to_request(authority));
        let bound_to = self
            .input
            .stored
            .as_ref()
            .filter(|_| profile.client.as_ref().is_some_and(PreregisteredClient::has_secret));
        let bound_to = bound_to.map(|earlier| &*earlier.issuer);
        match registration::select_method(
            profile,
            authority,
            redirect_uri,
            scopes.as_ref(),
            earlier,
            bound_to,
            now,
        )? {
            RegistrationMethod::Known(identity) => {
                self.identity = Some(identity);
                self.authorize(now)
            }
            RegistrationMethod::Register(request) => {
                self.step = FlowStep::Registration { with_scopes };
                Ok(FlowAction::Send(request))
            }
        }
    }

    pub(in crate::auth) fn on_registration(
        &mut self,
        with_scopes: bool,
        reply: &FlowResponse,
        now: u64,
    ) -> Result<FlowAction, AuthError> {
        let authority = self.require_server_metadata()?;
        if !reply.is_success() && authority.pkce.is_none() {
            // The server has no metadata, and the default endpoints of the revision of March 2025 do not exist either.
            let text = "the server requires authentication, but publishes no OAuth metadata: it may need an \
                 API key or a token from its operator";
            return Err(AuthError::new(AuthErrorKind::Metadata, text));
        }
        let scopes = with_scopes.then(|| self.scopes_to_request(authority));
        match registration::parse_response(reply, authority, self.redirect_uri.as_deref(), scopes.as_ref()) {
            // Some servers accept only their own scopes at registration, but grant those of the resource later.
            Err(error)
                if with_scopes
                    && matches!(error.code(), Some("invalid_client_metadata" | "invalid_scope")) =>
            {
                self.register(false, now)
            }
            identity => {
                self.identity = Some(identity?);
                self.authorize(now)
            }
        }
    }

    /// Starts the grant of the profile once the client is registered: redirects the user, requests a token or gets an
    /// assertion.
    fn authorize(&mut self, now: u64) -> Result<FlowAction, AuthError> {
        let profile = self.input.profile.clone();
        match &profile.grant {
            GrantType::AuthorizationCode => self.redirect_user(),
            GrantType::ClientCredentials => self.request_token(TokenGrant::Credentials, None, now),
            GrantType::Workload(_) | GrantType::Enterprise(_) => {
                let audience = self.require_server_metadata()?.issuer.clone();
                self.step = FlowStep::Assertion;
                Ok(FlowAction::GetAssertion { audience })
            }
        }
    }

    fn redirect_user(&mut self) -> Result<FlowAction, AuthError> {
        let redirect_uri = self.redirect_uri.clone().ok_or_else(not_started_error)?;
        let authority = self.require_server_metadata()?;
        let scopes = self.scopes_to_request(authority);
        let client = self.identity.as_ref().map_or("", |identity| &identity.id);
        let endpoint = authority.authorization_endpoint(&self.input.server)?;
        let (url, pending) = authorization::authorization_request(
            authority,
            endpoint,
            client,
            &redirect_uri,
            &self.resource(),
            &scopes,
        );
        self.step = FlowStep::Redirect(pending);
        Ok(FlowAction::RedirectUser(url))
    }

    /// Returns the scopes to request in the authorization URL, with `offline_access` if the profile wants it, the
    /// server supports it, and there are other scopes.
    fn scopes_to_request(&self, authority: &ServerMetadata) -> Scopes {
        let offers_more = authority.scopes.as_ref().is_some_and(|scopes| scopes.contains(OFFLINE_ACCESS));
        let scopes = self.scopes.clone();
        // `offline_access` alone would replace the default scopes.
        if offers_more && !scopes.is_empty() && self.input.profile.offline_access {
            return scopes.union(&Scopes::parse(OFFLINE_ACCESS));
        }
        scopes
    }

    pub(in crate::auth) fn on_redirect(
        &mut self,
        pending: AuthorizationRequest,
        url: &str,
        now: u64,
    ) -> Result<FlowAction, AuthError> {
        let response = pending.verify_redirect(url)?;
        let (verifier, redirect_uri) = (response.verifier, response.redirect_uri);
        self.request_token(TokenGrant::Code { code: response.code, verifier, redirect_uri }, None, now)
    }

    pub(in crate::auth) fn on_assertion(
        &mut self,
        assertion: Secret,
        now: u64,
    ) -> Result<FlowAction, AuthError> {
        let profile = self.input.profile.clone();
        let GrantType::Enterprise(provider) = &profile.grant else {
            return self.request_token(TokenGrant::Assertion(assertion), None, now);
        };
        let audience = &self.require_server_metadata()?.issuer;
        let mut request = token_endpoint::token_exchange(
            &provider.token_endpoint,
            &assertion,
            audience,
            &self.resource(),
            &self.scopes,
        );
        provider.identity().authenticate(&mut request, None, &provider.token_endpoint, now)?;
        self.step = FlowStep::TokenExchange;
        Ok(FlowAction::Send(request))
    }

    pub(in crate::auth) fn on_token_exchange(
        &mut self,
        reply: &FlowResponse,
        now: u64,
    ) -> Result<FlowAction, AuthError> {
        let profile = self.input.profile.clone();
        let GrantType::Enterprise(provider) = &profile.grant else { return Err(not_started_error()) };
        let assertion = token_endpoint::parse_assertion_response(reply, &provider.token_endpoint)?;
        self.request_token(TokenGrant::Assertion(assertion), None, now)
    }

    fn needs_user(&self) -> bool {
        matches!(self.input.profile.grant, GrantType::AuthorizationCode)
    }
}
