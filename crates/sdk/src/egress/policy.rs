//! Egress policy: which addresses a URL may reach, depending on its source. It is checked for each address that is
//! about to be dialled.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::address_class::AddressClass;
use super::error::EgressError;

/// Whether a URL was configured or discovered, which determines what addresses it may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UrlSource {
    /// Configured by the caller: entered by a user, or from a configuration.
    Configured,
    /// Discovered on the network: a redirect, metadata, an event, an icon.
    Discovered {
        /// Class of the address at which the configured URL was reached. The discovered URL may reach the same
        /// class, and public addresses.
        reached_class: Option<AddressClass>,
    },
}

/// Egress policy: which addresses and schemes outgoing connections may use.
///
/// Default: a configured URL may reach public, private and loopback addresses, and a link-local address only if the
/// URL contains that address. A discovered URL may reach public addresses, and the class at which the configured URL
/// was reached. Plain `http` is limited to loopback addresses.
///
/// ```
/// use linchpin::egress::{AddressClass, Policy, UrlSource};
///
/// let policy = Policy::public_only().allow("10.4.0.0/16".parse()?);
/// let discovered = UrlSource::Discovered { reached_class: Some(AddressClass::Public) };
/// assert!(policy.check("10.4.0.7".parse()?, true, false, discovered).is_ok());
/// assert!(policy.check("10.5.0.7".parse()?, true, false, UrlSource::Configured).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Policy {
    private_allowed: bool,
    allowed: Vec<Network>,
    denied: Vec<Network>,
    plain_http: Vec<Network>,
}

impl Default for Policy {
    fn default() -> Self {
        Policy { private_allowed: true, allowed: Vec::new(), denied: Vec::new(), plain_http: Vec::new() }
    }
}

impl Policy {
    /// Allows only public addresses, for configured URLs too: for programs whose users do not own the network.
    pub fn public_only() -> Self {
        Policy { private_allowed: false, ..Policy::default() }
    }

    /// Allows a network regardless of its class, for discovered URLs too.
    #[must_use]
    pub fn allow(mut self, network: Network) -> Self {
        self.allowed.push(network);
        self
    }

    /// Denies connections to a network. This takes precedence over everything else.
    #[must_use]
    pub fn deny(mut self, network: Network) -> Self {
        self.denied.push(network);
        self
    }

    /// Allows plain `http` to a network. The network must also be reachable under the other rules.
    #[must_use]
    pub fn allow_http(mut self, network: Network) -> Self {
        self.plain_http.push(network);
        self
    }

    /// Checks whether an address may be dialled. `https`: the connection uses TLS. `literal`: the URL contains the
    /// address, not a name.
    pub fn check(
        &self,
        address: IpAddr,
        https: bool,
        literal: bool,
        trust: UrlSource,
    ) -> Result<AddressClass, PolicyViolation> {
        let class = AddressClass::classify(address);
        let contains = |networks: &[Network]| networks.iter().any(|network| network.contains(address));
        let refusal = |reason| PolicyViolation { address, class, reason };
        if contains(&self.denied) {
            return Err(refusal(ViolationReason::Denied));
        }
        if !contains(&self.allowed) {
            self.check_class(class, literal, trust).map_err(refusal)?;
        }
        if !https && class != AddressClass::Loopback && !contains(&self.plain_http) {
            return Err(refusal(ViolationReason::PlainHttp));
        }
        Ok(class)
    }

    /// Checks the class of a name whose address is unknown because a proxy resolves it.
    pub(super) fn check_class(
        &self,
        class: AddressClass,
        literal: bool,
        trust: UrlSource,
    ) -> Result<(), ViolationReason> {
        match (class, trust) {
            (AddressClass::Public, _) => Ok(()),
            (AddressClass::Forbidden, _) => Err(ViolationReason::Reserved),
            _ if !self.private_allowed => Err(ViolationReason::PublicOnly),
            (AddressClass::Private | AddressClass::Loopback, UrlSource::Configured) => Ok(()),
            (AddressClass::LinkLocal, UrlSource::Configured) if literal => Ok(()),
            (AddressClass::LinkLocal, UrlSource::Configured) => Err(ViolationReason::NotLiteral),
            (AddressClass::Private | AddressClass::Loopback, UrlSource::Discovered { reached_class })
                if reached_class == Some(class) =>
            {
                Ok(())
            }
            (_, UrlSource::Discovered { .. }) => Err(ViolationReason::Discovered),
        }
    }
}

/// Address that the egress policy denies, with its class and the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyViolation {
    /// Address that the policy denies.
    pub address: IpAddr,
    /// Class of the denied address.
    pub class: AddressClass,
    pub(super) reason: ViolationReason,
}

impl fmt::Display for PolicyViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, {}", self.address, self.class, self.reason.message())
    }
}

impl std::error::Error for PolicyViolation {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ViolationReason {
    Denied,
    PlainHttp,
    Reserved,
    PublicOnly,
    NotLiteral,
    Discovered,
    /// The host name resolved to public addresses before, and resolves to private or local ones now.
    BecamePrivate,
}

impl ViolationReason {
    /// Returns the end of the error message "… is a … address, …": why the address is denied, and the action to take.
    pub(super) fn message(self) -> &'static str {
        match self {
            ViolationReason::Denied => "which the egress policy denies",
            ViolationReason::PlainHttp => "and plain `http` is allowed only to this machine: use `https`",
            ViolationReason::Reserved => {
                "which is not a valid destination: check the URL and what its host name resolves to"
            }
            ViolationReason::PublicOnly => {
                "and only public addresses are allowed: to permit it, allow its network in the egress policy"
            }
            ViolationReason::NotLiteral => {
                "which a name must not resolve to: to permit it, use the address instead of the name in the URL"
            }
            ViolationReason::Discovered => {
                "and this URL was discovered on the network, not configured, so it may only lead to public addresses: \
                 to permit it, allow its network in the egress policy"
            }
            ViolationReason::BecamePrivate => {
                "but this host name had a public address before (DNS rebinding?): if the change is intended, create a new \
                 client"
            }
        }
    }
}

/// Range of IP addresses: `10.0.0.0/8`, `fd00::/8`, or a single address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// Returns whether the network contains the address. IPv4-mapped IPv6 addresses count as IPv4.
    pub fn contains(self, address: IpAddr) -> bool {
        let (network_bits, other, unused) = match (self.address, address.to_canonical()) {
            (IpAddr::V4(network_bits), IpAddr::V4(other)) => {
                (network_bits.to_bits().into(), other.to_bits().into(), 32 - self.prefix)
            }
            (IpAddr::V6(network_bits), IpAddr::V6(other)) => {
                (network_bits.to_bits(), other.to_bits(), 128 - self.prefix)
            }
            _ => return false,
        };
        let network = |bits: u128| bits.checked_shr(unused.into()).unwrap_or(0);
        network(network_bits) == network(other)
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
        let invalid = || {
            EgressError::setup(format!(
                "`{text}` is not a network: write it as `10.0.0.0/8`, `fd00::/8` or one address"
            ))
        };
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let network = Network::from(address.parse::<IpAddr>().map_err(|_| invalid())?);
        let Some(prefix) = prefix else { return Ok(network) };
        let prefix: u8 = prefix.parse().map_err(|_| invalid())?;
        if prefix > network.prefix {
            return Err(invalid());
        }
        Ok(Network { prefix, ..network })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISCOVERED: UrlSource = UrlSource::Discovered { reached_class: Some(AddressClass::Public) };

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    fn reason(
        policy: &Policy,
        at: &str,
        https: bool,
        literal: bool,
        trust: UrlSource,
    ) -> Option<ViolationReason> {
        policy.check(address(at), https, literal, trust).err().map(|refusal| refusal.reason)
    }

    #[test]
    fn typed_urls_may_be_near_and_learned_ones_may_not() {
        let policy = Policy::default();
        for near in ["10.0.0.1", "127.0.0.1", "::1", "fd00::1"] {
            assert_eq!(reason(&policy, near, true, false, UrlSource::Configured), None, "{near}");
            for reached_class in [
                None,
                Some(AddressClass::Public),
                Some(AddressClass::LinkLocal),
                Some(AddressClass::Forbidden),
            ] {
                let refused = reason(&policy, near, true, true, UrlSource::Discovered { reached_class });
                assert_eq!(refused, Some(ViolationReason::Discovered), "{near} {reached_class:?}");
            }
        }
        assert_eq!(
            reason(&policy, "8.8.8.8", true, false, UrlSource::Discovered { reached_class: None }),
            None
        );
        assert_eq!(
            reason(&policy, "224.0.0.1", true, true, UrlSource::Configured),
            Some(ViolationReason::Reserved)
        );
    }

    #[test]
    fn a_learned_url_may_be_where_the_typed_one_is() {
        let policy = Policy::default();
        let [private, here] = [AddressClass::Private, AddressClass::Loopback]
            .map(|reached_class| UrlSource::Discovered { reached_class: Some(reached_class) });
        assert_eq!(reason(&policy, "10.0.0.1", true, false, private), None);
        assert_eq!(reason(&policy, "127.0.0.1", true, false, here), None);
        assert_eq!(reason(&policy, "127.0.0.1", true, false, private), Some(ViolationReason::Discovered));
        assert_eq!(reason(&policy, "10.0.0.1", true, false, here), Some(ViolationReason::Discovered));
        assert_eq!(reason(&policy, "169.254.169.254", true, true, here), Some(ViolationReason::Discovered));
    }

    #[test]
    fn link_local_needs_the_very_address() {
        let policy = Policy::default();
        assert_eq!(reason(&policy, "169.254.169.254", true, true, UrlSource::Configured), None);
        assert_eq!(
            reason(&policy, "169.254.169.254", true, false, UrlSource::Configured),
            Some(ViolationReason::NotLiteral)
        );
        let discovered = UrlSource::Discovered { reached_class: Some(AddressClass::LinkLocal) };
        assert_eq!(
            reason(&policy, "169.254.169.254", true, true, discovered),
            Some(ViolationReason::Discovered)
        );
    }

    #[test]
    fn plain_http_stays_on_this_machine() {
        let policy = Policy::default();
        assert_eq!(reason(&policy, "127.0.0.1", false, true, UrlSource::Configured), None);
        assert_eq!(reason(&policy, "::ffff:127.0.0.1", false, true, UrlSource::Configured), None);
        for far in ["10.0.0.1", "8.8.8.8"] {
            assert_eq!(
                reason(&policy, far, false, true, UrlSource::Configured),
                Some(ViolationReason::PlainHttp),
                "{far}"
            );
        }
        let lab = Policy::default().allow_http(network("10.0.0.0/8"));
        assert_eq!(reason(&lab, "10.0.0.1", false, true, UrlSource::Configured), None);
        assert_eq!(reason(&lab, "10.0.0.1", false, true, DISCOVERED), Some(ViolationReason::Discovered));
    }

    #[test]
    fn operators_have_the_last_word() {
        let strict = Policy::public_only();
        assert_eq!(
            reason(&strict, "10.0.0.1", true, true, UrlSource::Configured),
            Some(ViolationReason::PublicOnly)
        );
        assert_eq!(
            reason(&strict, "127.0.0.1", false, true, UrlSource::Configured),
            Some(ViolationReason::PublicOnly)
        );
        let neighbour = UrlSource::Discovered { reached_class: Some(AddressClass::Private) };
        assert_eq!(reason(&strict, "10.0.0.1", true, true, neighbour), Some(ViolationReason::PublicOnly));
        let open =
            strict.allow(network("10.4.0.0/16")).allow(network("198.18.0.0/15")).deny(network("10.4.0.9"));
        assert_eq!(reason(&open, "10.4.0.1", true, false, DISCOVERED), None);
        assert_eq!(reason(&open, "198.18.0.1", true, false, UrlSource::Configured), None);
        assert_eq!(
            reason(&open, "10.5.0.1", true, true, UrlSource::Configured),
            Some(ViolationReason::PublicOnly)
        );
        assert_eq!(
            reason(&open, "10.4.0.9", true, true, UrlSource::Configured),
            Some(ViolationReason::Denied)
        );
        assert_eq!(
            reason(&open, "10.4.0.1", false, true, UrlSource::Configured),
            Some(ViolationReason::PlainHttp)
        );
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
        for invalid in
            ["", "10", "10.0.0.0/33", "fd00::/129", "10.0.0.0/", "10.0.0.0/-1", "x/8", "10.0.0.0/8/8"]
        {
            let error = invalid.parse::<Network>().expect_err(invalid);
            assert!(error.to_string().contains("is not a network"), "{error}");
        }
    }
}
