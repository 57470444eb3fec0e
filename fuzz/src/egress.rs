//! Target for the egress policy: no text becomes a URL that leads to an address forbidden for discovered URLs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linchpin::egress::{AddressClass, Policy, Target, UrlSource};

/// Checks the first sixteen bytes as an address, and the whole input as a URL reference.
pub fn egress(data: &[u8]) {
    if let Some((octets, _)) = data.split_first_chunk::<16>() {
        address(Ipv6Addr::from(*octets));
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(base) = Target::configured("https://public.example:8443/a/b?c") else { return };
    let Ok(learned) = base.discovered(text) else { return };
    let url = learned.url();
    let again = Target::configured(&url)
        .unwrap_or_else(|error| panic!("{url} was accepted first and rejected then: {error}"));
    assert_eq!(again.url(), url);
    assert!(learned.same_origin(&again), "{url}");
    assert!(
        !url.contains(['@', '\\', ' ', '#']) || learned.path().contains('@') || url.contains('?'),
        "{url}"
    );
    assert!(learned.path().starts_with('/') && learned.port() > 0);
    if learned.same_origin(&base) {
        return;
    }
    assert_eq!(learned.source(), UrlSource::Discovered { reached_class: None }, "{url}");
    let host = learned.host();
    let inner = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = inner.parse::<IpAddr>() {
        let allowed = Policy::default().check(address, learned.is_https(), true, learned.source());
        assert_eq!(
            allowed.is_ok(),
            learned.is_https() && AddressClass::classify(address) == AddressClass::Public,
            "{url}"
        );
    } else {
        let last = host.rsplit('.').next().unwrap_or_default();
        assert!(
            !last.bytes().all(|byte| byte.is_ascii_digit()),
            "{url}: a resolver could interpret it as a number"
        );
    }
}

fn address(address: Ipv6Addr) {
    let class = AddressClass::classify(address.into());
    let near = address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
        || address.is_unique_local()
        || address.is_unicast_link_local();
    assert!(!near || class != AddressClass::Public, "{address}");
    let [.., a, b, c, d] = address.octets();
    let four = Ipv4Addr::new(a, b, c, d);
    let own = AddressClass::classify(four.into());
    let near = four.is_loopback() || four.is_private() || four.is_link_local() || four.is_multicast();
    assert!(!near && !four.is_unspecified() && !four.is_broadcast() || own != AddressClass::Public, "{four}");
    let [_, _, _, _, _, _, high, low] = address.segments();
    for carrier in [
        four.to_ipv6_mapped(),
        Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
        Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
    ] {
        assert_eq!(AddressClass::classify(carrier.into()), own, "{carrier}");
    }
    let public = Policy::public_only().check(address.into(), true, true, UrlSource::Configured);
    assert_eq!(public.is_ok(), class == AddressClass::Public);
}
