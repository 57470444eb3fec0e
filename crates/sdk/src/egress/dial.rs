//! From a URL to a connection: look up once, leave out what the policy refuses, dial one of the addresses that are
//! left, and nothing else.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::address::Class;
use super::error::{EgressError, EgressErrorKind};
use super::hop::{Hop, Phase};
use super::policy::{Policy, Reason, Trust};
use super::proxy::Proxy;
use super::resolve::Resolve;
use super::target::{Host, Target};
use super::tls::Tls;

/// More addresses than this are not tried.
const MOST_ADDRESSES: usize = 16;

/// Bytes to and from a server, with TLS or without.
pub(super) type Stream = Box<dyn Io>;

pub(super) trait Io: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

pub(super) struct Dialer {
    pub policy: Policy,
    pub resolve: Arc<dyn Resolve>,
    pub tls: Tls,
    pub proxy: Option<Proxy>,
    pub connect_timeout: Duration,
    pub on_hop: Option<Arc<dyn Fn(&Hop<'_>) + Send + Sync>>,
}

impl Dialer {
    /// A connection to the target, and what kind of place it leads to.
    pub(super) async fn dial(&self, target: &Target, trust: Trust) -> Result<(Stream, Class), EgressError> {
        let deadline = Instant::now() + self.connect_timeout;
        let place = target.place();
        let (stream, address, class) = match self.proxy.as_ref().filter(|proxy| proxy.is_for(&place.host)) {
            Some(proxy) => self.dial_through(proxy, target, trust, deadline).await?,
            None => {
                let found = self.look_up(target, deadline).await?;
                let (addresses, class) = self.choose(target, trust, found)?;
                let (stream, address) = self.connect(target, &addresses, deadline).await?;
                (stream, address, class)
            }
        };
        if !place.https {
            return Ok((Box::new(stream), class));
        }
        let secured = self.tls.secure(&place.host, stream);
        Ok((self.step(Phase::Tls, target, &[address], deadline, secured).await?, class))
    }

    async fn look_up(&self, target: &Target, deadline: Instant) -> Result<Vec<SocketAddr>, EgressError> {
        let place = target.place();
        let name = match &place.host {
            Host::Address(address) => return Ok(vec![SocketAddr::new(*address, place.port)]),
            Host::Name(name) => name,
        };
        let failed = |reason: String| {
            let text = format!(
                "the name `{name}` could not be resolved: {reason}; check its spelling and the network"
            );
            EgressError::new(EgressErrorKind::Dns, text)
        };
        let begun = Instant::now();
        let outcome = match timeout_at(deadline, self.resolve.resolve(name)).await {
            Err(_) => Err(self.timed_out(Phase::Resolve, target)),
            Ok(Err(error)) => Err(failed(error.to_string()).because(error)),
            Ok(Ok(found)) if found.is_empty() => Err(failed("it has no address".into())),
            Ok(Ok(found)) => {
                Ok(found.into_iter().take(MOST_ADDRESSES).map(|ip| SocketAddr::new(ip, place.port)).collect())
            }
        };
        let addresses: &[SocketAddr] = outcome.as_deref().unwrap_or_default();
        self.tell(Phase::Resolve, target, addresses, begun, outcome.as_ref().err());
        outcome
    }

    /// The addresses that may be dialled. They are all of one class: where a name has public and other addresses, the
    /// others are bait or a mistake.
    fn choose(
        &self,
        target: &Target,
        trust: Trust,
        found: Vec<SocketAddr>,
    ) -> Result<(Vec<SocketAddr>, Class), EgressError> {
        let place = target.place();
        let literal = place.host.is_literal();
        let class = found.iter().map(|address| Class::of(address.ip())).min().unwrap_or(Class::Forbidden);
        // A name that was public before must not lead to a nearer place now.
        if !literal && target.home() == Some(Class::Public) && class != Class::Public && place.typed {
            return Err(refused(target, found.first().map(SocketAddr::ip), class, Reason::Moved));
        }
        let mut refusal = None;
        let allowed = found.into_iter().filter(|address| {
            match self.policy.check(address.ip(), place.https, literal, trust) {
                Ok(own) => own == class,
                Err(reason) => {
                    refusal.get_or_insert(reason);
                    false
                }
            }
        });
        let allowed: Vec<_> = allowed.collect();
        match refusal {
            Some(refusal) if allowed.is_empty() => {
                Err(refused(target, Some(refusal.address), refusal.class, refusal.reason))
            }
            _ => Ok((allowed, class)),
        }
    }

    /// Dials one address after the other; each has its share of the time that is left.
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
                // A request is written in one piece: waiting for more only costs time.
                stream.set_nodelay(true).map_err(|error| not_connected(target, address, error))?;
                Ok(stream)
            };
            match self.step(Phase::Connect, target, &[address], share, work).await {
                Ok(stream) => return Ok((stream, address)),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| {
            EgressError::new(EgressErrorKind::Dns, format!("the name `{}` has no address", target.host()))
        }))
    }

    /// Through a proxy the address is not ours to see. What can be told by the name or by the address in the URL still
    /// counts.
    async fn dial_through(
        &self,
        proxy: &Proxy,
        target: &Target,
        trust: Trust,
        deadline: Instant,
    ) -> Result<(TcpStream, SocketAddr, Class), EgressError> {
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
        let addresses = self.look_up(&proxy.target, deadline).await?;
        let (mut stream, address) = self.connect(&proxy.target, &addresses, deadline).await?;
        let tunnel = proxy.tunnel(&mut stream, target);
        self.step(Phase::Proxy, target, &[address], deadline, tunnel).await?;
        Ok((stream, address, class))
    }

    /// Does one step until a deadline, and tells who watches.
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
        let text = format!("no connection to `{host}` within {limit:?}: {phase} took too long");
        EgressError::new(EgressErrorKind::Timeout, text)
    }
}

fn not_connected(target: &Target, address: SocketAddr, error: io::Error) -> EgressError {
    let advice = match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "nothing listens there: check host and port, and that the server runs"
        }
        _ => "check host, port and the network",
    };
    let text = format!("no connection to `{}` at {address}: {error}; {advice}", target.host());
    EgressError::new(EgressErrorKind::Connect, text).because(error)
}

fn refused(target: &Target, address: Option<IpAddr>, class: Class, reason: Reason) -> EgressError {
    let subject = address.map_or_else(|| "its name".to_owned(), |address| address.to_string());
    let (host, reason) = (target.host(), reason.text());
    let text = format!("no connection to `{host}` was tried: {subject} is {class}, {reason}");
    EgressError::new(EgressErrorKind::Refused(class), text)
}
