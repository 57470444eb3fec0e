//! HTTP without an HTTP library: `httparse` for the head, one read and one write per request; the lower bound for a
//! server that parses headers.

use std::{io::Write, sync::Arc};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::responder::{App, ResponseKind};

struct Head {
    length: usize,
    body_length: usize,
    verb: Verb,
    session_known: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Verb {
    Post,
    Delete,
    Other,
}

pub async fn serve(app: Arc<App>, mut stream: TcpStream) -> std::io::Result<()> {
    let mut buffer: Vec<u8> = Vec::with_capacity(16 << 10);
    let (mut out, mut body) = (Vec::with_capacity(16 << 10), Vec::with_capacity(16 << 10));
    loop {
        let head = loop {
            match parse_head(&app, &buffer) {
                Ok(Some(head)) => break head,
                Ok(None) => {}
                Err(_) => return Ok(()),
            }
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        };
        let end = head.length + head.body_length;
        if buffer.capacity() < end {
            buffer.reserve(end - buffer.len());
        }
        while buffer.len() < end {
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        }
        out.clear();
        body.clear();
        if head.verb == Verb::Delete {
            out.extend_from_slice(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        } else if head.verb == Verb::Other {
            out.extend_from_slice(b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n");
        } else if !head.session_known {
            out.extend_from_slice(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");
        } else {
            respond(&app, &buffer[head.length..end], &mut out, &mut body);
        }
        stream.write_all(&out).await?;
        buffer.drain(..end);
    }
}

/// Parses the head; `None` if it is incomplete. A DELETE request closes its session here.
fn parse_head(app: &App, bytes: &[u8]) -> Result<Option<Head>, httparse::Error> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut request = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(length) = request.parse(bytes)? else { return Ok(None) };
    let (mut body_length, mut session) = (0, None);
    for header in request.headers.iter() {
        if header.name.eq_ignore_ascii_case("content-length") {
            body_length =
                std::str::from_utf8(header.value).ok().and_then(|value| value.parse().ok()).unwrap_or(0);
        } else if header.name.eq_ignore_ascii_case("mcp-session-id") {
            session = Some(header.value);
        }
    }
    let session_known = session.is_none_or(|session| app.knows_session(session));
    let verb = match request.method {
        Some("POST") => Verb::Post,
        Some("DELETE") => Verb::Delete,
        _ => Verb::Other,
    };
    if verb == Verb::Delete
        && let Some(session) = session
    {
        app.close_session(session);
    }
    Ok(Some(Head { length, body_length, verb, session_known }))
}

fn respond(app: &App, message: &[u8], out: &mut Vec<u8>, body: &mut Vec<u8>) {
    let kind = app.body(message, body);
    if kind == ResponseKind::Nothing {
        out.extend_from_slice(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n");
        return;
    }
    let content_type = app.content_type();
    let _ =
        write!(out, "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n", body.len());
    if kind == ResponseKind::Initialized {
        let _ = write!(out, "mcp-session-id: {:016x}\r\n", app.open_session());
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
}
