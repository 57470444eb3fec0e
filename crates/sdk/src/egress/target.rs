//! Request targets: a parsed URL and its source.
//!
//! The parser is stricter than a browser. Browsers repair numeric hosts, backslashes and user names; these forms are
//! common in attacks and rejected here.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use http::uri::PathAndQuery;
use http::{HeaderValue, Uri};

use super::address_class::Class;
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
    /// Class at which the configured URL was reached. Shared by all targets discovered from it.
    home: Arc<Home>,
}

/// Key of the connection pool: a connection is reused only for an equal key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub https: bool,
    pub host: Host,
    pub port: u16,
    /// Host and port in the form of the `Host` header.
    pub authority: HeaderValue,
    pub typed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Host {
    Name(String),
    Address(IpAddr),
}

/// Class at which a configured URL was reached: class number plus one; zero while unknown.
#[derive(Default)]
struct Home(AtomicU8);

const CLASSES: [Class; 5] =
    [Class::Public, Class::Private, Class::LinkLocal, Class::Loopback, Class::Forbidden];

impl Target {
    /// Parses a configured URL: entered by a user, or from a configuration.
    pub fn typed(url: &str) -> Result<Target, EgressError> {
        let (place, path) = parse(url, true)?;
        Ok(Target { place: Arc::new(place), path, home: Arc::default() })
    }

    /// Parses a URL or relative reference that was discovered on the network, directly or indirectly from this
    /// target.
    ///
    /// Within the same origin the result has the source of this target; otherwise it counts as discovered.
    pub fn learned(&self, reference: &str) -> Result<Target, EgressError> {
        let absolute = join(self, reference)?;
        let (place, path) = parse(&absolute, false)?;
        let place = if self.place.same_origin(&place) { self.place.clone() } else { Arc::new(place) };
        Ok(Target { place, path, home: self.home.clone() })
    }

    /// Returns a target with another path of the same origin. `path` must start with `/`.
    pub fn at(&self, path: &str) -> Result<Target, EgressError> {
        Ok(Target { path: parse_path(path)?, ..self.clone() })
    }

    /// Returns whether the scheme is `https`.
    pub fn is_https(&self) -> bool {
        self.place.https
    }

    /// Returns the host: a name in lower case, or an address.
    pub fn host(&self) -> String {
        self.place.host.to_string()
    }

    /// Returns the port, explicit or implied.
    pub fn port(&self) -> u16 {
        self.place.port
    }

    /// Returns the path, without the query.
    pub fn path(&self) -> &str {
        self.path.path()
    }

    /// Returns the query, or an empty string. Do not log it.
    pub(crate) fn query(&self) -> &str {
        self.path.query().unwrap_or_default()
    }

    /// Returns scheme, host and port, in the form of the `Origin` header.
    pub fn origin(&self) -> String {
        let scheme = if self.place.https { "https" } else { "http" };
        format!("{scheme}://{}", self.authority())
    }

    /// Returns the whole URL, including the query. Do not log it.
    pub fn url(&self) -> String {
        format!("{}{}", self.origin(), self.path)
    }

    /// Returns whether scheme, host and port are the same.
    pub fn same_origin(&self, other: &Target) -> bool {
        self.place.same_origin(&other.place)
    }

    /// Returns whether a redirect may lead from here to `other`, judged by its name or address alone: to public
    /// hosts, or to the class of this target itself.
    pub(crate) fn may_lead_to(&self, other: &Target) -> bool {
        match other.place.host.class_by_name() {
            Class::Public => true,
            class => self.home() == Some(class) || self.place.host.class_by_name() == class,
        }
    }

    /// Returns whether data sent to it is protected from others: `https`, or loopback.
    pub fn is_secure(&self) -> bool {
        self.place.https || self.place.host.class_by_name() == Class::Loopback
    }

    /// Returns the current source of the URL. For a discovered URL it includes the class at which the configured URL
    /// was reached.
    pub fn trust(&self) -> Trust {
        if self.place.typed { Trust::Typed } else { Trust::Learned { home: self.home.get() } }
    }

    pub(super) fn place(&self) -> &Arc<Place> {
        &self.place
    }

    pub(super) fn authority(&self) -> &str {
        self.place.authority.to_str().unwrap_or_default()
    }

    /// Returns the URI of the request line.
    pub(super) fn request_uri(&self) -> Uri {
        Uri::from(self.path.clone())
    }

    /// Returns the absolute URI of the request line, for a forwarding proxy.
    pub(super) fn whole_uri(&self) -> Uri {
        let whole = Uri::builder().scheme(if self.place.https { "https" } else { "http" });
        let whole = whole.authority(self.authority()).path_and_query(self.path.clone()).build();
        whole.unwrap_or_else(|_| self.request_uri()) // cannot fail: host and port come from a URL
    }

    /// Returns the class at which the configured URL was reached.
    pub(super) fn home(&self) -> Option<Class> {
        self.home.get()
    }

    /// Records a connection. Only configured URLs determine the class.
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

    /// Stores the most public class: a later DNS response must not make a public target private.
    fn reached(&self, class: Class) {
        let number = class as u8 + 1;
        let nearest = |now| (now == 0 || number < now).then_some(number);
        // `Err` only means that nothing had to change.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, nearest);
    }
}

impl Place {
    fn same_origin(&self, other: &Place) -> bool {
        (self.https, self.port, &self.host) == (other.https, other.port, &other.host)
    }
}

/// The authority is derived from host and port, so it is not hashed.
impl Hash for Place {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.host, self.port).hash(state);
    }
}

impl Host {
    /// Returns the class of a host without resolving it.
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

/// Rejects URLs that are too long, or contain characters that are not allowed in a URL.
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
            Err(wrong(&format!("it contains the character {char:?}; encode it as %{:02X}", char as u32)))
        }
        Some(_) => Err(wrong("it contains non-ASCII characters; encode hosts as xn--… and the rest with %")),
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
        () => return Err(wrong("only https:// and http:// are supported")),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let (host, port) = parse_authority(authority)?;
    let standard = if https { 443 } else { 80 };
    let port = port.unwrap_or(standard);
    let authority = if port == standard { host.to_string() } else { format!("{host}:{port}") };
    let authority =
        HeaderValue::try_from(authority).map_err(|_| wrong("its host is not valid in a header"))?;
    Ok((Place { https, host, port, authority, typed }, parse_path(path)?))
}

fn parse_authority(authority: &str) -> Result<(Host, Option<u16>), EgressError> {
    if authority.contains('@') {
        return Err(wrong("it contains a user name or password; send them in a header instead"));
    }
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (inner, port) = rest.split_once(']').ok_or_else(|| wrong("a `]` is missing"))?;
        let address: Ipv6Addr = inner
            .parse()
            .map_err(|_| wrong("the text in [ ] is not an IPv6 address (zones are not supported)"))?;
        // Canonical form: one spelling per address.
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
        return Err(wrong("its host must be an address or a name of letters, digits, `-` and `.`"));
    }
    // Resolvers accept `0x7f.1` and `2130706433` as addresses. Only the dotted decimal form is allowed here.
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
    PathAndQuery::try_from(path)
        .map_err(|_| wrong("its path contains characters that must be percent-encoded"))
}

/// Resolves a reference against `base`.
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

/// Removes `.` and `..` segments from a path.
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

/// Formats the host as in a URL: IPv6 in brackets.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => f.write_str(name),
            Host::Address(IpAddr::V4(address)) => address.fmt(f),
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

/// Omits the query, which may contain secrets.
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
