//! Targets of outgoing requests: a parsed URL, and whether it was configured or discovered.
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

use super::address_class::AddressClass;
use super::error::{EgressError, EgressErrorKind};
use super::policy::UrlSource;

const MAX_URL_LEN: usize = 8 * 1024;

/// Parsed URL of an outgoing request, and whether it was configured or discovered. Cheap to clone.
///
/// ```
/// use linchpin::egress::Target;
///
/// let target = Target::configured("https://example.com/mcp?key=secret")?;
/// let discovered = target.discovered("../other")?;
/// assert_eq!(discovered.url(), "https://example.com/other");
/// assert_eq!(target.to_string(), "https://example.com/mcp");
/// # Ok::<(), linchpin::egress::EgressError>(())
/// ```
#[derive(Clone)]
pub struct Target {
    key: Arc<ConnectionKey>,
    path: PathAndQuery,
    /// Address class at which the configured URL was reached, such as loopback or public. Shared by all targets
    /// discovered from it.
    reached_class: Arc<ReachedClass>,
}

/// Key of the egress connection pool: a connection is reused only for an equal key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ConnectionKey {
    pub https: bool,
    pub host: Host,
    pub port: u16,
    /// Host and port in the form of the `Host` header.
    pub authority: HeaderValue,
    pub is_configured: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Host {
    Name(String),
    Address(IpAddr),
}

/// Address class at which a configured URL was reached: class number plus one; zero while unknown.
#[derive(Default)]
struct ReachedClass(AtomicU8);

const CLASSES: [AddressClass; 5] = [
    AddressClass::Public,
    AddressClass::Private,
    AddressClass::LinkLocal,
    AddressClass::Loopback,
    AddressClass::Forbidden,
];

impl Target {
    /// Parses a configured URL: entered by a user, or from a configuration.
    pub fn configured(url: &str) -> Result<Target, EgressError> {
        let (key, path) = parse(url, true)?;
        Ok(Target { key: Arc::new(key), path, reached_class: Arc::default() })
    }

    /// Parses a URL or relative reference that was discovered on the network, directly or indirectly from this
    /// target.
    ///
    /// Within the same origin the result has the source of this target; otherwise it counts as discovered.
    pub fn discovered(&self, reference: &str) -> Result<Target, EgressError> {
        let absolute = join(self, reference)?;
        let (key, path) = parse(&absolute, false)?;
        let key = if self.key.same_origin(&key) { self.key.clone() } else { Arc::new(key) };
        Ok(Target { key, path, reached_class: self.reached_class.clone() })
    }

    /// Returns a target with another path of the same origin. `path` must start with `/`.
    pub fn at(&self, path: &str) -> Result<Target, EgressError> {
        Ok(Target { path: parse_path(path)?, ..self.clone() })
    }

    /// Returns whether the scheme is `https`.
    pub fn is_https(&self) -> bool {
        self.key.https
    }

    /// Returns the host: a name in lower case, or an address.
    pub fn host(&self) -> String {
        self.key.host.to_string()
    }

    /// Returns the port of the URL, explicit or implied.
    pub fn port(&self) -> u16 {
        self.key.port
    }

    /// Returns the path of the URL, without the query.
    pub fn path(&self) -> &str {
        self.path.path()
    }

    /// Returns the query of the URL, or an empty string. Do not log it.
    pub(crate) fn query(&self) -> &str {
        self.path.query().unwrap_or_default()
    }

    /// Returns scheme, host and port, in the form of the `Origin` header.
    pub fn origin(&self) -> String {
        let scheme = if self.key.https { "https" } else { "http" };
        format!("{scheme}://{}", self.authority())
    }

    /// Returns the complete URL, including the query. Do not log it.
    pub fn url(&self) -> String {
        format!("{}{}", self.origin(), self.path)
    }

    /// Returns whether scheme, host and port are the same.
    pub fn same_origin(&self, other: &Target) -> bool {
        self.key.same_origin(&other.key)
    }

    /// Returns whether a redirect may lead from here to `other`, judged by its name or address alone: to public
    /// hosts, or to the class of this target itself.
    pub(crate) fn may_redirect_to(&self, other: &Target) -> bool {
        match other.key.host.class_by_name() {
            AddressClass::Public => true,
            class => self.reached_class() == Some(class) || self.key.host.class_by_name() == class,
        }
    }

    /// Returns whether data sent to this URL is protected from others: `https`, or loopback.
    pub fn is_secure(&self) -> bool {
        self.key.https || self.key.host.class_by_name() == AddressClass::Loopback
    }

    /// Returns whether the URL was configured or discovered, which determines the addresses that it may have. For a
    /// discovered URL it includes the class at which the configured URL was reached.
    pub fn source(&self) -> UrlSource {
        if self.key.is_configured {
            UrlSource::Configured
        } else {
            UrlSource::Discovered { reached_class: self.reached_class.get() }
        }
    }

    pub(super) fn key(&self) -> &Arc<ConnectionKey> {
        &self.key
    }

    pub(super) fn authority(&self) -> &str {
        self.key.authority.to_str().unwrap_or_default()
    }

    /// Returns the path and query for the HTTP request line.
    pub(super) fn request_uri(&self) -> Uri {
        Uri::from(self.path.clone())
    }

    /// Returns the absolute URI of the request line, for a forwarding proxy.
    pub(super) fn absolute_uri(&self) -> Uri {
        let uri = Uri::builder().scheme(if self.key.https { "https" } else { "http" });
        let uri = uri.authority(self.authority()).path_and_query(self.path.clone()).build();
        uri.unwrap_or_else(|_| self.request_uri()) // cannot fail: host and port come from a URL
    }

    /// Returns the address class (public, private, …) at which the configured URL was reached.
    pub(super) fn reached_class(&self) -> Option<AddressClass> {
        self.reached_class.get()
    }

    /// Records the address class (public, private, …) of an opened connection. Only configured URLs determine the
    /// class.
    pub(super) fn record_reached(&self, class: AddressClass) {
        if self.key.is_configured {
            self.reached_class.record(class);
        }
    }
}

impl ReachedClass {
    fn get(&self) -> Option<AddressClass> {
        let number = self.0.load(Ordering::Relaxed);
        CLASSES.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// Records the most public address class seen: a later DNS response must not make a public target private.
    fn record(&self, class: AddressClass) {
        let number = class as u8 + 1;
        let nearest = |now| (now == 0 || number < now).then_some(number);
        // `Err` only means that nothing had to change.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, nearest);
    }
}

impl ConnectionKey {
    fn same_origin(&self, other: &ConnectionKey) -> bool {
        (self.https, self.port, &self.host) == (other.https, other.port, &other.host)
    }
}

/// The authority is derived from host and port, so it is not hashed.
impl Hash for ConnectionKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.host, self.port).hash(state);
    }
}

impl Host {
    /// Returns the address class of a host without resolving its name.
    pub(super) fn class_by_name(&self) -> AddressClass {
        let name = match self {
            Host::Address(address) => return AddressClass::classify(*address),
            Host::Name(name) => name,
        };
        let last = name.rsplit('.').next().unwrap_or(name);
        match last {
            "localhost" => AddressClass::Loopback,
            "local" | "internal" | "lan" | "home" | "corp" | "intranet" => AddressClass::Private,
            _ if last == name || name == "home.arpa" || name.ends_with(".home.arpa") => AddressClass::Private,
            _ => AddressClass::Public,
        }
    }

    pub(super) fn is_literal(&self) -> bool {
        matches!(self, Host::Address(_))
    }
}

fn invalid_url(reason: &str) -> EgressError {
    EgressError::new(EgressErrorKind::Url, format!("the URL cannot be used: {reason}"))
}

/// Rejects URLs that are too long, or contain characters that are not allowed in a URL.
fn check_characters(url: &str) -> Result<(), EgressError> {
    if url.len() > MAX_URL_LEN {
        return Err(invalid_url("the URL is longer than 8192 bytes"));
    }
    match url
        .chars()
        .find(|char| !char.is_ascii_graphic() || matches!(char, '\\' | '<' | '>' | '"' | '^' | '`'))
    {
        None => Ok(()),
        Some(char) if char.is_ascii() => Err(invalid_url(&format!(
            "it contains the character {char:?}; encode it as %{:02X}",
            char as u32
        ))),
        Some(_) => {
            Err(invalid_url("it contains non-ASCII characters; encode hosts as xn--… and the rest with %"))
        }
    }
}

fn parse(url: &str, is_configured: bool) -> Result<(ConnectionKey, PathAndQuery), EgressError> {
    check_characters(url)?;
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(invalid_url("it must begin with https:// or http://"));
    };
    let https = match () {
        () if scheme.eq_ignore_ascii_case("https") => true,
        () if scheme.eq_ignore_ascii_case("http") => false,
        () => return Err(invalid_url("only https:// and http:// are supported")),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let (host, port) = parse_authority(authority)?;
    let standard = if https { 443 } else { 80 };
    let port = port.unwrap_or(standard);
    let authority = if port == standard { host.to_string() } else { format!("{host}:{port}") };
    let authority =
        HeaderValue::try_from(authority).map_err(|_| invalid_url("its host is not valid in a header"))?;
    Ok((ConnectionKey { https, host, port, authority, is_configured }, parse_path(path)?))
}

fn parse_authority(authority: &str) -> Result<(Host, Option<u16>), EgressError> {
    if authority.contains('@') {
        return Err(invalid_url("it contains a user name or password; send them in a header instead"));
    }
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (inner, port) =
            rest.split_once(']').ok_or_else(|| invalid_url("the `]` after its IPv6 address is missing"))?;
        let address: Ipv6Addr = inner
            .parse()
            .map_err(|_| invalid_url("the text in [ ] is not an IPv6 address (zones are not supported)"))?;
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
    Ok((host, Some(port.ok_or_else(|| invalid_url("its port must be a number from 1 to 65535"))?)))
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
        return Err(invalid_url("its host must be an address or a name of letters, digits, `-` and `.`"));
    }
    // Resolvers accept `0x7f.1` and `2130706433` as addresses. Only the dotted decimal form is allowed here.
    let last = name.rsplit('.').next().unwrap_or(name);
    let hex = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    let numeric = last.bytes().all(|byte| byte.is_ascii_digit())
        || hex.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if numeric {
        return Err(invalid_url(
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
        Some(_) => return Err(invalid_url("its path must begin with /")),
    };
    PathAndQuery::try_from(path)
        .map_err(|_| invalid_url("its path contains characters that must be percent-encoded"))
}

/// Resolves a URI reference against the URL `base`.
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
        path if path.starts_with('/') => (remove_dot_segments(path), query.to_owned()),
        path => {
            let folder = base.path().rsplit_once('/').map_or("", |(folder, _)| folder);
            (remove_dot_segments(&format!("{folder}/{path}")), query.to_owned())
        }
    };
    Ok(format!("{}{path}{query}", base.origin()))
}

/// Removes `.` and `..` segments from a path.
fn remove_dot_segments(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    let mut steps = path.split('/').skip(1).peekable();
    while let Some(step) = steps.next() {
        let last = steps.peek().is_none();
        match step {
            "." | ".." => {
                if step == ".." {
                    segments.pop();
                }
                if last {
                    segments.push("");
                }
            }
            step => segments.push(step),
        }
    }
    format!("/{}", segments.join("/"))
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
        write!(f, "Target({self}, {:?})", self.source())
    }
}
