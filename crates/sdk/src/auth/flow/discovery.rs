//! Discovery steps of a flow: resource metadata and authorization server metadata.

use std::collections::VecDeque;

use super::http::{Exchange, Purpose, Reply};
use super::resource_metadata;
use super::server_metadata::{self, Expected};
use super::{Action, Flow, Search, Step};
use crate::auth::error::{AuthError, AuthErrorKind, quoted};
use crate::auth::scopes;
use crate::egress::Target;

impl Flow {
    pub(in crate::auth) fn find_resource(&mut self) -> Result<Action, AuthError> {
        let stated = self.start.challenge.resource_metadata.as_deref();
        let places = resource_metadata::locations(&self.start.server, stated);
        self.look_for_resource(places.into())
            .ok_or_else(|| AuthError::new(AuthErrorKind::Metadata, "no resource metadata URL is known"))
    }

    fn look_for_resource(&mut self, mut places: VecDeque<String>) -> Option<Action> {
        let at = places.pop_front()?;
        let request = Exchange::get(Purpose::ResourceMetadata, &at);
        self.step = Step::Resource { at, then: places };
        Some(Action::Send(request))
    }

    pub(in crate::auth) fn resource_replied(
        &mut self,
        at: &str,
        then: VecDeque<String>,
        reply: &Reply,
    ) -> Result<Action, AuthError> {
        if reply.is_success() {
            let metadata = match resource_metadata::read(&reply.body, &self.start.server, at) {
                Ok(metadata) => metadata,
                Err(error) => return self.next_resource(then, Some(error)),
            };
            let mut issuers: VecDeque<_> = metadata.authorization_servers.iter().cloned().collect();
            // Prefer the authorization server where the client is already registered, if the resource still lists it.
            let preferred = [
                self.start.profile.issuer.clone(),
                self.start.earlier.as_ref().map(|earlier| earlier.issuer.clone()),
            ];
            if let Some(place) =
                preferred.into_iter().flatten().find_map(|issuer| issuers.iter().position(|i| *i == issuer))
            {
                issuers.swap(0, place);
            }
            (self.resource, self.failure) = (Some(metadata), None);
            return self.next_issuer(issuers);
        }
        let broken = (!reply.is_missing()).then(|| unanswered("the server", at, reply.status));
        self.next_resource(then, broken)
    }

    /// Tries the next URL. If no URL has metadata, falls back to the revision of March 2025, where the server itself was
    /// the authorization server.
    pub(in crate::auth) fn next_resource(
        &mut self,
        then: VecDeque<String>,
        failure: Option<AuthError>,
    ) -> Result<Action, AuthError> {
        self.failure = self.failure.take().or(failure);
        if let Some(action) = self.look_for_resource(then) {
            return Ok(action);
        }
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let origin = self.start.server.origin();
        let root = Target::typed(&origin)
            .map_err(|error| AuthError::new(AuthErrorKind::Metadata, error.to_string()))?;
        let then: VecDeque<_> = server_metadata::locations(&root).into();
        self.look_for_authority(Search { issuer: None, at: String::new(), then, others: VecDeque::new() })
    }

    fn next_issuer(&mut self, mut issuers: VecDeque<String>) -> Result<Action, AuthError> {
        let Some(issuer) = issuers.pop_front() else {
            let nobody = || AuthError::new(AuthErrorKind::Metadata, "no usable authorization server");
            return Err(self.failure.take().unwrap_or_else(nobody));
        };
        let target = Target::typed(&issuer).map_err(|error| error.to_string());
        let plain = "it uses plain `http`, but `https` is required";
        let target =
            target.and_then(|target| target.is_secure().then_some(target).ok_or_else(|| plain.to_owned()));
        match target {
            Ok(target) => {
                let then = server_metadata::locations(&target).into();
                self.look_for_authority(Search {
                    issuer: Some(issuer),
                    at: String::new(),
                    then,
                    others: issuers,
                })
            }
            Err(reason) => {
                let text = format!("the authorization server `{}` cannot be used: {reason}", quoted(&issuer));
                let failure = AuthError::new(AuthErrorKind::Metadata, text).of_unsafe(&issuer);
                self.failure = self.failure.take().or(Some(failure));
                self.next_issuer(issuers)
            }
        }
    }

    fn look_for_authority(&mut self, mut search: Search) -> Result<Action, AuthError> {
        let Some(at) = search.then.pop_front() else { return self.next_issuer(search.others) };
        let request = Exchange::get(Purpose::ServerMetadata, &at);
        self.step = Step::Authority(Search { at, ..search });
        Ok(Action::Send(request))
    }

    pub(in crate::auth) fn authority_replied(
        &mut self,
        search: Search,
        reply: &Reply,
        now: u64,
    ) -> Result<Action, AuthError> {
        if reply.is_success() {
            let origin = self.start.server.origin();
            let expected = search.issuer.as_deref().map_or(Expected::Origin(&origin), Expected::Issuer);
            return match server_metadata::read(&reply.body, expected, &search.at) {
                Ok(metadata) => {
                    self.authority = Some(metadata);
                    self.known(now)
                }
                Err(error) => self.next_authority(search, Some(error), now),
            };
        }
        let broken =
            (!reply.is_missing()).then(|| unanswered("the authorization server", &search.at, reply.status));
        self.next_authority(search, broken, now)
    }

    pub(in crate::auth) fn next_authority(
        &mut self,
        search: Search,
        failure: Option<AuthError>,
        now: u64,
    ) -> Result<Action, AuthError> {
        self.failure = self.failure.take().or(failure);
        if !search.then.is_empty() {
            return self.look_for_authority(search);
        }
        match search.issuer {
            None if self.failure.is_none() => {
                self.authority = Some(server_metadata::without_document(&self.start.server.origin()));
                self.known(now)
            }
            None => self.next_issuer(VecDeque::new()),
            Some(issuer) => {
                let text = format!(
                    "the authorization server `{}` has no metadata at any well-known URL (RFC 8414, OpenID \
                     Connect)",
                    quoted(&issuer)
                );
                self.failure = self.failure.take().or(Some(AuthError::new(AuthErrorKind::Metadata, text)));
                self.next_issuer(search.others)
            }
        }
    }

    /// Selects the scopes once the authorization server is known.
    fn known(&mut self, now: u64) -> Result<Action, AuthError> {
        self.failure = None;
        let challenge = &self.start.challenge;
        let before =
            self.earlier().map(|earlier| scopes::Scopes::read(&earlier.requested)).unwrap_or_default();
        let supported = self.resource.as_ref().and_then(|resource| resource.scopes.as_ref());
        self.scopes =
            scopes::select(self.start.profile.scopes.as_ref(), challenge.scope.as_ref(), supported, &before);
        self.begin_claim(now)
    }
}

fn unanswered(who: &str, at: &str, status: u16) -> AuthError {
    let text = format!("the metadata of {who} at `{at}` is unavailable (HTTP {status}): try again later");
    AuthError::new(AuthErrorKind::Unreachable, text)
}
