//! Where a request goes: a URL, taken apart once, and where it came from.
//!
//! The parser is stricter than a browser's. What browsers mend (numbers for hosts, backslashes, user names) is what
//! attacks are made of, and nobody who means well writes it.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use http::uri::PathAndQuery;
use http::{HeaderValue, Uri};

use super::address::Class;
use super::error::{EgressError, EgressErrorKind};
use super::policy::Trust;

const LONGEST: usize = 8 * 1024;

/// A URL that requests can be sent to. Cheap to clone.
///
/// ```
/// use linchpin::egress::Target;
///
/// let target = Target::typed("https://example.com/mcp?key=secret")?;
/// let learned = target.learned("../other")?;
/// assert_eq!(learned.url(), "https://example.com/other");
/// assert_eq!(target.to_string(), "https://example.com/mcp");
/// # Ok::<(), linchpin::egress::EgressError>(())
/// ```
#[derive(Clone)]
pub struct Target {
    place: Arc<Place>,
    path: PathAndQuery,
    /// Where the typed URL was reached. Shared by everything that was learned from it.
    home: Arc<Home>,
}

/// What has to be the same for a connection to be used again.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub https: bool,
    pub host: Host,
    pub port: u16,
    /// Host and port as the `Host` header has them.
    pub authority: HeaderValue,
    pub typed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Host {
    Name(String),
    Address(IpAddr),
}

/// Where a typed URL was reached, as the number of its class and one; zero as long as that is not known.
#[derive(Default)]
struct Home(AtomicU8);

const CLASSES: [Class; 5] =
    [Class::Public, Class::Private, Class::LinkLocal, Class::Loopback, Class::Forbidden];

impl Target {
    /// A URL from the caller: a person typed it, or it is in a configuration.
    pub fn typed(url: &str) -> Result<Target, EgressError> {
        let (place, path) = parse(url, true)?;
        Ok(Target { place: Arc::new(place), path, home: Arc::default() })
    }

    /// A URL or a relative reference that came from the network, from here or from somewhere that this led to.
    ///
    /// Within the same origin it is as good as this one; anywhere else it is learned.
    pub fn learned(&self, reference: &str) -> Result<Target, EgressError> {
        let absolute = join(self, reference)?;
        let (place, path) = parse(&absolute, false)?;
        let place = if self.place.same_origin(&place) { self.place.clone() } else { Arc::new(place) };
        Ok(Target { place, path, home: self.home.clone() })
    }

    /// Another path of the same origin, beginning with `/`.
    pub fn at(&self, path: &str) -> Result<Target, EgressError> {
        Ok(Target { path: parse_path(path)?, ..self.clone() })
    }

    /// Whether the scheme is `https`.
    pub fn is_https(&self) -> bool {
        self.place.https
    }

    /// The host: a name in lower case, or an address.
    pub fn host(&self) -> String {
        self.place.host.to_string()
    }

    /// The port, given or implied.
    pub fn port(&self) -> u16 {
        self.place.port
    }

    /// The path, without the query.
    pub fn path(&self) -> &str {
        self.path.path()
    }

    /// The query, or nothing: not for logs.
    pub(crate) fn query(&self) -> &str {
        self.path.query().unwrap_or_default()
    }

    /// Scheme, host and port, as the `Origin` header has them.
    pub fn origin(&self) -> String {
        let scheme = if self.place.https { "https" } else { "http" };
        format!("{scheme}://{}", self.authority())
    }

    /// The whole URL, with the query: not for logs.
    pub fn url(&self) -> String {
        format!("{}{}", self.origin(), self.path)
    }

    /// Whether scheme, host and port are the same.
    pub fn same_origin(&self, other: &Target) -> bool {
        self.place.same_origin(&other.place)
    }

    /// Whether somebody who was led here may be led on to `other`, as far as its name or address says where it is: to the
    /// public network, or to where this is itself.
    pub(crate) fn may_lead_to(&self, other: &Target) -> bool {
        match other.place.host.class_by_name() {
            Class::Public => true,
            class => self.home() == Some(class) || self.place.host.class_by_name() == class,
        }
    }

    /// Whether what is sent there can be read on the way by nobody else: `https`, or this machine.
    pub fn is_secure(&self) -> bool {
        self.place.https || self.place.host.class_by_name() == Class::Loopback
    }

    /// How far the URL is trusted now. What was learned from it depends on where it has been reached.
    pub fn trust(&self) -> Trust {
        if self.place.typed { Trust::Typed } else { Trust::Learned { home: self.home.get() } }
    }

    pub(super) fn place(&self) -> &Arc<Place> {
        &self.place
    }

    pub(super) fn authority(&self) -> &str {
        self.place.authority.to_str().unwrap_or_default()
    }

    /// What stands in the first line of a request.
    pub(super) fn request_uri(&self) -> Uri {
        Uri::from(self.path.clone())
    }

    /// What stands there where the request is handed to a proxy.
    pub(super) fn whole_uri(&self) -> Uri {
        let whole = Uri::builder().scheme(if self.place.https { "https" } else { "http" });
        let whole = whole.authority(self.authority()).path_and_query(self.path.clone()).build();
        whole.unwrap_or_else(|_| self.request_uri()) // host and port are those of a URL
    }

    /// Where the typed URL has been reached.
    pub(super) fn home(&self) -> Option<Class> {
        self.home.get()
    }

    /// A connection came about. Only what the caller typed says where home is.
    pub(super) fn reached(&self, class: Class) {
        if self.place.typed {
            self.home.reached(class);
        }
    }
}

impl Home {
    fn get(&self) -> Option<Class> {
        let number = self.0.load(Ordering::Relaxed);
        CLASSES.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// What was public once stays public: an answer of the domain name system must not move it nearer.
    fn reached(&self, class: Class) {
        let number = class as u8 + 1;
        let nearest = |now| (now == 0 || number < now).then_some(number);
        // `Err` only says that nothing had to change.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, nearest);
    }
}

impl Place {
    fn same_origin(&self, other: &Place) -> bool {
        (self.https, self.port, &self.host) == (other.https, other.port, &other.host)
    }
}

/// The authority says nothing that host and port do not.
impl Hash for Place {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.host, self.port).hash(state);
    }
}

impl Host {
    /// What can be said of a host without looking it up.
    pub(super) fn class_by_name(&self) -> Class {
        let name = match self {
            Host::Address(address) => return Class::of(*address),
            Host::Name(name) => name,
        };
        let last = name.rsplit('.').next().unwrap_or(name);
        match last {
            "localhost" => Class::Loopback,
            "local" | "internal" | "lan" | "home" | "corp" | "intranet" => Class::Private,
            _ if last == name || name == "home.arpa" || name.ends_with(".home.arpa") => Class::Private,
            _ => Class::Public,
        }
    }

    pub(super) fn is_literal(&self) -> bool {
        matches!(self, Host::Address(_))
    }
}

fn wrong(reason: &str) -> EgressError {
    EgressError::new(EgressErrorKind::Url, format!("the URL cannot be used: {reason}"))
}

/// The text of a URL without what must not be shown, and without what no URL has.
fn check_characters(url: &str) -> Result<(), EgressError> {
    if url.len() > LONGEST {
        return Err(wrong("it is longer than 8192 bytes"));
    }
    match url
        .chars()
        .find(|char| !char.is_ascii_graphic() || matches!(char, '\\' | '<' | '>' | '"' | '^' | '`'))
    {
        None => Ok(()),
        Some(char) if char.is_ascii() => {
            Err(wrong(&format!("it has the character {char:?}; write it as %{:02X}", char as u32)))
        }
        Some(_) => Err(wrong("it has characters beyond ASCII; write hosts as xn--… and the rest with %")),
    }
}

fn parse(url: &str, typed: bool) -> Result<(Place, PathAndQuery), EgressError> {
    check_characters(url)?;
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(wrong("it must begin with https:// or http://"));
    };
    let https = match () {
        () if scheme.eq_ignore_ascii_case("https") => true,
        () if scheme.eq_ignore_ascii_case("http") => false,
        () => return Err(wrong("only https:// and http:// are known")),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let (host, port) = parse_authority(authority)?;
    let standard = if https { 443 } else { 80 };
    let port = port.unwrap_or(standard);
    let authority = if port == standard { host.to_string() } else { format!("{host}:{port}") };
    let authority = HeaderValue::try_from(authority).map_err(|_| wrong("its host cannot be in a header"))?;
    Ok((Place { https, host, port, authority, typed }, parse_path(path)?))
}

fn parse_authority(authority: &str) -> Result<(Host, Option<u16>), EgressError> {
    if authority.contains('@') {
        return Err(wrong("it has a user name or password; put them into a header instead"));
    }
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (inner, port) = rest.split_once(']').ok_or_else(|| wrong("a `]` is missing"))?;
        let address: Ipv6Addr = inner
            .parse()
            .map_err(|_| wrong("what stands in [ ] is not an IPv6 address (zones are not known)"))?;
        // The same place must have one name only.
        (Host::Address(IpAddr::V6(address).to_canonical()), port)
    } else {
        let (host, port) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
        (parse_host(host)?, port)
    };
    if port.is_empty() {
        return Ok((host, None));
    }
    let digits = port.strip_prefix(':').filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
    let port = digits.and_then(|port| port.parse().ok()).filter(|&port| port != 0);
    Ok((host, Some(port.ok_or_else(|| wrong("its port must be a number from 1 to 65535"))?)))
}

fn parse_host(host: &str) -> Result<Host, EgressError> {
    if let Ok(address) = host.parse() {
        return Ok(Host::Address(IpAddr::V4(address)));
    }
    let name = host.strip_suffix('.').unwrap_or(host);
    let label_is_good = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    if name.len() > 253 || !name.split('.').all(label_is_good) {
        return Err(wrong("its host is not a name of letters, digits, `-` and `.`, nor an address"));
    }
    // Resolvers take `0x7f.1` and `2130706433` for addresses. Here there is one way to write one.
    let last = name.rsplit('.').next().unwrap_or(name);
    let hex = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    let numeric = last.bytes().all(|byte| byte.is_ascii_digit())
        || hex.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if numeric {
        return Err(wrong(
            "its host is a number; write an address as four decimal numbers, without leading zeros",
        ));
    }
    Ok(Host::Name(name.to_ascii_lowercase()))
}

fn parse_path(path: &str) -> Result<PathAndQuery, EgressError> {
    check_characters(path)?;
    let path = path.split('#').next().unwrap_or_default();
    let path = match path.as_bytes().first() {
        None => "/".to_owned(),
        Some(b'?') => format!("/{path}"),
        Some(b'/') => path.to_owned(),
        Some(_) => return Err(wrong("its path must begin with /")),
    };
    PathAndQuery::try_from(path).map_err(|_| wrong("its path has characters that must be written with %"))
}

/// A reference as an absolute URL, seen from `base`.
fn join(base: &Target, reference: &str) -> Result<String, EgressError> {
    check_characters(reference)?;
    let reference = reference.split('#').next().unwrap_or_default();
    let scheme_end = reference.find(|char: char| !(char.is_ascii_alphanumeric() || "+-.".contains(char)));
    if scheme_end.is_some_and(|end| end > 0 && reference[end..].starts_with(':')) {
        return Ok(reference.to_owned());
    }
    if reference.starts_with("//") {
        return Ok(format!("{}:{reference}", if base.is_https() { "https" } else { "http" }));
    }
    let (path, query) = match reference.find('?') {
        Some(at) => reference.split_at(at),
        None => (reference, ""),
    };
    let (path, query) = match path {
        "" if query.is_empty() => {
            (base.path().to_owned(), base.path.query().map_or(String::new(), |query| format!("?{query}")))
        }
        "" => (base.path().to_owned(), query.to_owned()),
        path if path.starts_with('/') => (without_dots(path), query.to_owned()),
        path => {
            let folder = base.path().rsplit_once('/').map_or("", |(folder, _)| folder);
            (without_dots(&format!("{folder}/{path}")), query.to_owned())
        }
    };
    Ok(format!("{}{path}{query}", base.origin()))
}

/// A path with its `.` and `..` carried out.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut steps = path.split('/').skip(1).peekable();
    while let Some(step) = steps.next() {
        let last = steps.peek().is_none();
        match step {
            "." | ".." => {
                if step == ".." {
                    kept.pop();
                }
                if last {
                    kept.push("");
                }
            }
            step => kept.push(step),
        }
    }
    format!("/{}", kept.join("/"))
}

/// As in a URL: IPv6 in brackets.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => f.write_str(name),
            Host::Address(IpAddr::V4(address)) => address.fmt(f),
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

/// Without the query, which may hold secrets.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin(), self.path())
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({self}, {:?})", self.trust())
    }
}
