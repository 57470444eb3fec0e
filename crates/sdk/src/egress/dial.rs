//! Connection setup: resolve once, drop the addresses that the policy refuses, and dial only the remaining ones.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::address_class::Class;
use super::connect_step::{Hop, Phase, Watcher};
use super::error::{EgressError, EgressErrorKind};
use super::policy::{Policy, Reason, Refusal, Trust};
use super::proxy::Proxy;
use super::resolver::Resolve;
use super::target::{Host, Target};
use super::tls::Tls;

/// Maximum number of addresses tried.
const MOST_ADDRESSES: usize = 16;

/// Byte stream to a server, with or without TLS.
pub(super) type Stream = Box<dyn Io>;

pub(super) trait Io: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

pub(super) struct Dialer {
    pub policy: Policy,
    pub resolve: Arc<dyn Resolve>,
    pub tls: Tls,
    pub proxy: Option<Arc<Proxy>>,
    pub connect_timeout: Duration,
    pub on_hop: Option<Watcher>,
}

/// Route of a connection.
#[derive(Clone)]
pub(super) struct Way {
    /// Class of the destination.
    pub class: Class,
    /// The dialled address; `None` through a proxy, which resolves the name itself.
    pub address: Option<IpAddr>,
    pub proxy: Option<Arc<Proxy>>,
}

impl Dialer {
    /// Opens a connection to the target, and returns its route.
    pub(super) async fn dial(&self, target: &Target, trust: Trust) -> Result<(Stream, Way), EgressError> {
        let deadline = Instant::now() + self.connect_timeout;
        let place = target.place();
        let (stream, address, way) = if let Some(proxy) = self.proxy_for(&place.host) {
            let class = self.check_name(target, trust)?;
            let (stream, address) = self.dial_through(proxy, target, deadline).await?;
            (stream, address, Way { class, address: None, proxy: Some(proxy.clone()) })
        } else {
            let found = self.look_up(target, deadline).await?;
            let (addresses, class) = self.choose(target, trust, &found)?;
            let (stream, address) = self.connect(target, &addresses, deadline).await?;
            (stream, address, Way { class, address: Some(address.ip()), proxy: None })
        };
        if !place.https {
            return Ok((Box::new(stream), way));
        }
        let secured = self.tls.secure(&place.host, stream);
        Ok((self.step(Phase::Tls, target, &[address], deadline, secured).await?, way))
    }

    fn proxy_for(&self, host: &Host) -> Option<&Arc<Proxy>> {
        self.proxy.as_ref().filter(|proxy| proxy.is_for(host))
    }

    /// Returns whether a connection with this route would be allowed now.
    pub(super) fn allows(&self, target: &Target, trust: Trust, way: &Way) -> bool {
        let place = target.place();
        match (way.address, self.proxy_for(&place.host), &way.proxy) {
            (Some(address), None, _) => {
                self.policy.check(address, place.https, place.host.is_literal(), trust).is_ok()
            }
            (None, Some(now), Some(before)) => {
                now.target.url() == before.target.url() && self.check_name(target, trust).is_ok()
            }
            _ => false,
        }
    }

    /// Checks the address in a URL, if it has one, against the policy.
    pub(super) fn check_address(&self, target: &Target, trust: Trust) -> Result<(), EgressError> {
        let place = target.place();
        let address = match &place.host {
            Host::Address(address) => *address,
            Host::Name(_) if place.host.class_by_name() == Class::Loopback => Ipv4Addr::LOCALHOST.into(),
            Host::Name(_) => return Ok(()),
        };
        self.choose(target, trust, &[SocketAddr::new(address, place.port)]).map(drop)
    }

    async fn look_up(&self, target: &Target, deadline: Instant) -> Result<Vec<SocketAddr>, EgressError> {
        let place = target.place();
        let name = match &place.host {
            Host::Address(address) => return Ok(vec![SocketAddr::new(*address, place.port)]),
            Host::Name(name) => name,
        };
        let begun = Instant::now();
        let outcome = match timeout_at(deadline, self.resolve.resolve(name)).await {
            Err(_) => Err(self.timed_out(Phase::Resolve, target)),
            Ok(Err(error)) => Err(unresolved(target, &error.to_string()).because(error)),
            Ok(Ok(found)) if found.is_empty() => Err(unresolved(target, "the name has no address")),
            Ok(Ok(found)) => {
                Ok(found.into_iter().take(MOST_ADDRESSES).map(|ip| SocketAddr::new(ip, place.port)).collect())
            }
        };
        let addresses: &[SocketAddr] = outcome.as_deref().unwrap_or_default();
        self.tell(Phase::Resolve, target, addresses, begun, outcome.as_ref().err());
        outcome
    }

    /// Returns the addresses that may be dialled. They are all of one class: if a name has public and other
    /// addresses, the others are an attack or a mistake.
    fn choose(
        &self,
        target: &Target,
        trust: Trust,
        found: &[SocketAddr],
    ) -> Result<(Vec<SocketAddr>, Class), EgressError> {
        let place = target.place();
        let literal = place.host.is_literal();
        let mut allowed = Vec::new();
        let mut refusal = None;
        for address in found {
            match self.policy.check(address.ip(), place.https, literal, trust) {
                Ok(class) => allowed.push((*address, class)),
                Err(reason) => refusal = refusal.or(Some(reason)),
            }
        }
        let Some((nearest, class)) = allowed.iter().copied().min_by_key(|(_, class)| *class) else {
            return Err(match refusal {
                Some(Refusal { address, class, reason }) => refused(target, Some(address), class, reason),
                None => unresolved(target, "the name has no address"),
            });
        };
        // A name that was public before must not resolve to a private or local address now (DNS rebinding).
        if place.typed && !literal && class != Class::Public && target.home() == Some(Class::Public) {
            return Err(refused(target, Some(nearest.ip()), class, Reason::Moved));
        }
        allowed.retain(|(_, own)| *own == class);
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
            let left = u32::try_from(addresses.len() - index).unwrap_or(1);
            let share = Instant::now() + deadline.saturating_duration_since(Instant::now()) / left;
            let work = async move {
                let stream = TcpStream::connect(address)
                    .await
                    .map_err(|error| not_connected(target, address, error))?;
                // A request is written in one piece: Nagle's algorithm would only delay it.
                stream.set_nodelay(true).map_err(|error| not_connected(target, address, error))?;
                Ok(stream)
            };
            match self.step(Phase::Connect, target, &[address], share, work).await {
                Ok(stream) => return Ok((stream, address)),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| unresolved(target, "the name has no address")))
    }

    /// Checks a target that is reached through a proxy. Its address is unknown here, so only the name, or the
    /// address in the URL, is checked.
    fn check_name(&self, target: &Target, trust: Trust) -> Result<Class, EgressError> {
        let place = target.place();
        let class = place.host.class_by_name();
        match place.host {
            Host::Address(address) => {
                let checked = self.policy.check(address, place.https, true, trust);
                checked.map_err(|refusal| refused(target, Some(address), class, refusal.reason))?;
            }
            Host::Name(_) => {
                let plain = if place.https { Ok(()) } else { Err(Reason::Plain) };
                let checked = plain.and_then(|()| self.policy.check_class(class, false, trust));
                checked.map_err(|reason| refused(target, None, class, reason))?;
            }
        }
        Ok(class)
    }

    async fn dial_through(
        &self,
        proxy: &Proxy,
        target: &Target,
        deadline: Instant,
    ) -> Result<(TcpStream, SocketAddr), EgressError> {
        let dialled = async {
            let addresses = self.look_up(&proxy.target, deadline).await?;
            self.connect(&proxy.target, &addresses, deadline).await
        };
        let (mut stream, address) = dialled.await.map_err(|error| proxy.unreachable(error))?;
        if target.is_https() {
            let tunnel = proxy.tunnel(&mut stream, target);
            self.step(Phase::Proxy, target, &[address], deadline, tunnel).await?;
        }
        Ok((stream, address))
    }

    /// Runs one step with a deadline and reports it to the observer.
    async fn step<T>(
        &self,
        phase: Phase,
        target: &Target,
        addresses: &[SocketAddr],
        deadline: Instant,
        work: impl Future<Output = Result<T, EgressError>>,
    ) -> Result<T, EgressError> {
        let begun = Instant::now();
        let outcome = timeout_at(deadline, work).await.unwrap_or_else(|_| Err(self.timed_out(phase, target)));
        self.tell(phase, target, addresses, begun, outcome.as_ref().err());
        outcome
    }

    fn tell(
        &self,
        phase: Phase,
        target: &Target,
        addresses: &[SocketAddr],
        begun: Instant,
        error: Option<&EgressError>,
    ) {
        if let Some(watch) = &self.on_hop {
            watch(&Hop { phase, host: &target.host(), addresses, took: begun.elapsed(), error });
        }
    }

    fn timed_out(&self, phase: Phase, target: &Target) -> EgressError {
        let (host, limit) = (target.host(), self.connect_timeout);
        let text = format!(
            "no connection to `{host}` within {limit:?}: {phase} took too long; check the host and the network"
        );
        EgressError::new(EgressErrorKind::Timeout, text)
    }
}

fn unresolved(target: &Target, reason: &str) -> EgressError {
    let host = target.host();
    let text =
        format!("the name `{host}` could not be resolved: {reason}; check the spelling and the network");
    EgressError::new(EgressErrorKind::Dns, text)
}

fn not_connected(target: &Target, address: SocketAddr, error: io::Error) -> EgressError {
    let advice = match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "nothing listens there: check host and port, and that the server is running"
        }
        _ => "check host, port and the network",
    };
    let text = format!("no connection to `{}` at {address}: {error}; {advice}", target.host());
    EgressError::new(EgressErrorKind::Connect, text).because(error)
}

fn refused(target: &Target, address: Option<IpAddr>, class: Class, reason: Reason) -> EgressError {
    let subject = address.map_or_else(|| "its name".to_owned(), |address| address.to_string());
    let (host, reason) = (target.host(), reason.text());
    let text = format!("refused to connect to `{host}`: {subject} is {class}, {reason}");
    EgressError::new(EgressErrorKind::Refused(class), text).at(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::resolver::System;

    fn dialer() -> Dialer {
        Dialer {
            policy: Policy::default(),
            resolve: Arc::new(System),
            tls: Tls::default(),
            proxy: None,
            connect_timeout: Duration::from_secs(1),
            on_hop: None,
        }
    }

    fn choose(target: &Target, found: &[&str]) -> Result<Vec<String>, String> {
        let found: Vec<_> =
            found.iter().map(|address| SocketAddr::new(address.parse().unwrap(), 1)).collect();
        let chosen = dialer().choose(target, target.trust(), &found).map_err(|error| error.to_string())?;
        Ok(chosen.0.iter().map(|address| address.ip().to_string()).collect())
    }

    #[test]
    fn the_address_in_a_url_is_checked_without_a_connection() {
        let check = |policy: Policy, url: &str| {
            let target = Target::typed(url).unwrap();
            Dialer { policy, ..dialer() }
                .check_address(&target, target.trust())
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
        let target = Target::typed("https://name.example/").unwrap();
        let mixed = ["10.0.0.1", "8.8.8.8", "127.0.0.1", "2606:4700::1", "169.254.169.254", "0.0.0.0"];
        assert_eq!(choose(&target, &mixed).unwrap(), ["8.8.8.8", "2606:4700::1"]);
        assert_eq!(choose(&target, &["127.0.0.1", "10.0.0.1"]).unwrap(), ["10.0.0.1"]);
        assert_eq!(choose(&target, &["::1", "127.0.0.1"]).unwrap(), ["::1", "127.0.0.1"]);
        let learned = target.learned("https://other.example/").unwrap();
        assert_eq!(choose(&learned, &mixed).unwrap(), ["8.8.8.8", "2606:4700::1"]);
    }

    #[test]
    fn a_name_that_was_public_does_not_come_nearer() {
        let target = Target::typed("https://name.example/").unwrap();
        assert_eq!(choose(&target, &["10.0.0.1"]).unwrap(), ["10.0.0.1"]);
        target.reached(Class::Public);
        assert_eq!(choose(&target, &["8.8.8.8"]).unwrap(), ["8.8.8.8"]);
        let moved = choose(&target, &["10.0.0.1"]).unwrap_err();
        assert!(
            moved.contains("10.0.0.1 is a private address, but the same name had a public address before"),
            "{moved}"
        );
        target.reached(Class::Loopback);
        choose(&target.learned("/same/origin").unwrap(), &["127.0.0.1"]).unwrap_err();
    }

    #[test]
    fn nothing_to_choose_from() {
        let target = Target::typed("https://name.example/").unwrap();
        assert!(choose(&target, &[]).unwrap_err().contains("the name has no address"));
        let text = choose(&target, &["0.0.0.0", "169.254.169.254"]).unwrap_err();
        let expected = "refused to connect to `name.example`: 0.0.0.0 is a reserved address, which is not";
        assert!(text.starts_with(expected), "{text}");
    }
}
