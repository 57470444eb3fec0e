//! Reading of HTTP response bodies in the client, with a size limit and an idle timeout.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use linchpin_jsonrpc::CallError;

use super::errors;
use crate::egress::ResponseBody;

/// Number of bytes that suffices to detect whether a body is JSON or an event stream.
const DETECTION_BYTES: usize = 8;
/// Maximum number of bytes inspected to detect the kind of a body; after that, the content type decides.
const MAX_DETECTION_BYTES: usize = 1 << 10;
/// Byte order mark, which may precede the text.
pub(super) const BOM: &[u8] = "\u{feff}".as_bytes();

/// Reason why an HTTP response body cannot be read.
#[derive(Debug)]
pub(super) enum ResponseError {
    /// The connection was cut or idle for too long; the text names the reason.
    ConnectionLost(String),
    TooLarge,
}

/// Kind of an HTTP response body, detected by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseBodyKind {
    Empty,
    Json,
    Events,
    Other,
}

/// Reader of an HTTP response body, with the bytes that were read to detect its kind.
pub(super) struct ResponseReader {
    body: ResponseBody,
    /// Bytes that were read, but not consumed.
    buffered: Bytes,
    idle_timeout: Duration,
}

impl ResponseReader {
    pub(super) fn new(body: ResponseBody, idle_timeout: Duration) -> Self {
        ResponseReader { body, buffered: Bytes::new(), idle_timeout }
    }

    /// Returns the next bytes of the response body; `None` at its end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, ResponseError> {
        if !self.buffered.is_empty() {
            return Ok(Some(std::mem::take(&mut self.buffered)));
        }
        loop {
            let frame = poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx));
            let Ok(frame) = tokio::time::timeout(self.idle_timeout, frame).await else {
                return Err(ResponseError::ConnectionLost(format!(
                    "the server was silent for {:?}",
                    self.idle_timeout
                )));
            };
            match frame {
                None => return Ok(None),
                Some(Err(error)) => {
                    return Err(ResponseError::ConnectionLost(format!("the connection broke: {error}")));
                }
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data()
                        && !data.is_empty()
                    {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// Detects the kind of the body. The inspected bytes are returned again by [`Self::next`].
    pub(super) async fn kind(&mut self, is_event_stream: bool) -> Result<ResponseBodyKind, ResponseError> {
        let mut read = BytesMut::new();
        loop {
            let next = match self.next().await {
                Ok(next) => next,
                // The stream was cut before its first event.
                Err(ResponseError::ConnectionLost(_)) if is_event_stream => {
                    self.buffered = read.freeze();
                    return Ok(ResponseBodyKind::Events);
                }
                Err(broken) => return Err(broken),
            };
            let is_end = next.is_none();
            // Usually the first chunk is enough, and is not copied.
            if read.is_empty()
                && let Some(bytes) = &next
                && let Some(kind) = kind(bytes, is_event_stream, false)
            {
                self.buffered = bytes.clone();
                return Ok(kind);
            }
            read.extend_from_slice(&next.unwrap_or_default());
            // After too much whitespace the content type decides, with its limits.
            let undecided = if is_event_stream { ResponseBodyKind::Events } else { ResponseBodyKind::Json };
            let undecided = (read.len() >= MAX_DETECTION_BYTES).then_some(undecided);
            if let Some(kind) = kind(&read, is_event_stream, is_end).or(undecided) {
                self.buffered = read.freeze();
                return Ok(kind);
            }
        }
    }

    /// Reads the whole response body, up to `limit` bytes.
    pub(super) async fn read_to_end(&mut self, limit: usize) -> Result<Bytes, ResponseError> {
        let announced = usize::try_from(self.body.size_hint().lower()).unwrap_or(usize::MAX);
        if announced.saturating_add(self.buffered.len()) > limit {
            return Err(ResponseError::TooLarge);
        }
        let Some(first) = self.next().await? else { return Ok(Bytes::new()) };
        let mut buffer = match self.next().await? {
            None if first.len() > limit => return Err(ResponseError::TooLarge),
            None => return Ok(first),
            Some(second) => {
                let mut buffer = BytesMut::with_capacity((first.len() + second.len() + announced).min(limit));
                buffer.extend_from_slice(&first);
                self.buffered = second;
                buffer
            }
        };
        while let Some(next) = self.next().await? {
            if buffer.len() + next.len() > limit {
                return Err(ResponseError::TooLarge);
            }
            buffer.extend_from_slice(&next);
        }
        Ok(buffer.freeze())
    }

    /// Reads the start of a response body, for error messages.
    pub(super) async fn read_start(mut self, limit: usize) -> Bytes {
        let mut read = BytesMut::new();
        while let Ok(Some(next)) = self.next().await {
            let available = limit - read.len();
            read.extend_from_slice(&next[..next.len().min(available)]);
            if next.len() >= available {
                break;
            }
        }
        read.freeze()
    }
}

/// Detects the kind of a body by its start, if possible. A message starts with a brace or bracket, whatever its
/// content type; an event stream starts with one of its fields.
fn kind(read: &[u8], is_event_stream: bool, is_end: bool) -> Option<ResponseBodyKind> {
    let text = read.strip_prefix(BOM).unwrap_or(read);
    match text.trim_ascii_start() {
        [] if is_end && is_event_stream => Some(ResponseBodyKind::Events),
        [] if is_end => Some(ResponseBodyKind::Empty),
        [] => None,
        [b'{' | b'[', ..] => Some(ResponseBodyKind::Json),
        _ if is_event_stream => Some(ResponseBodyKind::Events),
        start => {
            let starts_with_field = |field: &[u8]| start.starts_with(field);
            if starts_with_field(b":")
                || starts_with_field(b"data:")
                || starts_with_field(b"event:")
                || starts_with_field(b"id:")
                || starts_with_field(b"retry:")
            {
                Some(ResponseBodyKind::Events)
            } else {
                (is_end || start.len() >= DETECTION_BYTES).then_some(ResponseBodyKind::Other)
            }
        }
    }
}

impl ResponseError {
    /// Converts the error of reading a body into the error of the request.
    pub(super) fn into_error(self, limit: usize) -> CallError {
        match self {
            ResponseError::ConnectionLost(reason) => CallError::Lost(reason.into()),
            ResponseError::TooLarge => errors::body_too_large(limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_known_by_how_it_begins() {
        for (text, is_event_stream, expected) in [
            ("{\"jsonrpc\"", false, Some(ResponseBodyKind::Json)),
            ("\u{feff} [{", true, Some(ResponseBodyKind::Json)),
            ("  \r\n", false, None),
            ("da", false, None),
            ("data: {}", false, Some(ResponseBodyKind::Events)),
            (": ping", false, Some(ResponseBodyKind::Events)),
            ("id:1", false, Some(ResponseBodyKind::Events)),
            ("x", true, Some(ResponseBodyKind::Events)),
            ("<!DOCTYPE html>", false, Some(ResponseBodyKind::Other)),
            ("database", false, Some(ResponseBodyKind::Other)),
        ] {
            assert_eq!(kind(text.as_bytes(), is_event_stream, false), expected, "{text:?}");
        }
        assert_eq!(kind(b"", false, true), Some(ResponseBodyKind::Empty));
        assert_eq!(kind(b"", true, true), Some(ResponseBodyKind::Events));
        assert_eq!(kind(b"ok", false, true), Some(ResponseBodyKind::Other));
    }
}
