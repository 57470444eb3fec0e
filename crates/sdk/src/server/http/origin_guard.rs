//! `Host` and `Origin` checks, which browsers cannot forge. Without them a web page could reach a server on the user's
//! machine (DNS rebinding).

use std::net::IpAddr;

use ::http::request::Parts;
use ::http::uri::Authority;
use ::http::{HeaderMap, HeaderName, HeaderValue, header};

/// Names of this machine, which DNS cannot redirect.
const LOCAL_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Check of the `Host` and `Origin` headers: allows those of this machine, and the configured ones.
#[derive(Debug, Clone, Default)]
pub struct OriginGuard {
    hosts: Vec<AllowedHost>,
    origins: Vec<String>,
    any_host: bool,
}

/// Host that the `Host` header may name, with a port if only that port is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AllowedHost {
    name: String,
    port: Option<u16>,
}

/// Which header of a request names a host or origin that is not allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OriginError {
    /// The `Host` is not allowed.
    Host,
    /// The `Origin` is not allowed.
    Origin,
}

impl OriginError {
    /// Returns the error text for a client whose `Host` or `Origin` is rejected.
    pub fn message(self) -> &'static str {
        match self {
            OriginError::Host => {
                "this Host is not allowed: the operator of the server can allow it with `allow_host`"
            }
            OriginError::Origin => {
                "this Origin is not allowed: the operator of the server can allow it with `allow_origin`"
            }
        }
    }
}

/// Parses a host name or address with an optional port; `None` if the text is anything else.
fn parse(text: &str) -> Option<AllowedHost> {
    let authority: Authority = text.parse().ok()?;
    if text.contains('@') {
        return None;
    }
    let name = authority.host().trim_end_matches('.').to_ascii_lowercase();
    let rest = text.get(authority.host().len()..)?;
    let port = match rest.strip_prefix(':') {
        Some(port) => Some(parse_port(port)?),
        None if rest.is_empty() => None,
        None => return None,
    };
    (!name.is_empty()).then_some(AllowedHost { name, port })
}

fn parse_port(port: &str) -> Option<u16> {
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    port.parse().ok().filter(|_| digits) // `+80` parses as a number but is not a port
}

/// Returns the value of a header; `Err` if it occurs more than once or is not visible ASCII.
fn single_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, ()> {
    let mut values = headers.get_all(name).iter();
    let first = values.next().map(HeaderValue::to_str).transpose().map_err(|_| ())?;
    if values.next().is_some() { Err(()) } else { Ok(first) }
}

impl OriginGuard {
    /// Allows requests for this host: a name, or a name and a port. Returns an error if it is invalid.
    pub fn allow_host(&mut self, host: &str) -> Result<(), String> {
        let parsed =
            parse(host).ok_or_else(|| format!("\"{host}\" is not a valid host: use a name, or name:port"))?;
        self.hosts.push(parsed);
        Ok(())
    }

    /// Allows requests for any host, for an endpoint behind a check of the host.
    pub fn allow_any_host(&mut self) {
        self.any_host = true;
    }

    /// Allows requests from pages of this origin. Returns an error if it is invalid.
    pub fn allow_origin(&mut self, origin: &str) -> Result<(), String> {
        let invalid_origin = || {
            format!(
                "\"{origin}\" is not a valid origin: use scheme://host, with :port unless it is the \
                 default"
            )
        };
        let (scheme, host) = origin.split_once("://").ok_or_else(invalid_origin)?;
        if !matches!(scheme, "http" | "https") || parse(host).is_none() {
            return Err(invalid_origin());
        }
        self.origins.push(origin.to_ascii_lowercase());
        Ok(())
    }

    /// Checks the host of a request and returns it. `local` is the address at which the request arrived, if known.
    pub fn check_host<'a>(&self, parts: &'a Parts, local: Option<IpAddr>) -> Result<&'a str, OriginError> {
        let host = single_value(&parts.headers, &header::HOST).map_err(|()| OriginError::Host)?;
        let named = parts.uri.authority().map(Authority::as_str);
        // HTTP/2 and absolute-form targets contain the host, too: at least one must be present, and all must be
        // allowed.
        let host = host.or(named).ok_or(OriginError::Host)?;
        for host_value in named.into_iter().chain([host]) {
            if !self.is_host_allowed(host_value, local) {
                return Err(OriginError::Host);
            }
        }
        Ok(host)
    }

    /// Checks the host and the origin of a request. `local` is the address at which the request arrived, if known.
    pub fn check(&self, parts: &Parts, local: Option<IpAddr>) -> Result<(), OriginError> {
        let host = self.check_host(parts, local)?;
        match single_value(&parts.headers, &header::ORIGIN).map_err(|()| OriginError::Origin)? {
            Some(origin) if self.is_origin_trusted(origin, host) => Ok(()),
            Some(_) => Err(OriginError::Origin),
            None if is_cross_site(&parts.headers) => Err(OriginError::Origin),
            None => Ok(()),
        }
    }

    fn is_host_allowed(&self, host: &str, local: Option<IpAddr>) -> bool {
        if self.any_host {
            return parse(host).is_some();
        }
        let is_local =
            |name: &str| LOCAL_HOSTS.iter().any(|local_host| local_host.eq_ignore_ascii_case(name));
        let name_of = |text: &str| text.rsplit_once(':').map_or(text.len(), |(name, _)| name.len());
        // Fast path without parsing: `localhost:1234`.
        if let Some((name, port)) = host.split_at_checked(name_of(host))
            && is_local(name)
            && port.get(1..).is_none_or(|port| parse_port(port).is_some())
        {
            return true;
        }
        let Some(host) = parse(host) else { return false };
        let is_listener_address =
            || local.is_some_and(|local| host.name.trim_matches(['[', ']']).parse() == Ok(local));
        is_local(&host.name)
            || self.hosts.iter().any(|allowed| {
                allowed.name == host.name && allowed.port.is_none_or(|port| host.port == Some(port))
            })
            || is_listener_address()
    }

    /// Returns whether the origin is that of the endpoint itself or an allowed one.
    fn is_origin_trusted(&self, origin: &str, host: &str) -> bool {
        let is_same_origin = origin.split_once("://").is_some_and(|(scheme, from)| {
            matches!(scheme, "http" | "https") && from.eq_ignore_ascii_case(host)
        });
        is_same_origin || self.is_origin_allowed(origin)
    }

    /// Returns whether pages of this origin may read responses (CORS).
    pub(super) fn is_origin_allowed(&self, origin: &str) -> bool {
        self.origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin))
    }
}

/// Returns whether the browser reports that a page of another site sent the request.
fn is_cross_site(headers: &HeaderMap) -> bool {
    headers.get(SEC_FETCH_SITE).is_some_and(|site| matches!(site.as_bytes(), b"cross-site" | b"same-site"))
}

#[cfg(test)]
mod tests {
    use ::http::Request;

    use super::*;

    fn check(guard: &OriginGuard, headers: &[(&str, &str)]) -> Result<(), OriginError> {
        let request = headers
            .iter()
            .fold(Request::post("/mcp"), |request, (name, value)| request.header(*name, *value));
        guard.check(&request.body(()).unwrap().into_parts().0, Some("192.0.2.7".parse().unwrap()))
    }

    #[test]
    fn names_of_this_machine_are_let_in_and_others_are_not() {
        let guard = OriginGuard::default();
        for host in [
            "localhost",
            "localhost:80",
            "LOCALHOST:8080",
            "127.0.0.1:1",
            "[::1]:9",
            "[::1]",
            "192.0.2.7:80",
            "localhost.",
        ] {
            assert_eq!(check(&guard, &[("host", host)]), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost:80:80",
            "localhost:x",
            "localhost:99999",
            "evil@localhost",
            "localhost@evil.example",
            "",
            "127.0.0.2",
            "[::2]",
            "0.0.0.0",
            "localhost/",
            "192.0.2.8",
            "127.0.0.1:",
            "2130706433",
        ] {
            assert_eq!(check(&guard, &[("host", host)]), Err(OriginError::Host), "{host}");
        }
        assert_eq!(check(&guard, &[]), Err(OriginError::Host));
        assert_eq!(check(&guard, &[("host", "localhost"), ("host", "localhost")]), Err(OriginError::Host));
    }

    #[test]
    fn pages_of_others_are_turned_away() {
        let guard = OriginGuard::default();
        let host = ("host", "localhost:8080");
        assert_eq!(check(&guard, &[host, ("origin", "http://localhost:8080")]), Ok(()));
        for origin in [
            "null",
            "http://evil.example",
            "http://localhost",
            "http://localhost:80",
            "http://localhost:8080.evil.example",
            "file://",
            "http://evil.example:8080",
            "chrome-extension://abc",
            "http://user@localhost:8080",
            "",
        ] {
            assert_eq!(check(&guard, &[host, ("origin", origin)]), Err(OriginError::Origin), "{origin}");
        }
        let twice = [host, ("origin", "http://localhost:8080"), ("origin", "http://evil.example")];
        assert_eq!(check(&guard, &twice), Err(OriginError::Origin));
        assert_eq!(check(&guard, &[host, ("sec-fetch-site", "cross-site")]), Err(OriginError::Origin));
        assert_eq!(check(&guard, &[host, ("sec-fetch-site", "same-origin")]), Ok(()));
    }

    #[test]
    fn what_was_allowed_is_let_in() {
        let mut guard = OriginGuard::default();
        guard.allow_host("mcp.example:8443").unwrap();
        guard.allow_host("other.example").unwrap();
        guard.allow_origin("https://app.example").unwrap();
        assert_eq!(check(&guard, &[("host", "mcp.example:8443"), ("origin", "https://app.example")]), Ok(()));
        assert_eq!(check(&guard, &[("host", "OTHER.example:1")]), Ok(()));
        assert_eq!(check(&guard, &[("host", "mcp.example:8444")]), Err(OriginError::Host));
        assert_eq!(
            check(&guard, &[("host", "other.example"), ("origin", "http://app.example")]),
            Err(OriginError::Origin)
        );
        assert!(guard.allow_host("a b").is_err() && guard.allow_origin("app.example").is_err());
    }
}
