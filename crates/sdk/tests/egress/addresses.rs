//! Every way to write a private address, as a URL that was learned: none of them is dialled.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use linchpin::egress::{Egress, EgressErrorKind, Phase, Policy, Target};

use crate::support::{Canary, Script, get};

/// Hosts that somebody's parser takes for this IPv4 address.
fn spellings(address: Ipv4Addr) -> Vec<String> {
    let [a, b, c, d] = address.octets();
    let number = u32::from(address);
    let [high, low] = [number >> 16, number & 0xffff];
    let wide = |text: &str| -> String {
        let digit =
            |char: char| char.to_digit(10).and_then(|digit| char::from_u32(0xff10 + digit)).unwrap_or(char);
        text.chars().map(digit).collect()
    };
    let escaped = address.to_string().bytes().map(|byte| format!("%{byte:02x}")).collect::<Vec<_>>().concat();
    vec![
        address.to_string(),
        format!("{address}."),
        format!("{number}"),
        format!("{number}."),
        format!("0{number:o}"),
        format!("{number:#x}"),
        format!("0X{number:X}"),
        format!("0x00000000{number:08x}"),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("{a:#x}.{b:#x}.{c:#x}.{d:#x}"),
        format!("{a:03}.{b:03}.{c:03}.{d:03}"),
        format!("{a}.{}", number & 0xff_ffff),
        format!("{a}.{b}.{low}"),
        format!("{a:#x}.{b}.{c}.0{d:o}"),
        wide(&address.to_string()),
        address.to_string().replace('.', "。"),
        address.to_string().replace('1', "①").replace('0', "⓪"),
        escaped,
        format!("example.com@{address}"),
        format!("user:password@{address}"),
        format!("{address}%2f.example.com@{address}"),
        format!("[::ffff:{address}]"),
        format!("[::ffff:{high:x}:{low:x}]"),
        format!("[0:0:0:0:0:FFFF:{high:x}:{low:x}]"),
        format!("[0000:0000:0000:0000:0000:ffff:{high:04x}:{low:04x}]"),
        format!("[::{address}]"),
        format!("[::ffff:0:{address}]"),
        format!("[64:ff9b::{address}]"),
        format!("[64:ff9b:1::{address}]"),
        format!("[64:ff9b:1:{high:x}:{:x}:{:x}::]", low >> 8, (low & 0xff) << 8),
        format!("[2002:{high:x}:{low:x}::]"),
        format!("[2002:{high:x}:{low:x}::1]"),
        format!("[2001:0:{high:x}:{low:x}::]"),
        format!("[2001::{:x}:{:x}]", high ^ 0xffff, low ^ 0xffff),
        format!("[2606:4700::5efe:{address}]"),
        format!("[2606:4700::200:5efe:{address}]"),
        format!("[fe80::5efe:{address}%25lo]"),
        format!("[::ffff:{address}%25eth0]"),
        format!("[::ffff:{address}%eth0]"),
        format!("[{address}]"),
        format!("{address}.nip.example"),
        format!("\t{address}"),
        format!("{address}\\@example.com"),
        format!("example.com\\@{address}"),
    ]
}

fn hosts() -> BTreeSet<String> {
    let addresses = [
        [127, 0, 0, 2],
        [127, 0, 0, 1],
        [127, 255, 255, 254],
        [10, 0, 0, 1],
        [172, 16, 5, 4],
        [192, 168, 1, 1],
        [169, 254, 169, 254],
        [100, 64, 0, 1],
        [0, 0, 0, 0],
        [224, 0, 0, 1],
    ];
    let mut hosts: BTreeSet<_> = addresses.into_iter().flat_map(|octets| spellings(octets.into())).collect();
    let others = [
        "[::1]",
        "[0:0:0:0:0:0:0:1]",
        "[0000:0000:0000:0000:0000:0000:0000:0001]",
        "[::0:1]",
        "[::]",
        "[::1%25lo]",
        "[fd00::1]",
        "[fc00::1]",
        "[fec0::1]",
        "[fe80::1]",
        "[fd00:ec2::254]",
        "[ff02::1]",
        "localhost",
        "LOCALHOST",
        "localhost.",
        "a.localhost",
        "LocalHost.LocalDomain",
        "canary",
        "canary.internal",
        "rebind.example",
        "xn--lcalhost-54a",
        "::1",
        "0",
        "00",
        "0x0",
    ];
    hosts.extend(others.map(str::to_owned));
    hosts
}

fn watched(policy: Policy, resolver: Script) -> (Egress, Arc<AtomicUsize>) {
    let dialled = Arc::new(AtomicUsize::new(0));
    let counter = dialled.clone();
    let egress = Egress::builder().policy(policy).resolver(resolver).on_hop(move |hop| {
        if hop.phase == Phase::Connect {
            counter.fetch_add(1, Ordering::SeqCst);
        }
    });
    (egress.build().unwrap(), dialled)
}

/// The URLs, relative references among them, that lead to a host and a port.
fn references(host: &str, port: u16) -> [String; 4] {
    [
        format!("https://{host}:{port}/"),
        format!("http://{host}:{port}/x?y=z"),
        format!("//{host}:{port}/"),
        format!("HTTPS://{host}:{port}"),
    ]
}

#[tokio::test]
async fn no_spelling_of_a_private_address_is_dialled() {
    let canary = Canary::open(&["127.0.0.2", "127.0.0.1", "::1"]);
    let hosts = hosts();
    let mut tried = 0;
    for policy in [Policy::default(), Policy::public_only()] {
        let (egress, dialled) = watched(policy, Script::always("127.0.0.2"));
        let base = Target::typed("https://public.example/mcp").unwrap();
        for host in &hosts {
            for reference in references(host, canary.port()) {
                tried += 1;
                let Ok(learned) = base.learned(&reference) else { continue };
                let error = egress.send(get(), &learned).await.expect_err(&reference);
                assert!(matches!(error.kind(), EgressErrorKind::Refused(_)), "{reference}: {error}");
            }
        }
        assert_eq!(dialled.load(Ordering::SeqCst), 0);
    }
    assert!(hosts.len() >= 320, "only {} spellings", hosts.len());
    assert_eq!(tried, hosts.len() * 8);
    assert_eq!(canary.connections(), 0);
}

#[tokio::test]
async fn the_canary_sings_when_it_is_reached() {
    let canary = Canary::open(&["127.0.0.2", "127.0.0.1", "::1"]);
    let egress = watched(Policy::default(), Script::always("127.0.0.2")).0;
    for host in ["127.0.0.2", "[::ffff:127.0.0.2]", "canary.example"] {
        let typed = Target::typed(&format!("http://{host}:{}/", canary.port())).unwrap();
        let mut sending = Box::pin(egress.send(get(), &typed));
        // It never answers: as soon as it has been reached, nobody waits for it any longer.
        let reached = std::future::poll_fn(|cx| {
            assert!(sending.as_mut().poll(cx).is_pending());
            if canary.connections() == 1 { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        });
        reached.await;
    }
    let strict = watched(Policy::public_only(), Script::always("127.0.0.2")).0;
    let typed = Target::typed(&format!("http://127.0.0.2:{}/", canary.port())).unwrap();
    let error = strict.send(get(), &typed).await.unwrap_err();
    assert!(error.to_string().contains("only public ones may be reached"), "{error}");
    assert_eq!(canary.connections(), 0);
}

#[tokio::test]
async fn plain_http_is_for_this_machine() {
    let (egress, dialled) = watched(Policy::default(), Script::always("93.184.216.34"));
    for url in ["http://public.example/", "http://93.184.216.34/", "http://10.0.0.1/", "http://[fd00::1]/"] {
        let error = egress.send(get(), &Target::typed(url).unwrap()).await.expect_err(url);
        assert!(
            error.to_string().ends_with("plain `http` is for this machine alone: use `https`"),
            "{error}"
        );
        assert!(!error.may_have_been_sent());
    }
    assert_eq!(dialled.load(Ordering::SeqCst), 0);
}
