//! Private addresses in all spellings that some parser accepts.
#![allow(clippy::allow_attributes, dead_code, reason = "each test file uses a part of it")]

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// Addresses that a discovered URL must not lead to.
pub(crate) const ADDRESSES: [[u8; 4]; 10] = [
    [127, 0, 0, 2],
    [127, 0, 0, 1],
    [10, 0, 0, 1],
    [172, 16, 5, 4],
    [192, 168, 1, 1],
    [169, 254, 169, 254],
    [100, 64, 0, 1],
    [127, 255, 255, 254],
    [0, 0, 0, 0],
    [224, 0, 0, 1],
];

/// IPv6 addresses, names and numbers that lead there, too.
pub(crate) const NAMES: [&str; 25] = [
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[::]",
    "[::1%25lo]",
    "[fd00::1]",
    "[fe80::1]",
    "[fd00:ec2::254]",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "a.localhost",
    "0",
    "[0000:0000:0000:0000:0000:0000:0000:0001]",
    "[::0:1]",
    "[fc00::1]",
    "[fec0::1]",
    "[ff02::1]",
    "LocalHost.LocalDomain",
    "canary",
    "canary.internal",
    "rebind.example",
    "xn--lcalhost-54a",
    "::1",
    "00",
    "0x0",
];

/// Returns the 320 hosts that are tried for each discovered URL.
pub(crate) fn hosts() -> BTreeSet<String> {
    let hosts = all(&ADDRESSES[..7], &NAMES[..13]);
    assert_eq!(hosts.len(), 320, "each of them once");
    hosts
}

/// Returns all spellings of these addresses, and these names.
pub(crate) fn all(addresses: &[[u8; 4]], names: &[&str]) -> BTreeSet<String> {
    let spellings = addresses.iter().flat_map(|octets| spellings((*octets).into()));
    spellings.chain(names.iter().map(|name| (*name).to_owned())).collect()
}

/// Returns the hosts that some parser accepts as this IPv4 address.
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
