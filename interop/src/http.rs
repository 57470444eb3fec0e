//! HTTP/1.1 parser for both directions of a connection: bytes in, complete requests or parts of responses out.

use crate::http_log::{ExchangePart, Head, Request};

/// Bytes received from one side and not yet parsed.
#[derive(Default)]
struct Buffer(Vec<u8>);

impl Buffer {
    /// Takes the lines up to the next empty line.
    fn take_head(&mut self) -> Option<Vec<String>> {
        let end = self.0.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = String::from_utf8(self.0[..end].to_vec()).unwrap();
        self.0.drain(..end + 4);
        Some(head.split("\r\n").map(str::to_owned).collect())
    }

    fn take(&mut self, length: usize) -> Option<Vec<u8>> {
        (self.0.len() >= length).then(|| self.0.drain(..length).collect())
    }

    /// Takes a chunk of a chunked body; an empty chunk is the last one.
    fn take_chunk(&mut self) -> Option<Vec<u8>> {
        let line = self.0.windows(2).position(|window| window == b"\r\n")?;
        let size = std::str::from_utf8(&self.0[..line]).unwrap();
        let size = usize::from_str_radix(size.split(';').next().unwrap_or_default().trim(), 16).unwrap();
        if self.0.len() < line + 2 + size + 2 {
            return None;
        }
        let chunk = self.0[line + 2..line + 2 + size].to_vec();
        self.0.drain(..line + 2 + size + 2);
        Some(chunk)
    }
}

fn headers(lines: &[String]) -> Vec<(String, String)> {
    let split = |line: &String| {
        let (name, value) = line.split_once(':').unwrap();
        (name.to_ascii_lowercase(), value.trim().to_owned())
    };
    lines.iter().map(split).collect()
}

fn find<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Framing {
    Length(usize),
    Chunked,
    UntilClose,
}

fn framing(headers: &[(String, String)], otherwise: Framing) -> Framing {
    if find(headers, "transfer-encoding").is_some_and(|value| value.contains("chunked")) {
        return Framing::Chunked;
    }
    find(headers, "content-length").map_or(otherwise, |length| Framing::Length(length.parse().unwrap()))
}

/// Parser of requests.
#[derive(Default)]
pub(crate) struct Requests {
    buffer: Buffer,
    /// Request whose body is incomplete.
    begun: Option<(Request, Framing)>,
    body: Vec<u8>,
}

impl Requests {
    pub(crate) fn feed(&mut self, bytes: &[u8], mut on: impl FnMut(Request)) {
        self.buffer.0.extend_from_slice(bytes);
        loop {
            if self.begun.is_none() {
                let Some(head) = self.buffer.take_head() else { return };
                let mut first = head[0].split(' ');
                let (verb, path) = (first.next().unwrap().to_owned(), first.next().unwrap().to_owned());
                let headers = headers(&head[1..]);
                let framing = framing(&headers, Framing::Length(0));
                self.begun = Some((Request { verb, path, headers, body: None }, framing));
            }
            if !self.has_body() {
                return;
            }
            let (mut request, _) = self.begun.take().unwrap();
            let body = std::mem::take(&mut self.body);
            request.body = (!body.is_empty()).then(|| serde_json::from_slice(&body).unwrap());
            on(request);
        }
    }

    fn has_body(&mut self) -> bool {
        match self.begun.as_ref().unwrap().1 {
            Framing::Length(length) => match self.buffer.take(length) {
                Some(body) => self.body = body,
                None => return false,
            },
            Framing::Chunked => loop {
                match self.buffer.take_chunk() {
                    Some(chunk) if chunk.is_empty() => break,
                    Some(chunk) => self.body.extend(chunk),
                    None => return false,
                }
            },
            Framing::UntilClose => unreachable!("a request has a length"),
        }
        true
    }
}

/// Parser of responses: a head, then events or a complete body, then the end.
#[derive(Default)]
pub(crate) struct Responses {
    buffer: Buffer,
    begun: Option<Answer>,
}

struct Answer {
    framing: Framing,
    events: bool,
    body: Vec<u8>,
}

impl Responses {
    pub(crate) fn feed(&mut self, bytes: &[u8], mut on: impl FnMut(ExchangePart)) {
        self.buffer.0.extend_from_slice(bytes);
        loop {
            if self.begun.is_none() {
                let Some(head) = self.buffer.take_head() else { return };
                let status: u16 = head[0].split(' ').nth(1).unwrap().parse().unwrap();
                let headers = headers(&head[1..]);
                let none = matches!(status, 100..200 | 204 | 304);
                let otherwise = if none { Framing::Length(0) } else { Framing::UntilClose };
                let framing = framing(&headers, otherwise);
                let events = find(&headers, "content-type").is_some_and(|kind| kind.contains("event-stream"));
                on(ExchangePart::Head(Head { status, headers }));
                self.begun = Some(Answer { framing, events, body: Vec::new() });
            }
            let answer = self.begun.as_mut().unwrap();
            let over = answer.read(&mut self.buffer);
            if answer.events {
                while let Some(event) = answer.take_event() {
                    on(event);
                }
            }
            if !over {
                return;
            }
            self.finish(&mut on);
        }
    }

    /// Handles the close of the connection.
    pub(crate) fn end(&mut self, mut on: impl FnMut(ExchangePart)) {
        if self.begun.is_some() {
            self.finish(&mut on);
        }
    }

    fn finish(&mut self, on: &mut impl FnMut(ExchangePart)) {
        let answer = self.begun.take().unwrap();
        if !answer.events && !answer.body.is_empty() {
            // A body that is not JSON is plain text.
            let body = String::from_utf8(answer.body).unwrap();
            on(ExchangePart::Body(serde_json::from_str(&body).unwrap_or(body.into())));
        }
        on(ExchangePart::End);
    }
}

impl Answer {
    /// Takes the available part of the body. Returns whether it is complete.
    fn read(&mut self, buffer: &mut Buffer) -> bool {
        match &mut self.framing {
            Framing::Length(left) => {
                let some = buffer.0.len().min(*left);
                *left -= some;
                self.body.extend(buffer.0.drain(..some));
                *left == 0
            }
            Framing::Chunked => loop {
                match buffer.take_chunk() {
                    Some(chunk) if chunk.is_empty() => return true,
                    Some(chunk) => self.body.extend(chunk),
                    None => return false,
                }
            },
            Framing::UntilClose => {
                self.body.append(&mut buffer.0);
                false
            }
        }
    }

    /// Takes a complete event; comments are skipped.
    fn take_event(&mut self) -> Option<ExchangePart> {
        loop {
            let text = std::str::from_utf8(&self.body).ok()?.replace("\r\n", "\n");
            let (block, rest) = text.split_once("\n\n")?;
            let fields: Vec<(String, String)> = block.lines().filter_map(field).collect();
            self.body = rest.as_bytes().to_vec();
            if !fields.is_empty() {
                return Some(ExchangePart::Event(fields));
            }
        }
    }
}

fn field(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once(':').unwrap_or((line, ""));
    (!name.is_empty()).then(|| (name.to_owned(), value.strip_prefix(' ').unwrap_or(value).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_however_they_are_cut() {
        let bytes = concat!(
            "POST /mcp HTTP/1.1\r\nAccept: a\r\nContent-Length: 2\r\n\r\n{}GET /sse HTTP/1.1\r\n\r\n",
            "POST /x HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\n[\r\n1\r\n]\r\n0\r\n\r\n"
        );
        for size in 1..bytes.len() {
            let (mut requests, mut seen) = (Requests::default(), Vec::new());
            for chunk in bytes.as_bytes().chunks(size) {
                requests.feed(chunk, |request| seen.push((request.verb, request.path, request.body)));
            }
            let expected = [("POST", "/mcp", Some("{}")), ("GET", "/sse", None), ("POST", "/x", Some("[]"))];
            let expected = expected.map(|(verb, path, body)| {
                (verb.to_owned(), path.to_owned(), body.map(|body| serde_json::from_str(body).unwrap()))
            });
            assert_eq!(seen, expected, "in chunks of {size}");
        }
    }

    #[test]
    fn answers_are_read_however_they_are_cut() {
        let bytes = concat!(
            "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
            "c\r\n:x\n\nid: 1\nda\r\n9\r\nta: {}\n\nd\r\n6\r\nata: \n\r\n1\r\n\n\r\n0\r\n\r\n",
            "HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\nnone"
        );
        for size in 1..bytes.len() {
            let (mut responses, mut seen) = (Responses::default(), Vec::new());
            for chunk in bytes.as_bytes().chunks(size) {
                responses.feed(chunk, |said| {
                    seen.push(match said {
                        ExchangePart::Head(head) => head.status.to_string(),
                        ExchangePart::Event(fields) => format!("{fields:?}"),
                        ExchangePart::Body(body) => body.to_string(),
                        other => format!("{other:?}"),
                    });
                });
            }
            let events = [r#"[("id", "1"), ("data", "{}")]"#, r#"[("data", "")]"#];
            let expected = ["202", "End", "200", events[0], events[1], "End", "404", "\"none\"", "End"];
            assert_eq!(seen, expected, "in chunks of {size}");
        }
    }
}
