//! Token request steps of the OAuth flow: the request, its retry with a nonce, and the record of the issued tokens.

use super::dpop;
use super::http::{FlowRequest, FlowResponse};
use super::token_endpoint::{self, TokenGrant, TokenResponse};
use super::{Flow, FlowAction, FlowStep, not_started_error};
use crate::auth::error::{AuthError, AuthErrorKind, sanitize};
use crate::auth::store::record::{GrantOrigin, TokenRecord};

impl Flow {
    /// Creates the action that sends the token request.
    pub(in crate::auth) fn request_token(
        &mut self,
        claim: TokenGrant,
        nonce: Option<String>,
        now: u64,
    ) -> Result<FlowAction, AuthError> {
        let request = self.token_request(&claim, nonce.as_deref(), now)?;
        self.step = FlowStep::TokenRequest { claim, nonce };
        Ok(FlowAction::Send(request))
    }

    fn token_request(
        &self,
        claim: &TokenGrant,
        nonce: Option<&str>,
        now: u64,
    ) -> Result<FlowRequest, AuthError> {
        let authority = self.require_server_metadata()?;
        let identity = self.identity.as_ref().ok_or_else(not_started_error)?;
        let mut request = claim.request(&authority.token_endpoint, &self.resource(), &self.scopes);
        identity.authenticate(&mut request, self.input.profile.key.as_ref(), &authority.issuer, now)?;
        if let Some(key) = &self.key {
            let proof = dpop::proof(key, "POST", &authority.token_endpoint, None, nonce, now)?;
            request.header("dpop", &proof);
        }
        Ok(request)
    }

    pub(in crate::auth) fn on_token_response(
        &mut self,
        claim: TokenGrant,
        nonce: Option<&str>,
        reply: &FlowResponse,
        now: u64,
    ) -> Result<FlowAction, AuthError> {
        let issuer = self.require_server_metadata()?.issuer.clone();
        match token_endpoint::parse_token_response(reply, &issuer) {
            Ok(tokens) => self.finish(tokens, &claim, now),
            // Retry with a nonce only once: a server that rejects every nonce must not cause a loop.
            Err(error)
                if error.code() == Some("use_dpop_nonce") && nonce.is_none() && reply.nonce.is_some() =>
            {
                self.request_token(claim, reply.nonce.clone(), now)
            }
            // A grant that has ended restarts authorization, unless only a refresh is requested. Other errors may be
            // transient or need a fix, such as a wrong client secret.
            Err(error) => match claim {
                TokenGrant::Refresh(_) if self.ends_grant(&error) && !self.is_refresh_only => {
                    self.is_client_unknown = error.code() != Some("invalid_grant");
                    self.register_or_authorize(now)
                }
                _ => Err(error),
            },
        }
    }

    fn finish(
        &mut self,
        tokens: TokenResponse,
        claim: &TokenGrant,
        now: u64,
    ) -> Result<FlowAction, AuthError> {
        let (authority, identity) =
            (self.require_server_metadata()?, self.identity.clone().ok_or_else(not_started_error)?);
        let origin = GrantOrigin {
            issuer: authority.issuer.clone(),
            resource: self.resource(),
            token_endpoint: authority.token_endpoint.clone(),
            revocation_endpoint: authority.revocation_endpoint.clone(),
            identity,
        };
        let mut record = TokenRecord::new(origin, &self.scopes, self.key.clone());
        if tokens.dpop && self.key.is_none() {
            let text =
                "the token is bound to a key, but the client requested one without a key: it cannot be used";
            return Err(AuthError::new(AuthErrorKind::Token, text));
        }
        if !tokens.dpop && self.resource_metadata.as_ref().is_some_and(|resource| resource.dpop) {
            let text = format!(
                "the server accepts only key-bound tokens, but `{}` issued another: contact their operators",
                sanitize(&authority.issuer)
            );
            return Err(AuthError::new(AuthErrorKind::Token, text));
        }
        self.is_refreshed = matches!(claim, TokenGrant::Refresh(_));
        record.granted = match (&tokens.scopes, claim, self.stored_record()) {
            (Some(scopes), ..) => scopes.to_string(),
            (None, TokenGrant::Refresh(_), Some(earlier)) => earlier.granted.clone(),
            (None, ..) => self.scopes.to_string(),
        };
        record.dpop = tokens.dpop;
        record.set_lifetime(tokens.expires_in, now);
        record.access_token = Some(tokens.access);
        record.refresh_token = match claim {
            TokenGrant::Refresh(refresh_token) => {
                Some(tokens.refresh.unwrap_or_else(|| refresh_token.clone()))
            }
            _ => tokens.refresh,
        };
        Ok(FlowAction::Done(Box::new(record)))
    }
}
