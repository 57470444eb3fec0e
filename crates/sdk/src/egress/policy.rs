//! Egress policy: which addresses a URL may reach, depending on its source. It is checked for each address that is
//! about to be dialled.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::address_class::Class;
use super::error::EgressError;

/// Source of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trust {
    /// Configured by the caller: entered by a user, or from a configuration.
    Typed,
    /// Discovered on the network: a redirect, metadata, an event, an icon.
    Learned {
        /// Class of the address at which the configured URL was reached. The discovered URL may reach the same
        /// class, and public addresses.
        home: Option<Class>,
    },
}

/// Rules for outgoing connections.
///
/// Default: a configured URL may reach public, private and loopback addresses, and a link-local address only if the
/// URL contains that address. A discovered URL may reach public addresses, and the class at which the configured URL
/// was reached. Plain `http` is limited to loopback addresses.
///
/// ```
/// use linchpin::egress::{Class, Policy, Trust};
///
/// let policy = Policy::public_only().allow("10.4.0.0/16".parse()?);
/// let learned = Trust::Learned { home: Some(Class::Public) };
/// assert!(policy.check("10.4.0.7".parse()?, true, false, learned).is_ok());
/// assert!(policy.check("10.5.0.7".parse()?, true, false, Trust::Typed).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Policy {
    typed_is_free: bool,
    allowed: Vec<Network>,
    denied: Vec<Network>,
    plain: Vec<Network>,
}

impl Default for Policy {
    fn default() -> Self {
        Policy { typed_is_free: true, allowed: Vec::new(), denied: Vec::new(), plain: Vec::new() }
    }
}

impl Policy {
    /// Allows only public addresses, for configured URLs too: for programs whose users do not own the network.
    pub fn public_only() -> Self {
        Policy { typed_is_free: false, ..Policy::default() }
    }

    /// Allows a network regardless of its class, for discovered URLs too.
    #[must_use]
    pub fn allow(mut self, network: Network) -> Self {
        self.allowed.push(network);
        self
    }

    /// Denies a network. This takes precedence over everything else.
    #[must_use]
    pub fn deny(mut self, network: Network) -> Self {
        self.denied.push(network);
        self
    }

    /// Allows plain `http` to a network. The network must also be reachable under the other rules.
    #[must_use]
    pub fn allow_http(mut self, network: Network) -> Self {
        self.plain.push(network);
        self
    }

    /// Checks whether an address may be dialled. `https`: the connection uses TLS. `literal`: the URL contains the
    /// address, not a name.
    pub fn check(&self, address: IpAddr, https: bool, literal: bool, trust: Trust) -> Result<Class, Refusal> {
        let class = Class::of(address);
        let has = |networks: &[Network]| networks.iter().any(|network| network.contains(address));
        let refusal = |reason| Refusal { address, class, reason };
        if has(&self.denied) {
            return Err(refusal(Reason::Denied));
        }
        if !has(&self.allowed) {
            self.check_class(class, literal, trust).map_err(refusal)?;
        }
        if !https && class != Class::Loopback && !has(&self.plain) {
            return Err(refusal(Reason::Plain));
        }
        Ok(class)
    }

    /// Checks the class of a name whose address is unknown because a proxy resolves it.
    pub(super) fn check_class(&self, class: Class, literal: bool, trust: Trust) -> Result<(), Reason> {
        match (class, trust) {
            (Class::Public, _) => Ok(()),
            (Class::Forbidden, _) => Err(Reason::Nowhere),
            _ if !self.typed_is_free => Err(Reason::PublicOnly),
            (Class::Private | Class::Loopback, Trust::Typed) => Ok(()),
            (Class::LinkLocal, Trust::Typed) if literal => Ok(()),
            (Class::LinkLocal, Trust::Typed) => Err(Reason::NotLiteral),
            (Class::Private | Class::Loopback, Trust::Learned { home }) if home == Some(class) => Ok(()),
            (_, Trust::Learned { .. }) => Err(Reason::Learned),
        }
    }
}

/// Violation of the egress policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The address.
    pub address: IpAddr,
    /// The class of the address.
    pub class: Class,
    pub(super) reason: Reason,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, {}", self.address, self.class, self.reason.text())
    }
}

impl std::error::Error for Refusal {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    Denied,
    Plain,
    Nowhere,
    PublicOnly,
    NotLiteral,
    Learned,
    /// The name resolved to public addresses before.
    Moved,
}

impl Reason {
    /// Returns the text after "is a … address", with the action to take.
    pub(super) fn text(self) -> &'static str {
        match self {
            Reason::Denied => "which the egress policy denies",
            Reason::Plain => "and plain `http` is allowed only to this machine: use `https`",
            Reason::Nowhere => {
                "which is not a valid destination: check the URL and what its name resolves to"
            }
            Reason::PublicOnly => {
                "and only public addresses are allowed: to permit it, allow its network in the egress policy"
            }
            Reason::NotLiteral => {
                "which a name must not resolve to: to permit it, use the address instead of the name in the URL"
            }
            Reason::Learned => {
                "and this URL was discovered on the network, not configured, so it may only lead to public addresses: \
                 to permit it, allow its network in the egress policy"
            }
            Reason::Moved => {
                "but the same name had a public address before: if the change is intended, reconnect from the beginning"
            }
        }
    }
}

/// A range of addresses: `10.0.0.0/8`, `fd00::/8`, or a single address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// Returns whether the network contains the address. IPv4-mapped IPv6 addresses count as IPv4.
    pub fn contains(self, address: IpAddr) -> bool {
        let (own, other, unused) = match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (own.to_bits().into(), other.to_bits().into(), 32 - self.prefix)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => (own.to_bits(), other.to_bits(), 128 - self.prefix),
            _ => return false,
        };
        let network = |bits: u128| bits.checked_shr(unused.into()).unwrap_or(0);
        network(own) == network(other)
    }
}

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Network { address, prefix: if address.is_ipv4() { 32 } else { 128 } }
    }
}

impl FromStr for Network {
    type Err = EgressError;

    fn from_str(text: &str) -> Result<Self, EgressError> {
        let wrong = || {
            EgressError::setup(format!(
                "`{text}` is not a network: write it as `10.0.0.0/8`, `fd00::/8` or one address"
            ))
        };
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let network = Network::from(address.parse::<IpAddr>().map_err(|_| wrong())?);
        let Some(prefix) = prefix else { return Ok(network) };
        let prefix: u8 = prefix.parse().map_err(|_| wrong())?;
        if prefix > network.prefix {
            return Err(wrong());
        }
        Ok(Network { prefix, ..network })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEARNED: Trust = Trust::Learned { home: Some(Class::Public) };

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    fn reason(policy: &Policy, at: &str, https: bool, literal: bool, trust: Trust) -> Option<Reason> {
        policy.check(address(at), https, literal, trust).err().map(|refusal| refusal.reason)
    }

    #[test]
    fn typed_urls_may_be_near_and_learned_ones_may_not() {
        let policy = Policy::default();
        for near in ["10.0.0.1", "127.0.0.1", "::1", "fd00::1"] {
            assert_eq!(reason(&policy, near, true, false, Trust::Typed), None, "{near}");
            for home in [None, Some(Class::Public), Some(Class::LinkLocal), Some(Class::Forbidden)] {
                let refused = reason(&policy, near, true, true, Trust::Learned { home });
                assert_eq!(refused, Some(Reason::Learned), "{near} {home:?}");
            }
        }
        assert_eq!(reason(&policy, "8.8.8.8", true, false, Trust::Learned { home: None }), None);
        assert_eq!(reason(&policy, "224.0.0.1", true, true, Trust::Typed), Some(Reason::Nowhere));
    }

    #[test]
    fn a_learned_url_may_be_where_the_typed_one_is() {
        let policy = Policy::default();
        let [private, here] =
            [Class::Private, Class::Loopback].map(|home| Trust::Learned { home: Some(home) });
        assert_eq!(reason(&policy, "10.0.0.1", true, false, private), None);
        assert_eq!(reason(&policy, "127.0.0.1", true, false, here), None);
        assert_eq!(reason(&policy, "127.0.0.1", true, false, private), Some(Reason::Learned));
        assert_eq!(reason(&policy, "10.0.0.1", true, false, here), Some(Reason::Learned));
        assert_eq!(reason(&policy, "169.254.169.254", true, true, here), Some(Reason::Learned));
    }

    #[test]
    fn link_local_needs_the_very_address() {
        let policy = Policy::default();
        assert_eq!(reason(&policy, "169.254.169.254", true, true, Trust::Typed), None);
        assert_eq!(reason(&policy, "169.254.169.254", true, false, Trust::Typed), Some(Reason::NotLiteral));
        let home = Trust::Learned { home: Some(Class::LinkLocal) };
        assert_eq!(reason(&policy, "169.254.169.254", true, true, home), Some(Reason::Learned));
    }

    #[test]
    fn plain_http_stays_on_this_machine() {
        let policy = Policy::default();
        assert_eq!(reason(&policy, "127.0.0.1", false, true, Trust::Typed), None);
        assert_eq!(reason(&policy, "::ffff:127.0.0.1", false, true, Trust::Typed), None);
        for far in ["10.0.0.1", "8.8.8.8"] {
            assert_eq!(reason(&policy, far, false, true, Trust::Typed), Some(Reason::Plain), "{far}");
        }
        let lab = Policy::default().allow_http(network("10.0.0.0/8"));
        assert_eq!(reason(&lab, "10.0.0.1", false, true, Trust::Typed), None);
        assert_eq!(reason(&lab, "10.0.0.1", false, true, LEARNED), Some(Reason::Learned));
    }

    #[test]
    fn operators_have_the_last_word() {
        let strict = Policy::public_only();
        assert_eq!(reason(&strict, "10.0.0.1", true, true, Trust::Typed), Some(Reason::PublicOnly));
        assert_eq!(reason(&strict, "127.0.0.1", false, true, Trust::Typed), Some(Reason::PublicOnly));
        let neighbour = Trust::Learned { home: Some(Class::Private) };
        assert_eq!(reason(&strict, "10.0.0.1", true, true, neighbour), Some(Reason::PublicOnly));
        let open =
            strict.allow(network("10.4.0.0/16")).allow(network("198.18.0.0/15")).deny(network("10.4.0.9"));
        assert_eq!(reason(&open, "10.4.0.1", true, false, LEARNED), None);
        assert_eq!(reason(&open, "198.18.0.1", true, false, Trust::Typed), None);
        assert_eq!(reason(&open, "10.5.0.1", true, true, Trust::Typed), Some(Reason::PublicOnly));
        assert_eq!(reason(&open, "10.4.0.9", true, true, Trust::Typed), Some(Reason::Denied));
        assert_eq!(reason(&open, "10.4.0.1", false, true, Trust::Typed), Some(Reason::Plain));
    }

    #[test]
    fn networks() {
        assert!(network("10.0.0.0/8").contains(address("10.255.0.1")));
        assert!(network("10.0.0.0/8").contains(address("::ffff:10.0.0.1")));
        assert!(!network("10.0.0.0/8").contains(address("11.0.0.1")));
        assert!(!network("10.0.0.0/8").contains(address("fd00::1")));
        assert!(
            network("0.0.0.0/0").contains(address("1.2.3.4")) && network("::/0").contains(address("fd00::1"))
        );
        assert!(
            network("fd00::/8").contains(address("fdff::1"))
                && !network("fd00::/8").contains(address("fc00::1"))
        );
        assert!(
            network("10.0.0.7").contains(address("10.0.0.7"))
                && !network("10.0.0.7").contains(address("10.0.0.8"))
        );
        for wrong in
            ["", "10", "10.0.0.0/33", "fd00::/129", "10.0.0.0/", "10.0.0.0/-1", "x/8", "10.0.0.0/8/8"]
        {
            let error = wrong.parse::<Network>().expect_err(wrong);
            assert!(error.to_string().contains("is not a network"), "{error}");
        }
    }
}
