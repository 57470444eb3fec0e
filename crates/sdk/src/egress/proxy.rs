//! Connections through an HTTP proxy: `CONNECT` for `https`, so that it sees where to and no more; plain `http` is handed
//! to it, since many connect to nothing but the port of `https`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::error::{EgressError, EgressErrorKind};
use super::policy::Network;
use super::target::{Host, Target};

/// The head of a proxy's answer is not larger than this.
const LARGEST_HEAD: usize = 8 * 1024;

/// What to do about 407.
const WHO: &str = "it asks for a user name and password: put them into its URL";

/// A proxy and what does not go through it.
#[derive(Clone)]
pub(super) struct Proxy {
    pub target: Target,
    /// The whole value of `Proxy-Authorization`: never shown.
    authorization: Option<HeaderValue>,
    direct: Vec<Direct>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Direct {
    All,
    /// A name and everything below it.
    Name(String),
    Network(Network),
}

impl Proxy {
    /// A proxy from `http://[user:password@]host:port`.
    pub(super) fn new(url: &str) -> Result<Proxy, EgressError> {
        let wrong = |reason: String| EgressError::setup(format!("the proxy cannot be used: {reason}"));
        let url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        if !scheme.eq_ignore_ascii_case("http") {
            return Err(wrong("its URL must begin with http://".into()));
        }
        let (user, place) = match rest.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, rest),
        };
        let target = Target::typed(&format!("http://{place}")).map_err(|error| wrong(error.to_string()))?;
        let authorization = user.map(|user| {
            let value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(percent_decode(user))));
            value.map(|mut value| {
                value.set_sensitive(true);
                value
            })
        });
        let authorization =
            authorization.transpose().map_err(|_| wrong("its password cannot be in a header".into()))?;
        Ok(Proxy { target, authorization, direct: Vec::new() })
    }

    /// What does not go through it: names with everything below them, networks, or `*`, with commas between.
    pub(super) fn except(mut self, list: &str) -> Proxy {
        let entries = list.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        self.direct.extend(entries.map(|entry| match entry.parse() {
            _ if entry == "*" => Direct::All,
            Ok(network) => Direct::Network(network),
            Err(_) => Direct::Name(entry.trim_start_matches("*.").trim_matches('.').to_ascii_lowercase()),
        }));
        self
    }

    /// Whether connections to the host go through it. Those to this machine never do.
    pub(super) fn is_for(&self, host: &Host) -> bool {
        let direct = |direct: &Direct| match (direct, host) {
            (Direct::All, _) => true,
            (Direct::Name(suffix), Host::Name(name)) => {
                name.strip_suffix(&**suffix).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            }
            (Direct::Network(network), Host::Address(address)) => network.contains(*address),
            _ => false,
        };
        host.class_by_name() != super::Class::Loopback && !self.direct.iter().any(direct)
    }

    /// Who asks it, if it wants to know.
    pub(super) fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }

    /// The proxy itself cannot be connected to.
    pub(super) fn unreachable(&self, error: EgressError) -> EgressError {
        let text = format!("the proxy at {} cannot be used: {error}", self.target.authority());
        EgressError::new(EgressErrorKind::Proxy, text).because(error)
    }

    fn failed(&self, target: &Target, reason: &str) -> EgressError {
        let (own, host) = (self.target.authority(), target.host());
        let text = format!("the proxy at {own} did not connect to `{host}`: {reason}");
        EgressError::new(EgressErrorKind::Proxy, text)
    }

    /// An answer to what was handed to it: its own, where it does not know who asks.
    pub(super) fn check<T>(&self, answer: Response<T>, target: &Target) -> Result<Response<T>, EgressError> {
        match answer.status().as_u16() {
            407 => Err(self.failed(target, WHO)),
            _ => Ok(answer),
        }
    }

    /// Asks the proxy, at the other end of the stream, to connect on.
    pub(super) async fn tunnel(&self, stream: &mut TcpStream, target: &Target) -> Result<(), EgressError> {
        let failed = |reason: String| self.failed(target, &reason);
        let broken = |error: std::io::Error| failed(format!("the connection broke ({error})"));
        let place = format!("{}:{}", target.host(), target.port());
        let mut request = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n");
        if let Some(authorization) = self.authorization.as_ref().and_then(|value| value.to_str().ok()) {
            request.extend(["Proxy-Authorization: ", authorization, "\r\n"]);
        }
        request.push_str("\r\n");
        stream.write_all(request.as_bytes()).await.map_err(broken)?;
        let mut head = Vec::with_capacity(512);
        while !head.ends_with(b"\r\n\r\n") {
            // One at a time, so that nothing of what follows is taken. It happens once in the life of a connection.
            let byte = stream.read_u8().await.map_err(broken)?;
            if head.len() == LARGEST_HEAD {
                return Err(failed("its answer is too long".into()));
            }
            head.push(byte);
        }
        let head = String::from_utf8_lossy(&head);
        let mut words = head.lines().next().unwrap_or_default().split(' ');
        match (words.next(), words.next().and_then(|status| status.parse::<u16>().ok())) {
            (Some("HTTP/1.1" | "HTTP/1.0"), Some(200..=299)) => Ok(()),
            (_, Some(407)) => Err(failed(WHO.into())),
            (_, Some(status)) => {
                Err(failed(format!("it answered {status}; its owner decides what it connects to")))
            }
            _ => Err(failed("its answer is not HTTP; check host and port".into())),
        }
    }
}

/// `%40` in a user name or password stands for `@`.
fn percent_decode(text: &str) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, later @ ..] = rest {
        let escaped = if *first == b'%' { later.split_at_checked(2) } else { None };
        let byte =
            escaped.and_then(|(digits, _)| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        decoded.push(byte.unwrap_or(*first));
        rest = escaped.filter(|_| byte.is_some()).map_or(later, |(_, behind)| behind);
    }
    decoded
}

/// The proxy that the environment names for `https`, and what it excepts.
pub(super) fn from_environment(read: impl Fn(&str) -> Option<String>) -> Result<Option<Proxy>, EgressError> {
    let first = |names: [&str; 4]| names.into_iter().filter_map(&read).find(|value| !value.trim().is_empty());
    let Some(url) = first(["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]) else { return Ok(None) };
    let list = read("no_proxy").or_else(|| read("NO_PROXY")).unwrap_or_default();
    Ok(Some(Proxy::new(url.trim())?.except(&list)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(url: &str) -> Host {
        Target::typed(url).unwrap().place().host.clone()
    }

    #[test]
    fn the_environment_names_a_proxy_and_exceptions() {
        let read = |name: &str| match name {
            "HTTPS_PROXY" => Some("http://user:p%40ss@proxy.example:3128".to_owned()),
            "NO_PROXY" => Some("internal.example, .lan,10.0.0.0/8, *.dev,".to_owned()),
            _ => None,
        };
        let proxy = from_environment(read).unwrap().unwrap();
        assert_eq!((proxy.target.host(), proxy.target.port()), ("proxy.example".into(), 3128));
        assert_eq!(proxy.authorization.as_ref().unwrap(), "Basic dXNlcjpwQHNz");
        for direct in [
            "https://internal.example",
            "https://a.internal.example",
            "https://x.lan",
            "https://10.1.1.1",
            "https://a.dev",
        ] {
            assert!(!proxy.is_for(&host(direct)), "{direct}");
        }
        for through in ["https://example.com", "https://notinternal.example", "https://11.1.1.1"] {
            assert!(proxy.is_for(&host(through)), "{through}");
        }
        for here in ["http://localhost", "http://127.0.0.1", "http://[::1]", "http://a.localhost"] {
            assert!(!proxy.is_for(&host(here)), "{here}");
        }
        assert!(!proxy.except("*").is_for(&host("https://example.com")));
        assert!(from_environment(|_| None).unwrap().is_none());
        assert!(from_environment(|_| Some(" ".into())).unwrap().is_none());
    }

    #[test]
    fn a_proxy_that_cannot_be_used() {
        for url in ["https://proxy:1", "socks5://proxy:1", "http://", "http://pro xy"] {
            let error = Proxy::new(url).err().expect(url);
            assert!(error.to_string().starts_with("the proxy cannot be used: "), "{error}");
        }
        assert_eq!(Proxy::new("proxy:8080").unwrap().target.port(), 8080);
    }

    #[test]
    fn percent_signs() {
        assert_eq!(percent_decode("a%3Ab%zz%4"), b"a:b%zz%4");
    }
}
