//! Steps of the OAuth flow that discover resource metadata and authorization server metadata.

use std::collections::VecDeque;

use super::http::{FlowRequest, FlowResponse, Purpose};
use super::resource_metadata;
use super::server_metadata::{self, ExpectedIssuer};
use super::{Flow, FlowAction, FlowStep, MetadataSearch};
use crate::auth::error::{AuthError, AuthErrorKind, sanitize};
use crate::auth::scopes;
use crate::egress::Target;

impl Flow {
    pub(in crate::auth) fn find_resource(&mut self) -> Result<FlowAction, AuthError> {
        let challenge_url = self.input.challenge.resource_metadata.as_deref();
        let urls = resource_metadata::locations(&self.input.server, challenge_url);
        self.fetch_resource_metadata(urls.into())
            .ok_or_else(|| AuthError::new(AuthErrorKind::Metadata, "no resource metadata URL is known"))
    }

    fn fetch_resource_metadata(&mut self, mut urls: VecDeque<String>) -> Option<FlowAction> {
        let url = urls.pop_front()?;
        let request = FlowRequest::get(Purpose::ResourceMetadata, &url);
        self.step = FlowStep::ResourceMetadata { url, next_urls: urls };
        Some(FlowAction::Send(request))
    }

    pub(in crate::auth) fn on_resource_metadata(
        &mut self,
        url: &str,
        next_urls: VecDeque<String>,
        reply: &FlowResponse,
    ) -> Result<FlowAction, AuthError> {
        if reply.is_success() {
            let metadata = match resource_metadata::parse(&reply.body, &self.input.server, url) {
                Ok(metadata) => metadata,
                Err(error) => return self.try_next_resource_url(next_urls, Some(error)),
            };
            let mut issuers: VecDeque<_> = metadata.authorization_servers.iter().cloned().collect();
            // Prefer the authorization server where the client is already registered, if the resource still lists it.
            let preferred = [
                self.input.profile.issuer.clone(),
                self.input.stored.as_ref().map(|earlier| earlier.issuer.clone()),
            ];
            if let Some(index) =
                preferred.into_iter().flatten().find_map(|issuer| issuers.iter().position(|i| *i == issuer))
            {
                issuers.swap(0, index);
            }
            (self.resource_metadata, self.failure) = (Some(metadata), None);
            return self.try_next_issuer(issuers);
        }
        let broken = (!reply.is_missing()).then(|| metadata_unavailable("the server", url, reply.status));
        self.try_next_resource_url(next_urls, broken)
    }

    /// Requests the protected resource metadata at the next URL. If no URL has metadata, falls back to the revision of
    /// March 2025, where the server itself was the authorization server.
    pub(in crate::auth) fn try_next_resource_url(
        &mut self,
        next_urls: VecDeque<String>,
        failure: Option<AuthError>,
    ) -> Result<FlowAction, AuthError> {
        self.failure = self.failure.take().or(failure);
        if let Some(action) = self.fetch_resource_metadata(next_urls) {
            return Ok(action);
        }
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let origin = self.input.server.origin();
        let root = Target::configured(&origin)
            .map_err(|error| AuthError::new(AuthErrorKind::Metadata, error.to_string()))?;
        let next_urls: VecDeque<_> = server_metadata::locations(&root).into();
        self.fetch_server_metadata(MetadataSearch {
            issuer: None,
            url: String::new(),
            next_urls,
            next_issuers: VecDeque::new(),
        })
    }

    fn try_next_issuer(&mut self, mut issuers: VecDeque<String>) -> Result<FlowAction, AuthError> {
        let Some(issuer) = issuers.pop_front() else {
            let no_server_error =
                || AuthError::new(AuthErrorKind::Metadata, "the server names no usable authorization server");
            return Err(self.failure.take().unwrap_or_else(no_server_error));
        };
        let target = Target::configured(&issuer).map_err(|error| error.to_string());
        let plain = "its issuer URL uses plain `http`, but `https` is required";
        let target =
            target.and_then(|target| target.is_secure().then_some(target).ok_or_else(|| plain.to_owned()));
        match target {
            Ok(target) => {
                let next_urls = server_metadata::locations(&target).into();
                self.fetch_server_metadata(MetadataSearch {
                    issuer: Some(issuer),
                    url: String::new(),
                    next_urls,
                    next_issuers: issuers,
                })
            }
            Err(reason) => {
                let text =
                    format!("the authorization server `{}` cannot be used: {reason}", sanitize(&issuer));
                let failure = AuthError::new(AuthErrorKind::Metadata, text).with_denied_host(&issuer);
                self.failure = self.failure.take().or(Some(failure));
                self.try_next_issuer(issuers)
            }
        }
    }

    fn fetch_server_metadata(&mut self, mut search: MetadataSearch) -> Result<FlowAction, AuthError> {
        let Some(at) = search.next_urls.pop_front() else { return self.try_next_issuer(search.next_issuers) };
        let request = FlowRequest::get(Purpose::ServerMetadata, &at);
        self.step = FlowStep::ServerMetadata(MetadataSearch { url: at, ..search });
        Ok(FlowAction::Send(request))
    }

    pub(in crate::auth) fn on_server_metadata(
        &mut self,
        search: MetadataSearch,
        reply: &FlowResponse,
        now: u64,
    ) -> Result<FlowAction, AuthError> {
        if reply.is_success() {
            let origin = self.input.server.origin();
            let expected =
                search.issuer.as_deref().map_or(ExpectedIssuer::Origin(&origin), ExpectedIssuer::Issuer);
            return match server_metadata::parse(&reply.body, expected, &search.url) {
                Ok(metadata) => {
                    self.server_metadata = Some(metadata);
                    self.on_authorization_server(now)
                }
                Err(error) => self.try_next_server_url(search, Some(error), now),
            };
        }
        let broken = (!reply.is_missing())
            .then(|| metadata_unavailable("the authorization server", &search.url, reply.status));
        self.try_next_server_url(search, broken, now)
    }

    pub(in crate::auth) fn try_next_server_url(
        &mut self,
        search: MetadataSearch,
        failure: Option<AuthError>,
        now: u64,
    ) -> Result<FlowAction, AuthError> {
        self.failure = self.failure.take().or(failure);
        if !search.next_urls.is_empty() {
            return self.fetch_server_metadata(search);
        }
        match search.issuer {
            None if self.failure.is_none() => {
                self.server_metadata = Some(server_metadata::default_endpoints(&self.input.server.origin()));
                self.on_authorization_server(now)
            }
            None => self.try_next_issuer(VecDeque::new()),
            Some(issuer) => {
                let text = format!(
                    "the authorization server `{}` has no metadata at any well-known URL (RFC 8414, OpenID \
                     Connect)",
                    sanitize(&issuer)
                );
                self.failure = self.failure.take().or(Some(AuthError::new(AuthErrorKind::Metadata, text)));
                self.try_next_issuer(search.next_issuers)
            }
        }
    }

    /// Selects the scopes to request once the authorization server is known, and continues with the registration.
    fn on_authorization_server(&mut self, now: u64) -> Result<FlowAction, AuthError> {
        self.failure = None;
        let challenge = &self.input.challenge;
        let before =
            self.stored_record().map(|earlier| scopes::Scopes::parse(&earlier.requested)).unwrap_or_default();
        let supported = self.resource_metadata.as_ref().and_then(|resource| resource.scopes.as_ref());
        self.scopes =
            scopes::select(self.input.profile.scopes.as_ref(), challenge.scope.as_ref(), supported, &before);
        self.start_acquisition(now)
    }
}

fn metadata_unavailable(party: &str, at: &str, status: u16) -> AuthError {
    let text = format!("the metadata of {party} at `{at}` is unavailable (HTTP {status}): try again later");
    AuthError::new(AuthErrorKind::Unreachable, text)
}
