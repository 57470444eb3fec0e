//! Authentication: maps an API token or a session cookie to the caller, and checks CSRF tokens. A request must not send
//! both credentials.

use std::net::IpAddr;

use http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use linchpin::auth::Secret;
use linchpin::egress::Network;
use linchpin::server::web::ConnectionAddresses;
use linchpin_hub_core::hub::sessions::RequestClient;
use linchpin_hub_core::{Actor, ErrorKind, Subject};

use crate::app::AppState;
use crate::problem::{Problem, Result};

/// Header with the CSRF token.
const CSRF_HEADER: HeaderName = HeaderName::from_static("x-csrf-token");

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Credential that a request to the hub carries.
#[derive(Debug, Clone)]
pub(crate) enum CallerCredential {
    /// API token of a user or agent.
    Token(Secret),
    /// Cookie of a browser session.
    Session(Secret),
}

/// Authenticated sender of a REST request, with its credential and CSRF token.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// Tenant and subject of the caller.
    pub(crate) actor: Actor,
    /// Credential of the request.
    pub(crate) credential: CallerCredential,
    /// CSRF token of the session, required for requests that change data; `None` for API tokens.
    pub(crate) csrf: Option<Secret>,
    /// Host and port that the request names.
    host: String,
}

/// Returns the host and port that a request addresses, from the `Host` header or the URI. A session is valid for one
/// host.
fn host(parts: &Parts) -> String {
    let host_header = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
    host_header.or(parts.uri.authority().map(Authority::as_str)).unwrap_or_default().to_ascii_lowercase()
}

/// Returns client address, host and user of a request, for logins and sessions.
pub(crate) fn remote(app: &AppState, parts: &Parts, caller: Option<&Caller>) -> RequestClient {
    let peer = parts.extensions.get::<ConnectionAddresses>().map(|addresses| addresses.peer.ip());
    let address = peer.map(|peer| client_address(peer, &parts.headers, &app.proxies));
    let user = caller.and_then(|caller| match caller.actor.subject() {
        Subject::User(user) => Some(user),
        Subject::Agent(_) | Subject::Hub => None,
    });
    RequestClient { address, host: host(parts), user }
}

/// Returns the address of the client: the peer, or, if the peer is a configured proxy, the last hop of
/// `X-Forwarded-For` that is not one. Earlier hops can be forged by the client.
fn client_address(peer: IpAddr, headers: &HeaderMap, proxies: &[Network]) -> IpAddr {
    let is_proxy = |address: IpAddr| proxies.iter().any(|proxy| proxy.contains(address));
    if !is_proxy(peer) {
        return peer;
    }
    let lines: Vec<_> = headers.get_all(FORWARDED_FOR).iter().collect();
    let addresses = lines.iter().rev().flat_map(|line| line.to_str().unwrap_or_default().rsplit(','));
    for address in addresses {
        match address.trim().parse::<IpAddr>() {
            Ok(address) if is_proxy(address) => {}
            Ok(address) => return address,
            Err(_) => break,
        }
    }
    peer
}

impl Caller {
    /// Authenticates the caller of a request by its API token or session cookie. Returns `None` without a credential or
    /// if the session has expired.
    pub(crate) async fn authenticate(app: &AppState, parts: &Parts) -> Result<Option<Self>> {
        let Some(credential) = find_credential(parts, &cookie_name(app.is_secure, parts))? else {
            return Ok(None);
        };
        let host = host(parts);
        let (actor, csrf) = match &credential {
            CallerCredential::Token(token) => (app.hub.identity().authenticate(token.expose()).await?, None),
            CallerCredential::Session(cookie) => match app.hub.identity().session(cookie, &host).await? {
                Some((actor, csrf)) => (actor, Some(csrf)),
                None => return Ok(None),
            },
        };
        Ok(Some(Caller { actor, credential, csrf, host }))
    }

    /// Checks the CSRF token of a request that changes data. A cookie alone is not sufficient: browsers send it with
    /// requests of any page.
    pub(crate) fn check_csrf(&self, headers: &HeaderMap) -> Result<()> {
        let Some(csrf) = &self.csrf else { return Ok(()) };
        require_origin(headers)?;
        let presented = headers.get(CSRF_HEADER).and_then(|value| value.to_str().ok()).map(Secret::new);
        if presented.as_ref() == Some(csrf) {
            return Ok(());
        }
        let text = "a request with a session cookie requires the header x-csrf-token: get the token with GET /api/v1/session";
        Err(Problem::new(StatusCode::FORBIDDEN, "csrf_token_needed", text))
    }

    /// Returns the session cookie, if the caller has one.
    pub(crate) fn session_cookie(&self) -> Option<&Secret> {
        match &self.credential {
            CallerCredential::Session(cookie) => Some(cookie),
            CallerCredential::Token(_) => None,
        }
    }

    /// Returns whether the caller is the operator, who can read the files of the hub on this machine.
    pub(crate) fn is_operator(&self, app: &AppState) -> bool {
        matches!(&self.credential, CallerCredential::Token(token) if app.hub.identity().is_process_token(token))
    }

    /// Returns whether the caller's session or token is still valid, for open streams and for bodies that arrive late.
    /// Fails if the store cannot be read.
    pub(crate) async fn is_still_valid(&self, app: &AppState) -> Result<bool> {
        let actor = match &self.credential {
            CallerCredential::Token(token) => app.hub.identity().authenticate(token.expose()).await.map(Some),
            CallerCredential::Session(cookie) => app.hub.identity().peek_session(cookie, &self.host).await,
        };
        match actor {
            Ok(actor) => Ok(actor == Some(self.actor)),
            Err(error) if error.kind() == ErrorKind::Unauthenticated => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Rejects a request without the `Origin` header. The middleware has already checked its value.
pub(crate) fn require_origin(headers: &HeaderMap) -> Result<()> {
    if headers.contains_key(ORIGIN) {
        return Ok(());
    }
    let text = "the header Origin is missing: browsers send it; use an API token without a browser";
    Err(Problem::new(StatusCode::FORBIDDEN, "origin_needed", text))
}

/// Returns the name of the session cookie. With TLS, browsers send a `__Host-` cookie to this host only. Without TLS
/// the name contains the port, since browsers send cookies to all ports of a host, and other hubs may use other ports.
pub(crate) fn cookie_name(is_secure: bool, parts: &Parts) -> String {
    let local = parts.extensions.get::<ConnectionAddresses>().and_then(|addresses| addresses.local);
    match local.map(|local| local.port()) {
        _ if is_secure => "__Host-linchpin".to_owned(),
        Some(port) => format!("linchpin-{port}"),
        None => "linchpin".to_owned(),
    }
}

/// Creates the `Set-Cookie` header that starts a session, or removes its cookie.
pub(crate) fn cookie(name: &str, session: Option<&Secret>, is_secure: bool) -> Option<HeaderValue> {
    let secure = if is_secure { "; Secure" } else { "" };
    let (value, age) = session.map_or(("", "; Max-Age=0"), |session| (session.expose(), ""));
    let text = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{age}");
    let mut header = HeaderValue::try_from(text).ok()?;
    header.set_sensitive(true);
    Some(header)
}

/// Returns the session cookie or API token of a request. A token together with a cookie is rejected: the caller would
/// be ambiguous.
fn find_credential(parts: &Parts, cookie: &str) -> Result<Option<CallerCredential>> {
    let cookies = parts.headers.get_all(COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    let cookies =
        cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut sessions = cookies.filter(|(name, _)| *name == cookie).map(|(_, value)| value);
    let session = sessions.next();
    if sessions.next().is_some() {
        return Err(Problem::bad_request("duplicate_cookie", "the session cookie is sent twice: remove one"));
    }
    let token = bearer_token(&parts.headers)?;
    match (token, session) {
        (Some(_), Some(_)) => {
            let text = "send either an API token or a session cookie, not both";
            Err(Problem::bad_request("ambiguous_credentials", text))
        }
        (Some(token), None) => Ok(Some(CallerCredential::Token(Secret::new(token)))),
        (None, session) => Ok(session.map(|session| CallerCredential::Session(Secret::new(session)))),
    }
}

fn bearer_token(headers: &HeaderMap) -> Result<Option<&str>> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let value = value.to_str().ok().and_then(|value| value.split_once(' '));
    match value.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")) {
        Some((_, token)) if values.next().is_none() => Ok(Some(token.trim())),
        _ => {
            let text = "the header Authorization must be `Bearer` and a token, and must not be repeated";
            Err(Problem::bad_request("wrong_authorization", text))
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn read(headers: &[(&str, &str)], is_secure: bool) -> Result<String, u16> {
        let request =
            headers.iter().fold(Request::get("/"), |request, (name, value)| request.header(*name, *value));
        let mut parts = request.body(()).unwrap().into_parts().0;
        let [peer, local] = ["127.0.0.1:9000", "127.0.0.1:7420"].map(|address| address.parse().unwrap());
        parts.extensions.insert(ConnectionAddresses { peer, local: Some(local) });
        match find_credential(&parts, &cookie_name(is_secure, &parts)) {
            Ok(None) => Ok("none".to_owned()),
            Ok(Some(CallerCredential::Token(secret))) => Ok(format!("token {}", secret.expose())),
            Ok(Some(CallerCredential::Session(secret))) => Ok(format!("session {}", secret.expose())),
            Err(problem) => Err(problem.status().as_u16()),
        }
    }

    #[test]
    fn a_token_or_a_cookie_and_never_both() {
        let (token, cookie) = (
            ("authorization", "Bearer lp_1"),
            ("cookie", "a=b; linchpin=s0; linchpin-7421=s2; linchpin-7420=s1; c=d"),
        );
        assert_eq!(read(&[], false), Ok("none".into()));
        assert_eq!(read(&[token], false), Ok("token lp_1".into()));
        assert_eq!(read(&[("authorization", "bearer lp_1")], false), Ok("token lp_1".into()));
        assert_eq!(read(&[cookie], false), Ok("session s1".into()));
        assert_eq!(read(&[cookie], true), Ok("none".into()), "the cookie name differs under TLS");
        assert_eq!(read(&[("cookie", "__Host-linchpin=s2")], true), Ok("session s2".into()));
        assert_eq!(read(&[("cookie", "__Host-linchpin=s2")], false), Ok("none".into()));
        assert_eq!(read(&[token, cookie], false), Err(400));
        assert_eq!(read(&[cookie, cookie], false), Err(400));
        assert_eq!(read(&[token, token], false), Err(400));
        assert_eq!(read(&[("authorization", "Basic YTpi")], false), Err(400));
        assert_eq!(read(&[("authorization", "Bearer")], false), Err(400));
    }

    #[test]
    fn a_configured_proxy_names_the_client() {
        let proxies: Vec<Network> =
            ["10.0.0.0/8", "127.0.0.1"].map(|network| network.parse().unwrap()).into();
        let cases: [(&str, &[&str], &str); 12] = [
            ("192.0.2.1", &["198.51.100.7"], "192.0.2.1"),
            ("10.0.0.5", &[], "10.0.0.5"),
            ("10.0.0.5", &["198.51.100.7"], "198.51.100.7"),
            ("::ffff:10.0.0.5", &["198.51.100.7"], "198.51.100.7"),
            ("10.0.0.5", &["203.0.113.9, 198.51.100.7"], "198.51.100.7"),
            ("10.0.0.5", &["203.0.113.9,198.51.100.7, 10.0.0.6"], "198.51.100.7"),
            ("10.0.0.5", &["203.0.113.9", "2001:db8::1"], "2001:db8::1"),
            ("10.0.0.5", &["198.51.100.7", "10.0.0.6"], "198.51.100.7"),
            ("10.0.0.5", &["10.0.0.7, 10.0.0.6"], "10.0.0.5"),
            ("10.0.0.5", &["198.51.100.7, unknown"], "10.0.0.5"),
            ("10.0.0.5", &["198.51.100.7:8080"], "10.0.0.5"),
            ("10.0.0.5", &["198.51.100.7, "], "10.0.0.5"),
        ];
        for (peer, lines, expected) in cases {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(FORWARDED_FOR, HeaderValue::from_str(line).unwrap());
            }
            let found = client_address(peer.parse().unwrap(), &headers, &proxies);
            assert_eq!(found, expected.parse::<IpAddr>().unwrap(), "{peer} {lines:?}");
        }
    }

    #[test]
    fn a_cookie_says_what_browsers_must_keep() {
        let secret = Secret::new("s1");
        let text =
            |session, is_secure| cookie("name", session, is_secure).unwrap().to_str().unwrap().to_owned();
        assert_eq!(text(Some(&secret), false), "name=s1; Path=/; HttpOnly; SameSite=Strict");
        assert_eq!(text(Some(&secret), true), "name=s1; Path=/; HttpOnly; SameSite=Strict; Secure");
        assert_eq!(text(None, false), "name=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
    }
}
