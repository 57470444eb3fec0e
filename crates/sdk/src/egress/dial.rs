//! Connection setup: resolve once, drop the addresses that the policy refuses, and dial only the remaining ones.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::address_class::AddressClass;
use super::connect_step::{ConnectObserver, ConnectPhase, ConnectStep};
use super::error::{EgressError, EgressErrorKind};
use super::policy::{Policy, PolicyViolation, UrlSource, ViolationReason};
use super::proxy::HttpProxy;
use super::resolver::Resolver;
use super::target::{Host, Target};
use super::tls::TlsConnector;

/// Maximum number of addresses of a host that are tried.
const MAX_ADDRESSES: usize = 16;

/// Byte stream to a server, with or without TLS.
pub(super) type BoxedStream = Box<dyn Io>;

pub(super) trait Io: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

pub(super) struct Dialer {
    pub policy: Policy,
    pub resolver: Arc<dyn Resolver>,
    pub tls: TlsConnector,
    pub proxy: Option<Arc<HttpProxy>>,
    pub connect_timeout: Duration,
    pub on_connect_step: Option<ConnectObserver>,
}

/// How an outgoing connection reached its target: address, address class and proxy.
#[derive(Clone)]
pub(super) struct Route {
    /// Address class of the target.
    pub class: AddressClass,
    /// Address that was dialled; `None` through a proxy, which resolves the name itself.
    pub address: Option<IpAddr>,
    pub proxy: Option<Arc<HttpProxy>>,
}

impl Dialer {
    /// Opens a connection to the target, and returns its route.
    pub(super) async fn dial(
        &self,
        target: &Target,
        trust: UrlSource,
    ) -> Result<(BoxedStream, Route), EgressError> {
        let deadline = Instant::now() + self.connect_timeout;
        let key = target.key();
        let (stream, address, route) = if let Some(proxy) = self.proxy_for(&key.host) {
            let class = self.check_name(target, trust)?;
            let (stream, address) = self.dial_through(proxy, target, deadline).await?;
            (stream, address, Route { class, address: None, proxy: Some(proxy.clone()) })
        } else {
            let found = self.resolve(target, deadline).await?;
            let (addresses, class) = self.select_addresses(target, trust, &found)?;
            let (stream, address) = self.connect(target, &addresses, deadline).await?;
            (stream, address, Route { class, address: Some(address.ip()), proxy: None })
        };
        if !key.https {
            return Ok((Box::new(stream), route));
        }
        let secured = self.tls.handshake(&key.host, stream);
        Ok((self.run_step(ConnectPhase::Tls, target, &[address], deadline, secured).await?, route))
    }

    fn proxy_for(&self, host: &Host) -> Option<&Arc<HttpProxy>> {
        self.proxy.as_ref().filter(|proxy| proxy.applies_to(host))
    }

    /// Returns whether the policy would allow a connection with this route now.
    pub(super) fn allows(&self, target: &Target, trust: UrlSource, route: &Route) -> bool {
        let key = target.key();
        match (route.address, self.proxy_for(&key.host), &route.proxy) {
            (Some(address), None, _) => {
                self.policy.check(address, key.https, key.host.is_literal(), trust).is_ok()
            }
            (None, Some(now), Some(before)) => {
                now.target.url() == before.target.url() && self.check_name(target, trust).is_ok()
            }
            _ => false,
        }
    }

    /// Checks the address in a URL, if it has one, against the policy.
    pub(super) fn check_address(&self, target: &Target, trust: UrlSource) -> Result<(), EgressError> {
        let key = target.key();
        let address = match &key.host {
            Host::Address(address) => *address,
            Host::Name(_) if key.host.class_by_name() == AddressClass::Loopback => Ipv4Addr::LOCALHOST.into(),
            Host::Name(_) => return Ok(()),
        };
        self.select_addresses(target, trust, &[SocketAddr::new(address, key.port)]).map(drop)
    }

    async fn resolve(&self, target: &Target, deadline: Instant) -> Result<Vec<SocketAddr>, EgressError> {
        let key = target.key();
        let name = match &key.host {
            Host::Address(address) => return Ok(vec![SocketAddr::new(*address, key.port)]),
            Host::Name(name) => name,
        };
        let started_at = Instant::now();
        let outcome = match timeout_at(deadline, self.resolver.resolve(name)).await {
            Err(_) => Err(self.timeout_error(ConnectPhase::Resolve, target)),
            Ok(Err(error)) => Err(resolve_error(target, &error.to_string()).with_source(error)),
            Ok(Ok(found)) if found.is_empty() => Err(resolve_error(target, "the name has no address")),
            Ok(Ok(found)) => {
                Ok(found.into_iter().take(MAX_ADDRESSES).map(|ip| SocketAddr::new(ip, key.port)).collect())
            }
        };
        let addresses: &[SocketAddr] = outcome.as_deref().unwrap_or_default();
        self.report_step(ConnectPhase::Resolve, target, addresses, started_at, outcome.as_ref().err());
        outcome
    }

    /// Returns the resolved addresses that the egress policy allows for this target. They are all of one class: if a
    /// name has public and other addresses, the others are an attack or a mistake.
    fn select_addresses(
        &self,
        target: &Target,
        trust: UrlSource,
        addresses: &[SocketAddr],
    ) -> Result<(Vec<SocketAddr>, AddressClass), EgressError> {
        let key = target.key();
        let literal = key.host.is_literal();
        let mut allowed = Vec::new();
        let mut violation = None;
        for address in addresses {
            match self.policy.check(address.ip(), key.https, literal, trust) {
                Ok(class) => allowed.push((*address, class)),
                Err(reason) => violation = violation.or(Some(reason)),
            }
        }
        let Some((most_public, class)) = allowed.iter().copied().min_by_key(|(_, class)| *class) else {
            return Err(match violation {
                Some(PolicyViolation { address, class, reason }) => {
                    policy_error(target, Some(address), class, reason)
                }
                None => resolve_error(target, "the name has no address"),
            });
        };
        // A name that was public before must not resolve to a private or local address now (DNS rebinding).
        if key.is_configured
            && !literal
            && class != AddressClass::Public
            && target.reached_class() == Some(AddressClass::Public)
        {
            return Err(policy_error(target, Some(most_public.ip()), class, ViolationReason::BecamePrivate));
        }
        allowed.retain(|(_, own_class)| *own_class == class);
        Ok((allowed.into_iter().map(|(address, _)| address).collect(), class))
    }

    /// Dials the addresses one after the other; each gets its share of the remaining time.
    async fn connect(
        &self,
        target: &Target,
        addresses: &[SocketAddr],
        deadline: Instant,
    ) -> Result<(TcpStream, SocketAddr), EgressError> {
        let mut last = None;
        for (index, &address) in addresses.iter().enumerate() {
            let remaining = u32::try_from(addresses.len() - index).unwrap_or(1);
            let share = Instant::now() + deadline.saturating_duration_since(Instant::now()) / remaining;
            let work = async move {
                let stream = TcpStream::connect(address)
                    .await
                    .map_err(|error| connect_error(target, address, error))?;
                // A request is written in one piece: Nagle's algorithm would only delay it.
                stream.set_nodelay(true).map_err(|error| connect_error(target, address, error))?;
                Ok(stream)
            };
            match self.run_step(ConnectPhase::Connect, target, &[address], share, work).await {
                Ok(stream) => return Ok((stream, address)),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| resolve_error(target, "the name has no address")))
    }

    /// Checks a target that is reached through a proxy against the egress policy. Its address is unknown here, so only
    /// the name, or the address in the URL, is checked.
    fn check_name(&self, target: &Target, trust: UrlSource) -> Result<AddressClass, EgressError> {
        let key = target.key();
        let class = key.host.class_by_name();
        match key.host {
            Host::Address(address) => {
                let checked = self.policy.check(address, key.https, true, trust);
                checked.map_err(|violation| policy_error(target, Some(address), class, violation.reason))?;
            }
            Host::Name(_) => {
                let plain = if key.https { Ok(()) } else { Err(ViolationReason::PlainHttp) };
                let checked = plain.and_then(|()| self.policy.check_class(class, false, trust));
                checked.map_err(|reason| policy_error(target, None, class, reason))?;
            }
        }
        Ok(class)
    }

    async fn dial_through(
        &self,
        proxy: &HttpProxy,
        target: &Target,
        deadline: Instant,
    ) -> Result<(TcpStream, SocketAddr), EgressError> {
        let dialled = async {
            let addresses = self.resolve(&proxy.target, deadline).await?;
            self.connect(&proxy.target, &addresses, deadline).await
        };
        let (mut stream, address) = dialled.await.map_err(|error| proxy.proxy_error(error))?;
        if target.is_https() {
            let tunnel = proxy.tunnel(&mut stream, target);
            self.run_step(ConnectPhase::Proxy, target, &[address], deadline, tunnel).await?;
        }
        Ok((stream, address))
    }

    /// Runs one step of opening a connection with a deadline and reports it to the observer.
    async fn run_step<T>(
        &self,
        phase: ConnectPhase,
        target: &Target,
        addresses: &[SocketAddr],
        deadline: Instant,
        work: impl Future<Output = Result<T, EgressError>>,
    ) -> Result<T, EgressError> {
        let started_at = Instant::now();
        let outcome =
            timeout_at(deadline, work).await.unwrap_or_else(|_| Err(self.timeout_error(phase, target)));
        self.report_step(phase, target, addresses, started_at, outcome.as_ref().err());
        outcome
    }

    fn report_step(
        &self,
        phase: ConnectPhase,
        target: &Target,
        addresses: &[SocketAddr],
        started_at: Instant,
        error: Option<&EgressError>,
    ) {
        if let Some(watch) = &self.on_connect_step {
            watch(&ConnectStep {
                phase,
                host: &target.host(),
                addresses,
                duration: started_at.elapsed(),
                error,
            });
        }
    }

    fn timeout_error(&self, phase: ConnectPhase, target: &Target) -> EgressError {
        let (host, limit) = (target.host(), self.connect_timeout);
        let text = format!(
            "no connection to `{host}` within {limit:?}: {phase} took too long; check the host and the network"
        );
        EgressError::new(EgressErrorKind::Timeout, text)
    }
}

fn resolve_error(target: &Target, reason: &str) -> EgressError {
    let host = target.host();
    let text =
        format!("the name `{host}` could not be resolved: {reason}; check the spelling and the network");
    EgressError::new(EgressErrorKind::Dns, text)
}

fn connect_error(target: &Target, address: SocketAddr, error: io::Error) -> EgressError {
    let advice = match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "nothing listens there: check host and port, and that the server is running"
        }
        _ => "check host, port and the network",
    };
    let text = format!("no connection to `{}` at {address}: {error}; {advice}", target.host());
    EgressError::new(EgressErrorKind::Connect, text).with_source(error)
}

fn policy_error(
    target: &Target,
    address: Option<IpAddr>,
    class: AddressClass,
    reason: ViolationReason,
) -> EgressError {
    let subject = address.map_or_else(|| "its name".to_owned(), |address| address.to_string());
    let (host, reason) = (target.host(), reason.message());
    let text = format!("refused to connect to `{host}`: {subject} is {class}, {reason}");
    EgressError::new(EgressErrorKind::Refused(class), text).with_address(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::resolver::SystemResolver;

    fn dialer() -> Dialer {
        Dialer {
            policy: Policy::default(),
            resolver: Arc::new(SystemResolver),
            tls: TlsConnector::default(),
            proxy: None,
            connect_timeout: Duration::from_secs(1),
            on_connect_step: None,
        }
    }

    fn choose(target: &Target, addresses: &[&str]) -> Result<Vec<String>, String> {
        let addresses: Vec<_> =
            addresses.iter().map(|address| SocketAddr::new(address.parse().unwrap(), 1)).collect();
        let chosen = dialer()
            .select_addresses(target, target.source(), &addresses)
            .map_err(|error| error.to_string())?;
        Ok(chosen.0.iter().map(|address| address.ip().to_string()).collect())
    }

    #[test]
    fn the_address_in_a_url_is_checked_without_a_connection() {
        let check = |policy: Policy, url: &str| {
            let target = Target::configured(url).unwrap();
            Dialer { policy, ..dialer() }
                .check_address(&target, target.source())
                .map_err(|error| error.address())
        };
        let loopback = Some(IpAddr::from(Ipv4Addr::LOCALHOST));
        for url in ["http://127.0.0.1:8080/mcp", "http://localhost:8080/mcp"] {
            assert_eq!(check(Policy::public_only(), url), Err(loopback), "{url}");
            assert_eq!(
                check(Policy::public_only().allow("127.0.0.0/8".parse().unwrap()), url),
                Ok(()),
                "{url}"
            );
            assert_eq!(check(Policy::default(), url), Ok(()), "{url}");
        }
        assert_eq!(check(Policy::public_only(), "https://name.example/"), Ok(()));
    }

    #[test]
    fn of_mixed_answers_the_most_public_ones_count() {
        let target = Target::configured("https://name.example/").unwrap();
        let mixed = ["10.0.0.1", "8.8.8.8", "127.0.0.1", "2606:4700::1", "169.254.169.254", "0.0.0.0"];
        assert_eq!(choose(&target, &mixed).unwrap(), ["8.8.8.8", "2606:4700::1"]);
        assert_eq!(choose(&target, &["127.0.0.1", "10.0.0.1"]).unwrap(), ["10.0.0.1"]);
        assert_eq!(choose(&target, &["::1", "127.0.0.1"]).unwrap(), ["::1", "127.0.0.1"]);
        let learned = target.discovered("https://other.example/").unwrap();
        assert_eq!(choose(&learned, &mixed).unwrap(), ["8.8.8.8", "2606:4700::1"]);
    }

    #[test]
    fn a_name_that_was_public_does_not_come_nearer() {
        let target = Target::configured("https://name.example/").unwrap();
        assert_eq!(choose(&target, &["10.0.0.1"]).unwrap(), ["10.0.0.1"]);
        target.record_reached(AddressClass::Public);
        assert_eq!(choose(&target, &["8.8.8.8"]).unwrap(), ["8.8.8.8"]);
        let moved = choose(&target, &["10.0.0.1"]).unwrap_err();
        assert!(
            moved.contains("10.0.0.1 is a private address, but this host name had a public address before"),
            "{moved}"
        );
        target.record_reached(AddressClass::Loopback);
        choose(&target.discovered("/same/origin").unwrap(), &["127.0.0.1"]).unwrap_err();
    }

    #[test]
    fn nothing_to_choose_from() {
        let target = Target::configured("https://name.example/").unwrap();
        assert!(choose(&target, &[]).unwrap_err().contains("the name has no address"));
        let text = choose(&target, &["0.0.0.0", "169.254.169.254"]).unwrap_err();
        let expected = "refused to connect to `name.example`: 0.0.0.0 is a reserved address, which is not";
        assert!(text.starts_with(expected), "{text}");
    }
}
