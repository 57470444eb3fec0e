//! Builder of the OAuth configuration of a server: accepted tokens, issuer and scopes.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::super::clock::Clock;
use super::super::identity::check_scope_name;
use super::super::{BoxFuture, Identity};
use super::dpop::DpopVerifier;
use super::issuer_keys::IssuerKeys;
use super::jwt::JwtVerifier;
use super::protected_resource::{ProtectedResource, TokenLookup, TokenVerifier};
use super::token_cache::TokenCache;
use super::{issuer_metadata, resource_metadata};
use crate::Result;
use crate::auth::{Algorithm, Secret};
use crate::egress::{Egress, Target};

const DEFAULT_ALGORITHMS: [Algorithm; 5] =
    [Algorithm::Rs256, Algorithm::Ps256, Algorithm::Es256, Algorithm::Es384, Algorithm::EdDsa];
const DEFAULT_SKEW: Duration = Duration::from_secs(30);
const JWKS_URL: &str = "URL of the keys";
const MAX_SKEW: Duration = Duration::from_mins(1);

/// Configuration of the OAuth tokens that an endpoint accepts, for [`HttpEndpoint::auth`](crate::HttpEndpoint::auth).
///
/// ```no_run
/// # async fn example() -> linchpin::Result {
/// use linchpin::{Auth, Server};
///
/// Server::new("demo", "1.0.0")
///     .tool("greet", "Greets", || async { "hello" })
///     .http()
///     .auth(Auth::jwt("https://auth.example.com", "https://mcp.example.com/mcp").require(["mcp:basic"]))
///     .bind("127.0.0.1:8080")
///     .await?
///     .run()
///     .await
/// # }
/// ```
#[must_use = "an `Auth` does nothing until it is passed to an HTTP endpoint"]
pub struct Auth {
    pub(super) issuers: Vec<String>,
    pub(super) resource: String,
    source: KeySource,
    pub(super) required: Vec<String>,
    pub(super) supported: Option<Vec<String>>,
    implied: Vec<(String, Vec<String>)>,
    audiences: Vec<String>,
    algorithms: Vec<Algorithm>,
    skew: Duration,
    egress: Option<Egress>,
    clock: Option<Clock>,
    pub(super) dpop: Option<Dpop>,
    pub(super) name: Option<String>,
    pub(super) documentation: Option<String>,
}

/// Source of the verification keys, or the lookup function for opaque tokens.
enum KeySource {
    Discover,
    Uri(String),
    Fixed(Value),
    Opaque(TokenLookup),
    /// Both a lookup function and keys were set, which is an error.
    Conflict,
}

/// Whether clients must prove possession of the key their token is bound to (RFC 9449).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dpop {
    /// Only clients with a key-bound token send a proof; other tokens are accepted without one.
    Optional,
    /// All clients send a proof; tokens without a key binding are rejected.
    Required,
}

impl Auth {
    /// Accepts JWTs that `issuer` has signed for `resource`, the URL of the endpoint as clients know it. The keys are
    /// discovered through the metadata of the issuer.
    pub fn jwt(issuer: impl Into<String>, resource: impl Into<String>) -> Self {
        Self::new(vec![issuer.into()], resource.into(), KeySource::Discover)
    }

    /// Accepts opaque tokens that `lookup` resolves to an identity.
    ///
    /// `lookup` is called for every request. It returns `Ok(None)` for an unknown token or one that was issued for
    /// another server, and `Err` if it cannot decide at the moment. With several `issuers`, it must name the issuer of
    /// the subject ([`Identity::with_issuer`]).
    pub fn opaque<F, Fut>(
        issuers: impl IntoIterator<Item = impl Into<String>>,
        resource: impl Into<String>,
        lookup: F,
    ) -> Self
    where
        F: Fn(Secret) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Option<Identity>>> + Send + 'static,
    {
        let lookup: TokenLookup = Box::new(move |token| -> BoxFuture<_> { Box::pin(lookup(token)) });
        let issuers = issuers.into_iter().map(Into::into).collect();
        Self::new(issuers, resource.into(), KeySource::Opaque(lookup))
    }

    fn new(issuers: Vec<String>, resource: String, source: KeySource) -> Self {
        Auth {
            issuers,
            resource,
            source,
            required: Vec::new(),
            supported: None,
            implied: Vec::new(),
            audiences: Vec::new(),
            algorithms: DEFAULT_ALGORITHMS.to_vec(),
            skew: DEFAULT_SKEW,
            egress: None,
            clock: None,
            dpop: None,
            name: None,
            documentation: None,
        }
    }

    /// Adds scopes that every request requires. Scopes of single tools are set with
    /// [`Tool::scopes`](crate::Tool::scopes).
    pub fn require(mut self, scopes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.required.extend(scopes.into_iter().map(Into::into));
        self
    }

    /// Adds to the scopes that clients request at first (`scopes_supported`). Default: the scopes of [`Self::require`].
    pub fn scopes_supported(mut self, scopes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.supported.get_or_insert_default().extend(scopes.into_iter().map(Into::into));
        self
    }

    /// Declares that `scope` includes the scopes `others`, transitively.
    pub fn scope_implies(
        mut self,
        scope: impl Into<String>,
        others: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        self.implied.push((scope.into(), others.into_iter().map(Into::into).collect()));
        self
    }

    /// Accepts tokens for this audience as well, for issuers that know the server by a name other than its URL. If the
    /// audience is a client id, also [`Self::require`] a scope: ID tokens do not have one.
    pub fn audience(mut self, audience: impl Into<String>) -> Self {
        self.audiences.push(audience.into());
        self
    }

    /// Sets the accepted signature algorithms of tokens. Default: RS256, PS256, ES256, ES384 and `EdDSA`. `DPoP` proofs
    /// may use any supported algorithm.
    pub fn algorithms(mut self, algorithms: impl IntoIterator<Item = Algorithm>) -> Self {
        self.algorithms = algorithms.into_iter().collect();
        self
    }

    /// Sets the tolerated clock skew, at most 60 s. Default: 30 s.
    pub fn skew(mut self, skew: Duration) -> Self {
        self.skew = skew;
        self
    }

    /// Sets the URL of the JWK set, for an issuer without metadata.
    pub fn jwks_uri(self, url: impl Into<String>) -> Self {
        self.with_keys(KeySource::Uri(url.into()))
    }

    /// Sets the keys of the issuer as a JWK set; nothing is fetched.
    pub fn keys(self, set: Value) -> Self {
        self.with_keys(KeySource::Fixed(set))
    }

    fn with_keys(mut self, source: KeySource) -> Self {
        self.source = match self.source {
            KeySource::Opaque(_) => KeySource::Conflict,
            _ => source,
        };
        self
    }

    /// Sets the egress that fetches the keys of the issuer, with its policy, proxy and certificates.
    pub fn egress(mut self, egress: Egress) -> Self {
        self.egress = Some(egress);
        self
    }

    /// Sets the source of the current time, with which token expiry is checked. Default: the clock of the server.
    pub fn clock(mut self, now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.clock = Some(Clock::new(now));
        self
    }

    /// Accepts key-bound tokens with a `DPoP` proof for each request. Default: key-bound tokens are rejected.
    pub fn dpop(mut self, dpop: Dpop) -> Self {
        self.dpop = Some(dpop);
        self
    }

    /// Sets the human-readable name of the server (`resource_name`).
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the URL of the developer documentation (`resource_documentation`).
    pub fn documentation(mut self, url: impl Into<String>) -> Self {
        self.documentation = Some(url.into());
        self
    }

    /// Builds the protected resource and returns it with the host name that clients use.
    pub(crate) fn build(self, clock: Clock) -> Result<(ProtectedResource, String), String> {
        let target = parse_secure_url("resource", &self.resource)?;
        let issuers = self.issuers.iter().map(|issuer| parse_secure_url("issuer", issuer));
        let issuers = issuers.collect::<Result<Vec<_>, _>>()?;
        let issuer =
            issuers.into_iter().next().ok_or("an authorization server is required: set its issuer")?;
        let implied = self.implied.iter().flat_map(|(scope, others)| std::iter::once(scope).chain(others));
        let mut scopes = self.required.iter().chain(self.supported.iter().flatten()).chain(implied);
        scopes.try_for_each(|scope| check_scope_name(scope))?;
        if self.skew > MAX_SKEW {
            return Err(format!("the clock skew must be at most {} seconds", MAX_SKEW.as_secs()));
        }
        if self.algorithms.is_empty() {
            return Err("at least one algorithm must be accepted".into());
        }
        let origin = target.origin();
        let host = origin.split_once("://").map_or(&*origin, |(_, host)| host).to_owned();
        let verifier_target = target.clone();
        let resource = ProtectedResource {
            metadata_url: format!("{origin}{}", resource_metadata::path(&target)),
            metadata_paths: resource_metadata::paths(&target),
            metadata: resource_metadata::document(&self),
            target,
            dpop: self.dpop.map(|dpop| (dpop, DpopVerifier::new())),
            clock: self.clock.clone().unwrap_or(clock),
            required_scopes: self.required.clone(),
            implied_scopes: self.implied.clone(),
            verifier: self.verifier(issuer, &verifier_target)?,
        };
        Ok((resource, host))
    }

    fn verifier(self, issuer: Target, resource: &Target) -> Result<TokenVerifier, String> {
        let egress = self.egress.unwrap_or_default();
        let single_issuer =
            Some(&self.issuers).filter(|issuers| issuers.len() == 1).map(|issuers| issuers[0].clone());
        let name: Arc<str> = self.issuers.into_iter().next().unwrap_or_default().into();
        let keys = match self.source {
            KeySource::Opaque(lookup) => return Ok(TokenVerifier::Opaque(lookup, single_issuer)),
            KeySource::Conflict => {
                return Err("`Auth::opaque` does not use keys: use `Auth::jwt`".into());
            }
            KeySource::Fixed(set) => IssuerKeys::fixed(issuer_metadata::parse_keys(&set)?),
            KeySource::Uri(url) => {
                let target = parse_secure_url(JWKS_URL, &url)?;
                IssuerKeys::fetched(move || {
                    let (egress, target) = (egress.clone(), target.clone());
                    Box::pin(async move { issuer_metadata::fetch_keys(&egress, &target).await })
                })
            }
            KeySource::Discover => {
                let name = name.clone();
                IssuerKeys::fetched(move || {
                    let (egress, issuer, name) = (egress.clone(), issuer.clone(), name.clone());
                    Box::pin(async move { issuer_metadata::discover_keys(&egress, &issuer, &name).await })
                })
            }
        };
        let mut audiences = self.audiences;
        // Some clients cannot send a host without a trailing slash.
        let bare = self.resource.strip_suffix('/').unwrap_or(&self.resource);
        if resource.path() == "/" {
            audiences.extend([bare.to_owned(), format!("{bare}/")]);
        }
        audiences.push(self.resource);
        let (algorithms, skew) = (self.algorithms, self.skew);
        let jwt = JwtVerifier { issuer: name.to_string(), audiences, algorithms, skew, keys };
        Ok(TokenVerifier::Jwt(Box::new(jwt), TokenCache::default()))
    }
}

/// Parses a URL that token verification depends on: it must use https, except on this machine.
fn parse_secure_url(field: &str, url: &str) -> Result<Target, String> {
    let target = Target::configured(url).map_err(|error| format!("the {field}: {error}"))?;
    if !target.is_secure() {
        return Err(format!(
            "the {field} {target} must use https; plain http is accepted only for this machine"
        ));
    }
    if field != JWKS_URL && url.contains(['?', '#']) {
        return Err(format!("the {field} {target} must not have a query or a fragment"));
    }
    Ok(target)
}
