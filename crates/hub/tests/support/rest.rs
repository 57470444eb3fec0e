//! Minimal REST client: one connection per request, and responses that are either complete or missing.
#![allow(clippy::allow_attributes, dead_code, reason = "each test file uses only some of the helpers")]

use std::io::{self, Error, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

const RESPONSE_TIMEOUT: Duration = Duration::from_mins(1);

/// Address of a hub and the credential.
#[derive(Debug, Clone)]
pub(crate) struct Rest {
    address: String,
    token: String,
}

/// Response.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl HttpResponse {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub(crate) fn text(&self) -> String {
        format!("{}\r\n\r\n{}", self.head, String::from_utf8_lossy(&self.body))
    }

    /// Returns the value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

impl Rest {
    pub(crate) fn new(url: &str, token: &str) -> Self {
        Rest { address: url.strip_prefix("http://").unwrap().to_owned(), token: token.to_owned() }
    }

    /// Creates a client from the ready file of a hub.
    pub(crate) fn ready(file: &std::path::Path) -> Self {
        let read: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        Self::new(read["url"].as_str().unwrap(), read["token"].as_str().unwrap())
    }

    /// Sends a request with the token.
    pub(crate) fn send(&self, method: &str, path: &str, body: Option<&Value>) -> io::Result<HttpResponse> {
        let authorization = self.authorization();
        let body = body.map(Value::to_string);
        let kind = body.as_ref().map(|_| ("content-type", "application/json"));
        let headers: Vec<_> = [("authorization", authorization.as_str())].into_iter().chain(kind).collect();
        self.request(method, path, &headers, &body.unwrap_or_default())
    }

    /// Sends a request with exactly these headers; `Host` is added if it is missing.
    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> io::Result<HttpResponse> {
        let mut socket = self.open(method, path, headers, body.len())?;
        socket.write_all(body.as_bytes())?;
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer)?;
        parse_response(&answer).ok_or_else(|| Error::from(ErrorKind::UnexpectedEof))
    }

    /// Sends only the head of a request, with this content length.
    pub(crate) fn open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        length: usize,
    ) -> io::Result<TcpStream> {
        let mut socket = TcpStream::connect(&self.address)?;
        socket.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
        let own =
            Some(("host", self.address.as_str())).filter(|_| headers.iter().all(|(name, _)| *name != "host"));
        let lines = own
            .iter()
            .chain(headers)
            .fold(String::new(), |lines, (name, value)| lines + name + ": " + value + "\r\n");
        let head = format!(
            "{method} {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {length}\r\n{lines}\r\n"
        );
        socket.write_all(head.as_bytes())?;
        Ok(socket)
    }

    /// Returns the `Authorization` header.
    pub(crate) fn authorization(&self) -> String {
        format!("Bearer {}", self.token)
    }
}

/// Parses a response, if it is complete.
fn parse_response(bytes: &[u8]) -> Option<HttpResponse> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = str::from_utf8(&bytes[..end]).ok()?.to_owned();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let mut answer = HttpResponse { status, head, body: bytes[end + 4..].to_vec() };
    if answer.header("transfer-encoding") == Some("chunked") {
        answer.body = decode_chunked(&answer.body)?;
        return Some(answer);
    }
    let length: usize = answer.header("content-length").unwrap_or("0").parse().ok()?;
    (answer.body.len() == length).then_some(answer)
}

/// Decodes a chunked body, if it is complete.
fn decode_chunked(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let line = rest.windows(2).position(|window| window == b"\r\n")?;
        let size = usize::from_str_radix(str::from_utf8(&rest[..line]).ok()?, 16).ok()?;
        if size == 0 {
            return Some(all);
        }
        all.extend(rest.get(line + 2..line + 2 + size)?);
        rest = rest.get(line + 4 + size..)?;
    }
}
