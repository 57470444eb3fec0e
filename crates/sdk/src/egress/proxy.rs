//! HTTP proxy: `CONNECT` for `https`, so that the proxy sees only the destination. Plain `http` is forwarded, since
//! many proxies tunnel only to the `https` port.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::error::{EgressError, EgressErrorKind};
use super::policy::Network;
use super::target::{Host, Target};

/// Maximum size of the head of a proxy response.
const MAX_RESPONSE_HEAD_BYTES: usize = 8 * 1024;

/// Advice if the proxy responds with status 407.
const MSG_AUTH_REQUIRED: &str = "the proxy requires a user name and password: add them to its URL";

/// HTTP proxy for outgoing connections, and the hosts that are reached without it.
#[derive(Clone)]
pub(super) struct HttpProxy {
    pub target: Target,
    /// Value of the `Proxy-Authorization` header; never shown.
    authorization: Option<HeaderValue>,
    no_proxy: Vec<NoProxyRule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum NoProxyRule {
    All,
    /// A name and all its subdomains.
    Name(String),
    Network(Network),
}

impl HttpProxy {
    /// Parses the URL of a proxy, `http://[user:password@]host:port`.
    pub(super) fn new(url: &str) -> Result<HttpProxy, EgressError> {
        let invalid = |reason: String| EgressError::setup(format!("the proxy cannot be used: {reason}"));
        let url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        if !scheme.eq_ignore_ascii_case("http") {
            return Err(invalid("the URL of the proxy must begin with http://".into()));
        }
        let (user, authority) = match rest.rsplit_once('@') {
            Some((user, authority)) => (Some(user), authority),
            None => (None, rest),
        };
        let target =
            Target::configured(&format!("http://{authority}")).map_err(|error| invalid(error.to_string()))?;
        let authorization = user.map(|user| {
            let text = format!("Basic {}", STANDARD.encode(percent_decode(user)));
            let mut value = HeaderValue::try_from(text).expect("Base64 is valid in a header");
            value.set_sensitive(true);
            value
        });
        Ok(HttpProxy { target, authorization, no_proxy: Vec::new() })
    }

    /// Adds exceptions: a comma-separated list of names (including their subdomains), networks, or `*`.
    pub(super) fn with_no_proxy(mut self, list: &str) -> HttpProxy {
        let entries = list.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        self.no_proxy.extend(entries.map(|entry| match entry.parse() {
            _ if entry == "*" => NoProxyRule::All,
            Ok(network) => NoProxyRule::Network(network),
            Err(_) => {
                NoProxyRule::Name(entry.trim_start_matches("*.").trim_matches('.').to_ascii_lowercase())
            }
        }));
        self
    }

    /// Returns whether connections to the host use the proxy. Loopback hosts never do.
    pub(super) fn applies_to(&self, host: &Host) -> bool {
        let direct = |direct: &NoProxyRule| match (direct, host) {
            (NoProxyRule::All, _) => true,
            (NoProxyRule::Name(suffix), Host::Name(name)) => {
                name.strip_suffix(&**suffix).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            }
            (NoProxyRule::Network(network), Host::Address(address)) => network.contains(*address),
            _ => false,
        };
        host.class_by_name() != super::AddressClass::Loopback && !self.no_proxy.iter().any(direct)
    }

    /// Returns the value of `Proxy-Authorization`, if the proxy URL has credentials.
    pub(super) fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }

    /// Wraps the error of a connection to the proxy in one that names the proxy.
    pub(super) fn proxy_error(&self, error: EgressError) -> EgressError {
        let text = format!("the proxy at {} cannot be used: {error}", self.target.authority());
        EgressError::new(EgressErrorKind::Proxy, text).with_source(error)
    }

    fn connect_error(&self, target: &Target, reason: &str) -> EgressError {
        let (proxy_authority, host) = (self.target.authority(), target.host());
        let text = format!("the proxy at {proxy_authority} did not connect to `{host}`: {reason}");
        EgressError::new(EgressErrorKind::Proxy, text)
    }

    /// Checks the response to a forwarded request: 407 comes from the proxy itself.
    pub(super) fn check_response<T>(
        &self,
        response: Response<T>,
        target: &Target,
    ) -> Result<Response<T>, EgressError> {
        match response.status().as_u16() {
            407 => Err(self.connect_error(target, MSG_AUTH_REQUIRED)),
            _ => Ok(response),
        }
    }

    /// Sends `CONNECT` to the proxy at the other end of the stream.
    pub(super) async fn tunnel(&self, stream: &mut TcpStream, target: &Target) -> Result<(), EgressError> {
        let failed = |reason: String| self.connect_error(target, &reason);
        let io_error = |error: std::io::Error| failed(format!("the connection broke ({error})"));
        let authority = format!("{}:{}", target.host(), target.port());
        let mut request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n");
        if let Some(authorization) = self.authorization.as_ref().and_then(|value| value.to_str().ok()) {
            request.extend(["Proxy-Authorization: ", authorization, "\r\n"]);
        }
        request.push_str("\r\n");
        stream.write_all(request.as_bytes()).await.map_err(io_error)?;
        let mut head = Vec::with_capacity(512);
        while !head.ends_with(b"\r\n\r\n") {
            // One byte at a time, so that nothing after the head is consumed. This happens once per connection.
            let byte = stream.read_u8().await.map_err(io_error)?;
            if head.len() == MAX_RESPONSE_HEAD_BYTES {
                return Err(failed("the response of the proxy is too long".into()));
            }
            head.push(byte);
        }
        let head = String::from_utf8_lossy(&head);
        let mut words = head.lines().next().unwrap_or_default().split(' ');
        match (words.next(), words.next().and_then(|status| status.parse::<u16>().ok())) {
            (Some("HTTP/1.1" | "HTTP/1.0"), Some(200..=299)) => Ok(()),
            (_, Some(407)) => Err(failed(MSG_AUTH_REQUIRED.into())),
            (_, Some(status)) => Err(failed(format!(
                "it responded with status {status}; ask the administrator of the proxy whether it allows the target host"
            ))),
            _ => Err(failed("the response of the proxy is not HTTP; check its host and port".into())),
        }
    }
}

/// Decodes percent-encoded characters in a user name or password of a proxy URL.
fn percent_decode(text: &str) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, remainder @ ..] = rest {
        let escaped = if *first == b'%' { remainder.split_at_checked(2) } else { None };
        let byte =
            escaped.and_then(|(digits, _)| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        decoded.push(byte.unwrap_or(*first));
        rest = escaped.filter(|_| byte.is_some()).map_or(remainder, |(_, after_escape)| after_escape);
    }
    decoded
}

/// Returns the proxy that the environment variables name for `https`, with its exceptions.
pub(super) fn from_environment(
    read: impl Fn(&str) -> Option<String>,
) -> Result<Option<HttpProxy>, EgressError> {
    let first = |names: [&str; 4]| names.into_iter().filter_map(&read).find(|value| !value.trim().is_empty());
    let Some(url) = first(["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]) else { return Ok(None) };
    let list = read("no_proxy").or_else(|| read("NO_PROXY")).unwrap_or_default();
    Ok(Some(HttpProxy::new(url.trim())?.with_no_proxy(&list)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(url: &str) -> Host {
        Target::configured(url).unwrap().key().host.clone()
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
            assert!(!proxy.applies_to(&host(direct)), "{direct}");
        }
        for through in ["https://example.com", "https://notinternal.example", "https://11.1.1.1"] {
            assert!(proxy.applies_to(&host(through)), "{through}");
        }
        for here in ["http://localhost", "http://127.0.0.1", "http://[::1]", "http://a.localhost"] {
            assert!(!proxy.applies_to(&host(here)), "{here}");
        }
        assert!(!proxy.with_no_proxy("*").applies_to(&host("https://example.com")));
        assert!(from_environment(|_| None).unwrap().is_none());
        assert!(from_environment(|_| Some(" ".into())).unwrap().is_none());
    }

    #[test]
    fn a_proxy_that_cannot_be_used() {
        for url in ["https://proxy:1", "socks5://proxy:1", "http://", "http://pro xy"] {
            let error = HttpProxy::new(url).err().expect(url);
            assert!(error.to_string().starts_with("the proxy cannot be used: "), "{error}");
        }
        assert_eq!(HttpProxy::new("proxy:8080").unwrap().target.port(), 8080);
    }

    #[test]
    fn percent_signs() {
        assert_eq!(percent_decode("a%3Ab%zz%4"), b"a:b%zz%4");
    }
}
