//! Classification of IP addresses as public, private, link-local, loopback or forbidden. Independent of names and of
//! the policy.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Class of an IP address, by which the egress policy decides. Ordered from public to forbidden.
///
/// An IPv6 address that embeds an IPv4 address (mapped, compatible, NAT64, 6to4, Teredo, ISATAP) has the class of
/// the embedded one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddressClass {
    /// Globally routable.
    Public,
    /// A private network: RFC 1918, carrier-grade NAT, unique local and site-local IPv6.
    Private,
    /// Link-local, and the metadata services of cloud providers at any address.
    LinkLocal,
    /// The machine itself: 127.0.0.0/8 and `::1`.
    Loopback,
    /// Multicast, unspecified, reserved, documentation and benchmark addresses.
    Forbidden,
}

impl AddressClass {
    /// Returns the class of an IP address: public, private, loopback and so on.
    pub fn classify(address: IpAddr) -> AddressClass {
        match address {
            IpAddr::V4(address) => classify_v4(address),
            IpAddr::V6(address) => classify_v6(address),
        }
    }
}

impl fmt::Display for AddressClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AddressClass::Public => "a public address",
            AddressClass::Private => "a private address",
            AddressClass::LinkLocal => "a link-local or metadata address",
            AddressClass::Loopback => "a loopback address",
            AddressClass::Forbidden => "a reserved address",
        })
    }
}

fn classify_v4(address: Ipv4Addr) -> AddressClass {
    match address.octets() {
        [127, ..] => AddressClass::Loopback,
        // 100.100.100.200 and 168.63.129.16 are cloud metadata services outside 169.254/16.
        [169, 254, ..] | [100, 100, 100, 200] | [168, 63, 129, 16] => AddressClass::LinkLocal,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => AddressClass::Private,
        // In order: this network and multicast, protocol assignments, documentation, 6to4 relays, benchmarks.
        [0 | 224..=255, ..]
        | [192, 0, 0 | 2, _]
        | [198, 51, 100, _]
        | [203, 0, 113, _]
        | [192, 88, 99, _]
        | [198, 18..=19, ..] => AddressClass::Forbidden,
        _ => AddressClass::Public,
    }
}

fn classify_v6(address: Ipv6Addr) -> AddressClass {
    let segments = address.segments();
    // ISATAP interface identifiers embed an IPv4 address, under any prefix.
    if let [.., 0 | 0x200, 0x5efe, high, low] = segments {
        let prefix =
            classify_v6_prefix(address, [segments[0], segments[1], segments[2], segments[3], 0, 0, 0, 1]);
        return prefix.max(classify_v4(v4(high, low)));
    }
    classify_v6_prefix(address, segments)
}

fn classify_v6_prefix(address: Ipv6Addr, segments: [u16; 8]) -> AddressClass {
    match segments {
        [0, 0, 0, 0, 0, 0, 0, 1] => AddressClass::Loopback,
        // Mapped, translated (RFC 2765), compatible, the well-known NAT64 prefix, 6to4. All zeros embed 0.0.0.0.
        [0, 0, 0, 0, 0, 0xffff | 0, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => classify_v4(v4(high, low)),
        [0x64, 0xff9b, 1, ..] => classify_local_nat64(address),
        // Teredo embeds two: the server's, and the client's with all bits inverted.
        [0x2001, 0, high, low, .., client_high, client_low] => {
            classify_v4(v4(high, low)).max(classify_v4(v4(!client_high, !client_low)))
        }
        [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254] | [0xfe80..=0xfebf, ..] => AddressClass::LinkLocal,
        [0xfc00..=0xfdff | 0xfec0..=0xfeff, ..] => AddressClass::Private,
        // Protocol assignments, documentation.
        [0x2001, 1..=0x1ff | 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => AddressClass::Forbidden,
        // No other range is allocated for global unicast.
        [0x2000..=0x3fff, ..] => AddressClass::Public,
        _ => AddressClass::Forbidden,
    }
}

/// Classifies an address with a local NAT64 prefix: private at best. The position of the IPv4 address depends on the
/// prefix length; both common positions are checked if they are not zero.
fn classify_local_nat64(address: Ipv6Addr) -> AddressClass {
    let octets = address.octets();
    let at_48 = Ipv4Addr::new(octets[6], octets[7], octets[9], octets[10]);
    let at_96 = Ipv4Addr::new(octets[12], octets[13], octets[14], octets[15]);
    let embedded = [at_48, at_96].into_iter().filter(|address| !address.is_unspecified()).map(classify_v4);
    embedded.fold(AddressClass::Private, AddressClass::max)
}

fn v4(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(high) << 16 | u32::from(low))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn class(address: &str) -> AddressClass {
        AddressClass::classify(address.parse().unwrap_or_else(|_| panic!("{address} is an address")))
    }

    #[test]
    fn ipv4() {
        let table = [
            (
                AddressClass::Public,
                "1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 126.255.255.255 128.0.0.0 100.63.255.255 100.128.0.0",
            ),
            (
                AddressClass::Public,
                "172.15.255.255 172.32.0.0 192.167.255.255 192.169.0.0 169.253.255.255 169.255.0.0 198.17.255.255",
            ),
            (
                AddressClass::Public,
                "198.20.0.0 223.255.255.255 192.0.1.0 192.0.3.0 203.0.112.255 203.0.114.0 168.63.129.17",
            ),
            (
                AddressClass::Private,
                "10.0.0.0 10.255.255.255 172.16.0.0 172.31.255.255 192.168.0.0 192.168.255.255 100.64.0.0",
            ),
            (AddressClass::Private, "100.127.255.255 100.100.100.201"),
            (
                AddressClass::LinkLocal,
                "169.254.0.0 169.254.169.254 169.254.255.255 100.100.100.200 168.63.129.16",
            ),
            (AddressClass::Loopback, "127.0.0.0 127.0.0.1 127.0.0.2 127.255.255.255"),
            (
                AddressClass::Forbidden,
                "0.0.0.0 0.255.255.255 192.0.0.1 192.0.2.1 198.51.100.1 203.0.113.1 198.18.0.0 198.19.255.255",
            ),
            (AddressClass::Forbidden, "192.88.99.1 224.0.0.1 239.255.255.255 240.0.0.0 255.255.255.255"),
        ];
        check(&table);
    }

    #[test]
    fn ipv6() {
        let table = [
            (
                AddressClass::Public,
                "2606:4700::1111 2a00:1450::1 2001:4860:4860::8888 2001:200::1 2400:: 3ffe::1",
            ),
            (AddressClass::Private, "fc00:: fd00::1 fdff:ffff:: fec0::1 feff::1"),
            (AddressClass::LinkLocal, "fe80::1 febf::1 fd00:ec2::254"),
            (AddressClass::Loopback, "::1"),
            (
                AddressClass::Forbidden,
                ":: ff02::1 ff00:: 2001:db8::1 3fff::1 100::1 2001:2::1 2001:10::1 2001:20::1 5f00::1 4000::1",
            ),
            (AddressClass::Forbidden, "1::1 fe00::1 200::1 e000::1 64:ff9b:2::1"),
        ];
        check(&table);
    }

    #[test]
    fn ipv4_inside_ipv6() {
        let carriers = |address: &str| {
            let v4: Ipv4Addr = address.parse().unwrap();
            let [high, low] = [u32::from(v4) >> 16, u32::from(v4) & 0xffff];
            [
                format!("::ffff:{address}"),
                format!("::{address}"),
                format!("::ffff:0:{address}"),
                format!("64:ff9b::{address}"),
                format!("2002:{high:x}:{low:x}::1"),
                format!("2001:0:808:808::{:x}:{:x}", high ^ 0xffff, low ^ 0xffff),
                format!("2001:0:{high:x}:{low:x}::f7f7:f7f7"),
                format!("2606:4700::5efe:{address}"),
                format!("2606:4700::200:5efe:{address}"),
            ]
        };
        let table = [
            ("8.8.8.8", AddressClass::Public),
            ("10.1.2.3", AddressClass::Private),
            ("192.168.0.1", AddressClass::Private),
            ("100.64.0.1", AddressClass::Private),
            ("169.254.169.254", AddressClass::LinkLocal),
            ("127.0.0.1", AddressClass::Loopback),
            ("127.0.0.2", AddressClass::Loopback),
            ("224.0.0.1", AddressClass::Forbidden),
            ("203.0.113.7", AddressClass::Forbidden),
        ];
        for (address, expected) in table {
            for carrier in carriers(address) {
                assert_eq!(class(&carrier), expected, "{carrier}");
            }
        }
        assert_eq!(class("fe80::5efe:8.8.8.8"), AddressClass::LinkLocal, "the prefix counts too");
        assert_eq!(class("fd00::5efe:127.0.0.1"), AddressClass::Loopback);
        assert_eq!(class("64:ff9b:1::8.8.8.8"), AddressClass::Private);
        assert_eq!(class("64:ff9b:1::127.0.0.1"), AddressClass::Loopback);
        assert_eq!(class("64:ff9b:1:7f00:0:100::"), AddressClass::Loopback);
        assert_eq!(class("64:ff9b:1:a00:0:100::"), AddressClass::Private);
    }

    #[test]
    fn a_class_reads_as_a_noun() {
        assert_eq!(AddressClass::Private.to_string(), "a private address");
    }

    fn check(table: &[(AddressClass, &str)]) {
        for (expected, addresses) in table {
            for address in addresses.split(' ') {
                assert_eq!(class(address), *expected, "{address}");
            }
        }
    }

    proptest! {
        /// An address that the standard library considers private must not be public here.
        #[test]
        fn no_private_address_is_public(address in any::<u32>(), six in any::<u128>()) {
            let address = Ipv4Addr::from(address);
            if address.is_private() || address.is_loopback() || address.is_link_local() || address.is_multicast() {
                prop_assert_ne!(AddressClass::classify(address.into()), AddressClass::Public);
            }
            let mapped = AddressClass::classify(address.to_ipv6_mapped().into());
            prop_assert_eq!(mapped, AddressClass::classify(address.into()));
            let six = Ipv6Addr::from(six);
            if six.is_unique_local() || six.is_unicast_link_local() || six.is_multicast() {
                prop_assert_ne!(AddressClass::classify(six.into()), AddressClass::Public);
            }
        }
    }
}
