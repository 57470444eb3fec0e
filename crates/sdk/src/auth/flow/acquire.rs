//! Acquisition steps of a flow: registration, authorization and token request.

use super::authorization::{self, Pending};
use super::dpop;
use super::http::{Exchange, Reply};
use super::registration::{self, Way};
use super::server_metadata::{ServerMetadata, without_document};
use super::token_endpoint::{self, Claim, Tokens};
use super::{Action, Flow, Start, Step, nothing_known};
use crate::auth::challenge::Challenge;
use crate::auth::error::{AuthError, AuthErrorKind, quoted};
use crate::auth::oauth::{Grant, Preregistered};
use crate::auth::scopes::{OFFLINE_ACCESS, Scopes};
use crate::auth::secret::Secret;
use crate::auth::store::record::{Origin, Record};
use crate::jose::SigningKey;

impl Flow {
    /// Creates a flow that only refreshes a token, at the token endpoint of its record.
    pub(in crate::auth) fn refresh(start: Start, record: Record) -> (Self, Option<Claim>) {
        let claim = record.refresh_token.clone().map(Claim::Refresh);
        let mut flow = Flow::new(Start { challenge: Challenge::default(), ..start });
        flow.authority = Some(ServerMetadata {
            issuer: record.issuer.clone(),
            token_endpoint: record.token_endpoint.clone(),
            revocation_endpoint: record.revocation_endpoint.clone(),
            ..without_document("")
        });
        flow.scopes = Scopes::read(&record.requested);
        flow.identity = Some(flow.start.profile.known_as(record.identity.clone()));
        flow.key = record.key().cloned();
        flow.start.earlier = Some(record);
        flow.is_only_renewal = true;
        (flow, claim)
    }

    /// Continues once the authorization server is known: refreshes the stored token, or starts authorization.
    pub(in crate::auth) fn begin_claim(&mut self, now: u64) -> Result<Action, AuthError> {
        self.key = self.earlier().and_then(|earlier| earlier.key().cloned());
        if self.wants_dpop() && self.key.is_none() {
            self.key = Some(SigningKey::generate_es256());
        }
        // A refresh cannot add scopes.
        let earlier = self.earlier().filter(|_| !self.start.challenge.wants_more_scope());
        if let Some((token, identity)) =
            earlier.and_then(|e| Some((e.refresh_token.clone()?, e.identity.clone())))
        {
            self.identity = Some(self.start.profile.known_as(identity));
            return self.claim(Claim::Refresh(token), None, now);
        }
        self.become_known(now)
    }

    fn wants_dpop(&self) -> bool {
        let wanted = self.start.profile.dpop
            || self.start.challenge.dpop
            || self.resource.as_ref().is_some_and(|resource| resource.dpop);
        wanted && self.authority.as_ref().is_some_and(ServerMetadata::knows_dpop)
    }

    pub(in crate::auth) fn become_known(&mut self, now: u64) -> Result<Action, AuthError> {
        if self.needs_person() && self.redirect_uri.is_none() {
            self.authority()?.authorization_endpoint(&self.start.server)?; // fail before the user is redirected
            if !self.start.person {
                let text = "sign-in required, but no user can be redirected: set a redirect handler";
                return Err(AuthError::new(AuthErrorKind::Nobody, text));
            }
            self.step = Step::Preparing;
            return Ok(Action::Prepare);
        }
        // A server that rejected scopes in a registration before would reject them again.
        let with_scopes = self.earlier().is_none_or(|earlier| earlier.identity.scopes.is_some());
        self.register(with_scopes, now)
    }

    /// Registers the client if needed, with or without the scopes that will be requested.
    fn register(&mut self, with_scopes: bool, now: u64) -> Result<Action, AuthError> {
        let authority = self.authority()?;
        let earlier = self.earlier().filter(|_| !self.is_forgotten).map(|earlier| earlier.identity.clone());
        let (profile, redirect_uri) = (&self.start.profile, self.redirect_uri.as_deref());
        let scopes = with_scopes.then(|| self.wanted(authority));
        let bound_to = self
            .start
            .earlier
            .as_ref()
            .filter(|_| profile.client.as_ref().is_some_and(Preregistered::has_secret));
        let bound_to = bound_to.map(|earlier| &*earlier.issuer);
        match registration::choose(profile, authority, redirect_uri, scopes.as_ref(), earlier, bound_to, now)?
        {
            Way::Known(identity) => {
                self.identity = Some(identity);
                self.prove(now)
            }
            Way::Register(request) => {
                self.step = Step::Registering { with_scopes };
                Ok(Action::Send(request))
            }
        }
    }

    pub(in crate::auth) fn registered(
        &mut self,
        with_scopes: bool,
        reply: &Reply,
        now: u64,
    ) -> Result<Action, AuthError> {
        let authority = self.authority()?;
        if !reply.is_success() && authority.pkce.is_none() {
            // The server has no metadata, and the default endpoints of the revision of March 2025 do not exist either.
            let text = "the server requires authentication, but publishes no OAuth metadata: it may need an \
                 API key or a token from its operator";
            return Err(AuthError::new(AuthErrorKind::Metadata, text));
        }
        let scopes = with_scopes.then(|| self.wanted(authority));
        match registration::read(reply, authority, self.redirect_uri.as_deref(), scopes.as_ref()) {
            // Some servers accept only their own scopes at registration, but grant those of the resource later.
            Err(error)
                if with_scopes
                    && matches!(error.code(), Some("invalid_client_metadata" | "invalid_scope")) =>
            {
                self.register(false, now)
            }
            identity => {
                self.identity = Some(identity?);
                self.prove(now)
            }
        }
    }

    /// Requests authorization once the client is registered.
    fn prove(&mut self, now: u64) -> Result<Action, AuthError> {
        let profile = self.start.profile.clone();
        match &profile.grant {
            Grant::Person => self.visit(),
            Grant::Client => self.claim(Claim::Credentials, None, now),
            Grant::Workload(_) | Grant::Enterprise(_) => {
                let audience = self.authority()?.issuer.clone();
                self.step = Step::Asserting;
                Ok(Action::Assert { audience })
            }
        }
    }

    fn visit(&mut self) -> Result<Action, AuthError> {
        let redirect_uri = self.redirect_uri.clone().ok_or_else(nothing_known)?;
        let authority = self.authority()?;
        let scopes = self.wanted(authority);
        let client = self.identity.as_ref().map_or("", |identity| &identity.id);
        let endpoint = authority.authorization_endpoint(&self.start.server)?;
        let (url, pending) =
            authorization::begin(authority, endpoint, client, &redirect_uri, &self.resource(), &scopes);
        self.step = Step::Visiting(pending);
        Ok(Action::Visit(url))
    }

    /// Returns the scopes to request from the user.
    fn wanted(&self, authority: &ServerMetadata) -> Scopes {
        let offers_more = authority.scopes.as_ref().is_some_and(|scopes| scopes.contains(OFFLINE_ACCESS));
        let scopes = self.scopes.clone();
        // `offline_access` alone would replace the default scopes.
        if offers_more && !scopes.is_empty() && self.start.profile.offline_access {
            return scopes.union(&Scopes::read(OFFLINE_ACCESS));
        }
        scopes
    }

    pub(in crate::auth) fn returned(
        &mut self,
        pending: Pending,
        url: &str,
        now: u64,
    ) -> Result<Action, AuthError> {
        let returned = pending.finish(url)?;
        let (verifier, redirect_uri) = (returned.verifier, returned.redirect_uri);
        self.claim(Claim::Code { code: returned.code, verifier, redirect_uri }, None, now)
    }

    pub(in crate::auth) fn asserted(&mut self, assertion: Secret, now: u64) -> Result<Action, AuthError> {
        let profile = self.start.profile.clone();
        let Grant::Enterprise(provider) = &profile.grant else {
            return self.claim(Claim::Assertion(assertion), None, now);
        };
        let audience = &self.authority()?.issuer;
        let mut request = token_endpoint::token_exchange(
            &provider.token_endpoint,
            &assertion,
            audience,
            &self.resource(),
            &self.scopes,
        );
        provider.identity().sign(&mut request, None, &provider.token_endpoint, now)?;
        self.step = Step::Exchanging;
        Ok(Action::Send(request))
    }

    pub(in crate::auth) fn exchanged(&mut self, reply: &Reply, now: u64) -> Result<Action, AuthError> {
        let profile = self.start.profile.clone();
        let Grant::Enterprise(provider) = &profile.grant else { return Err(nothing_known()) };
        let assertion = token_endpoint::read_assertion(reply, &provider.token_endpoint)?;
        self.claim(Claim::Assertion(assertion), None, now)
    }

    /// Sends the token request.
    pub(in crate::auth) fn claim(
        &mut self,
        claim: Claim,
        nonce: Option<String>,
        now: u64,
    ) -> Result<Action, AuthError> {
        let request = self.token_request(&claim, nonce.as_deref(), now)?;
        self.step = Step::Claiming { claim, nonce };
        Ok(Action::Send(request))
    }

    fn token_request(&self, claim: &Claim, nonce: Option<&str>, now: u64) -> Result<Exchange, AuthError> {
        let authority = self.authority()?;
        let identity = self.identity.as_ref().ok_or_else(nothing_known)?;
        let mut request = claim.request(&authority.token_endpoint, &self.resource(), &self.scopes);
        identity.sign(&mut request, self.start.profile.key.as_ref(), &authority.issuer, now)?;
        if let Some(key) = &self.key {
            let proof = dpop::proof(key, "POST", &authority.token_endpoint, None, nonce, now)?;
            request.header("dpop", &proof);
        }
        Ok(request)
    }

    pub(in crate::auth) fn claimed(
        &mut self,
        claim: Claim,
        nonce: Option<&str>,
        reply: &Reply,
        now: u64,
    ) -> Result<Action, AuthError> {
        let issuer = self.authority()?.issuer.clone();
        match token_endpoint::read(reply, &issuer) {
            Ok(tokens) => self.done(tokens, &claim, now),
            // Retry with a nonce only once: a server that rejects every nonce must not cause a loop.
            Err(error)
                if error.code() == Some("use_dpop_nonce") && nonce.is_none() && reply.nonce.is_some() =>
            {
                self.claim(claim, reply.nonce.clone(), now)
            }
            // A grant that has ended restarts authorization, unless only a refresh is requested. Other errors may be
            // transient or need a fix, such as a wrong client secret.
            Err(error) => match claim {
                Claim::Refresh(_) if self.is_over(&error) && !self.is_only_renewal => {
                    self.is_forgotten = error.code() != Some("invalid_grant");
                    self.become_known(now)
                }
                _ => Err(error),
            },
        }
    }

    fn done(&mut self, tokens: Tokens, claim: &Claim, now: u64) -> Result<Action, AuthError> {
        let (authority, identity) = (self.authority()?, self.identity.clone().ok_or_else(nothing_known)?);
        let origin = Origin {
            issuer: authority.issuer.clone(),
            resource: self.resource(),
            token_endpoint: authority.token_endpoint.clone(),
            revocation_endpoint: authority.revocation_endpoint.clone(),
            identity,
        };
        let mut record = Record::new(origin, &self.scopes, self.key.clone());
        if tokens.dpop && self.key.is_none() {
            let text = "the token is bound to a key, but no key was presented: it cannot be used";
            return Err(AuthError::new(AuthErrorKind::Token, text));
        }
        if !tokens.dpop && self.resource.as_ref().is_some_and(|resource| resource.dpop) {
            let text = format!(
                "the server accepts only key-bound tokens, but `{}` issued another: contact their operators",
                quoted(&authority.issuer)
            );
            return Err(AuthError::new(AuthErrorKind::Token, text));
        }
        self.is_renewed = matches!(claim, Claim::Refresh(_));
        record.granted = match (&tokens.scopes, claim, self.earlier()) {
            (Some(scopes), ..) => scopes.to_string(),
            (None, Claim::Refresh(_), Some(earlier)) => earlier.granted.clone(),
            (None, ..) => self.scopes.to_string(),
        };
        record.dpop = tokens.dpop;
        record.live_for(tokens.expires_in, now);
        record.access_token = Some(tokens.access);
        record.refresh_token = match claim {
            Claim::Refresh(same) => Some(tokens.refresh.unwrap_or_else(|| same.clone())),
            _ => tokens.refresh,
        };
        Ok(Action::Done(Box::new(record)))
    }

    fn needs_person(&self) -> bool {
        matches!(self.start.profile.grant, Grant::Person)
    }
}
