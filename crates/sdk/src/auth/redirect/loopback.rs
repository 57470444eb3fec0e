//! Loopback redirect (RFC 8252): receives the redirect on a port of the user's machine.
//!
//! It listens on 127.0.0.1 for the duration of one sign-in and accepts only the redirect of that sign-in: requests of
//! other pages get a 404 and do not end the wait.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::RedirectHandler;
use crate::auth::error::{AuthError, AuthErrorKind};
use crate::auth::{AuthFuture, boxed, form_urlencoded};
use crate::lock::lock;

const PATH: &str = "/callback";
/// Maximum length of the head of a redirect request, in bytes.
const MAX_REQUEST_LEN: usize = 16 << 10;
/// How long the head of a redirect request may take to arrive.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of pending sign-ins, beyond which the oldest is dropped, and of concurrent connections of one.
const MAX_PENDING: usize = 16;

/// Redirect handler that receives the OAuth redirect on a loopback port, for a user at this machine. The callback of
/// [`Self::new`] shows or opens the URL.
pub struct Loopback {
    show: Box<dyn Fn(&str) + Send + Sync>,
    port: u16,
    /// Listening sockets by redirect URI, the newest first.
    listeners: Mutex<VecDeque<(String, TcpListener)>>,
}

impl Loopback {
    /// Creates a redirect handler that listens on a loopback port. `show` receives the URL that the user has to open.
    /// Never pass the URL to a shell.
    pub fn new(show: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Loopback { show: Box::new(show), port: 0, listeners: Mutex::default() }
    }

    /// Sets the port of the loopback redirect URI, for clients that are registered with it. Default: any free port.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    fn take_listener(&self, uri: &str) -> Option<TcpListener> {
        let mut listening = lock(&self.listeners);
        let index = listening.iter().position(|(listening_uri, _)| listening_uri == uri)?;
        listening.remove(index).map(|(_, listener)| listener)
    }
}

impl RedirectHandler for Loopback {
    fn redirect_uri(&self) -> AuthFuture<'_, String> {
        boxed(async {
            let listener =
                TcpListener::bind(("127.0.0.1", self.port)).await.map_err(|error| redirect_error(&error))?;
            let port = listener.local_addr().map_err(|error| redirect_error(&error))?.port();
            let uri = format!("http://127.0.0.1:{port}{PATH}");
            let mut listening = lock(&self.listeners);
            listening.truncate(MAX_PENDING - 1);
            listening.push_front((uri.clone(), listener));
            Ok(uri)
        })
    }

    fn redirect(&self, url: String) -> AuthFuture<'_, String> {
        boxed(async move {
            let query = url.split_once('?').map_or("", |(_, query)| query);
            let find = |parameter_name: &str| {
                form_urlencoded::decode(query)
                    .find(|(name, _)| name == parameter_name)
                    .map(|(_, value)| value)
            };
            let state: Arc<str> = find("state").unwrap_or_default().into();
            let listener = find("redirect_uri").and_then(|uri| self.take_listener(&uri));
            let listener = listener.ok_or_else(|| {
                redirect_error(&io::Error::other("the listener for the redirect is closed"))
            })?;
            let port = listener.local_addr().map_err(|error| redirect_error(&error))?.port();
            (self.show)(&url);
            // Browsers open speculative connections: serve all concurrently, so that none blocks the others.
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept(), if connections.len() < MAX_PENDING => {
                        let (stream, _) = accepted.map_err(|error| redirect_error(&error))?;
                        let state = state.clone();
                        connections.spawn(async move { tokio::time::timeout(REQUEST_TIMEOUT, read_redirect(stream, port, &state)).await });
                    }
                    Some(ended) = connections.join_next() => {
                        if let Ok(Ok(Some(redirect))) = ended {
                            return Ok(redirect);
                        }
                    }
                }
            }
        })
    }
}

fn redirect_error(error: &io::Error) -> AuthError {
    AuthError::new(
        AuthErrorKind::UserAbandoned,
        format!("cannot receive the redirect on this machine: {error}"),
    )
}

/// Reads one HTTP request of the browser to the loopback port. Returns its path and query if it is the expected
/// redirect.
async fn read_redirect(mut stream: TcpStream, port: u16, state: &str) -> Option<String> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut bytes = [0; 1024];
        let read = stream.read(&mut bytes).await.ok().filter(|read| *read > 0)?;
        head.extend_from_slice(&bytes[..read]);
        if head.len() > MAX_REQUEST_LEN {
            return None;
        }
    }
    let found = std::str::from_utf8(&head).ok().and_then(|head| parse_redirect(head, port, state));
    let (status, text) = match found {
        Some(answer) if is_error_redirect(answer) => {
            ("200 OK", "Sign-in failed. Return to the application for details.")
        }
        Some(_) => ("200 OK", "Sign-in response received. Return to the application."),
        None => {
            ("404 Not Found", "This is not the redirect of the current sign-in. Return to the application.")
        }
    };
    let page = format!("<!doctype html><meta charset=utf-8><title>Sign-in</title><p>{text}</p>\n");
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {}\r\n\
         content-security-policy: default-src 'none'\r\nreferrer-policy: no-referrer\r\ncache-control: no-store\r\n\
         connection: close\r\n\r\n{page}",
        page.len()
    );
    let _ = stream.write_all(answer.as_bytes()).await; // the browser may have closed the connection
    let _ = stream.shutdown().await;
    found.map(str::to_owned)
}

/// Returns the path and query of a request if it is the redirect of this sign-in.
fn parse_redirect<'a>(head: &'a str, port: u16, state: &str) -> Option<&'a str> {
    let mut lines = head.split("\r\n");
    let target = lines.next()?.strip_prefix("GET ")?.strip_suffix(" HTTP/1.1")?;
    let mut hosts =
        lines.filter_map(|line| line.split_once(':')).filter(|(name, _)| name.eq_ignore_ascii_case("host"));
    let host = hosts.next()?.1.trim();
    let is_loopback_host = [format!("127.0.0.1:{port}"), format!("localhost:{port}")]
        .iter()
        .any(|loopback_host| loopback_host == host);
    let (path, query) = target.split_once('?')?;
    let has_state = form_urlencoded::decode(query).any(|(name, value)| name == "state" && value == state);
    (is_loopback_host && hosts.next().is_none() && path == PATH && has_state).then_some(target)
}

/// Returns whether the OAuth redirect reports an error.
fn is_error_redirect(target: &str) -> bool {
    let query = target.split_once('?').map_or("", |(_, query)| query);
    form_urlencoded::decode(query).any(|(name, _)| name == "error")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_is_heard() {
        let is_accepted = |head: &str| parse_redirect(head, 7, "s").is_some();
        assert!(is_accepted("GET /callback?code=c&state=s HTTP/1.1\r\nHost: 127.0.0.1:7\r\n\r\n"));
        assert!(is_accepted(
            "GET /callback?state=s&error=x HTTP/1.1\r\nAccept: */*\r\nhost: localhost:7\r\n\r\n"
        ));
        for other in [
            "GET /callback?code=c&state=t HTTP/1.1\r\nHost: 127.0.0.1:7\r\n\r\n",
            "GET /callback?code=c HTTP/1.1\r\nHost: 127.0.0.1:7\r\n\r\n",
            "GET /callback HTTP/1.1\r\nHost: 127.0.0.1:7\r\n\r\n",
            "GET /favicon.ico HTTP/1.1\r\nHost: 127.0.0.1:7\r\n\r\n",
            "POST /callback?code=c&state=s HTTP/1.1\r\nHost: 127.0.0.1:7\r\n\r\n",
            "GET /callback?code=c&state=s HTTP/1.1\r\nHost: evil.example:7\r\n\r\n",
            "GET /callback?code=c&state=s HTTP/1.1\r\nHost: 127.0.0.1:7\r\nHost: 127.0.0.1:7\r\n\r\n",
            "GET /callback?code=c&state=s HTTP/1.1\r\n\r\n",
        ] {
            assert!(!is_accepted(other), "{other}");
        }
    }

    #[test]
    fn a_refusal_is_told_from_a_sign_in() {
        assert!(is_error_redirect("/callback?state=s&error=access_denied"));
        assert!(!is_error_redirect("/callback?code=error&state=s"));
    }
}
