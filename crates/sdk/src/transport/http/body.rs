//! Response bodies, read with a size limit and an idle timeout.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use linchpin_jsonrpc::CallError;

use super::errors;
use crate::egress::ResponseBody;

/// Number of bytes that suffices to detect the kind of a body.
const ENOUGH: usize = 8;
/// Maximum number of bytes inspected for that.
const MOST: usize = 1 << 10;
/// Byte order mark, which may precede the text.
pub(super) const BOM: &[u8] = "\u{feff}".as_bytes();

/// Error of reading a body.
#[derive(Debug)]
pub(super) enum Broken {
    /// The connection was cut or idle for too long; the text names the reason.
    Cut(String),
    TooLarge,
}

/// Kind of a body, detected by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Empty,
    Json,
    Events,
    Other,
}

/// A body with the part that was already read.
pub(super) struct Reading {
    body: ResponseBody,
    /// Bytes that were read, but not consumed.
    first: Bytes,
    silence: Duration,
}

impl Reading {
    pub(super) fn new(body: ResponseBody, silence: Duration) -> Self {
        Reading { body, first: Bytes::new(), silence }
    }

    /// Returns the next bytes; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Broken> {
        if !self.first.is_empty() {
            return Ok(Some(std::mem::take(&mut self.first)));
        }
        loop {
            let frame = poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx));
            let Ok(frame) = tokio::time::timeout(self.silence, frame).await else {
                return Err(Broken::Cut(format!("the server was silent for {:?}", self.silence)));
            };
            match frame {
                None => return Ok(None),
                Some(Err(error)) => return Err(Broken::Cut(format!("the connection broke: {error}"))),
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
    pub(super) async fn kind(&mut self, says_events: bool) -> Result<Kind, Broken> {
        let mut read = BytesMut::new();
        loop {
            let next = match self.next().await {
                Ok(next) => next,
                // The stream was cut before its first event.
                Err(Broken::Cut(_)) if says_events => {
                    self.first = read.freeze();
                    return Ok(Kind::Events);
                }
                Err(broken) => return Err(broken),
            };
            let is_end = next.is_none();
            // Usually the first chunk is enough, and is not copied.
            if read.is_empty()
                && let Some(bytes) = &next
                && let Some(kind) = kind(bytes, says_events, false)
            {
                self.first = bytes.clone();
                return Ok(kind);
            }
            read.extend_from_slice(&next.unwrap_or_default());
            // After too much whitespace the content type decides, with its limits.
            let undecided = if says_events { Kind::Events } else { Kind::Json };
            let undecided = (read.len() >= MOST).then_some(undecided);
            if let Some(kind) = kind(&read, says_events, is_end).or(undecided) {
                self.first = read.freeze();
                return Ok(kind);
            }
        }
    }

    /// Reads the whole body, up to `limit` bytes.
    pub(super) async fn whole(&mut self, limit: usize) -> Result<Bytes, Broken> {
        let announced = usize::try_from(self.body.size_hint().lower()).unwrap_or(usize::MAX);
        if announced.saturating_add(self.first.len()) > limit {
            return Err(Broken::TooLarge);
        }
        let Some(first) = self.next().await? else { return Ok(Bytes::new()) };
        let mut whole = match self.next().await? {
            None if first.len() > limit => return Err(Broken::TooLarge),
            None => return Ok(first),
            Some(second) => {
                let mut whole = BytesMut::with_capacity((first.len() + second.len() + announced).min(limit));
                whole.extend_from_slice(&first);
                self.first = second;
                whole
            }
        };
        while let Some(next) = self.next().await? {
            if whole.len() + next.len() > limit {
                return Err(Broken::TooLarge);
            }
            whole.extend_from_slice(&next);
        }
        Ok(whole.freeze())
    }

    /// Reads the start of a body, for error messages.
    pub(super) async fn beginning(mut self, limit: usize) -> Bytes {
        let mut read = BytesMut::new();
        while let Ok(Some(next)) = self.next().await {
            let room = limit - read.len();
            read.extend_from_slice(&next[..next.len().min(room)]);
            if next.len() >= room {
                break;
            }
        }
        read.freeze()
    }
}

/// Detects the kind of a body by its start, if possible. A message starts with a brace or bracket, whatever its
/// content type; an event stream starts with one of its fields.
fn kind(read: &[u8], says_events: bool, is_end: bool) -> Option<Kind> {
    let text = read.strip_prefix(BOM).unwrap_or(read);
    match text.trim_ascii_start() {
        [] if is_end && says_events => Some(Kind::Events),
        [] if is_end => Some(Kind::Empty),
        [] => None,
        [b'{' | b'[', ..] => Some(Kind::Json),
        _ if says_events => Some(Kind::Events),
        start => {
            let has = |field: &[u8]| start.starts_with(field);
            if has(b":") || has(b"data:") || has(b"event:") || has(b"id:") || has(b"retry:") {
                Some(Kind::Events)
            } else {
                (is_end || start.len() >= ENOUGH).then_some(Kind::Other)
            }
        }
    }
}

impl Broken {
    /// Converts it into the error of the request.
    pub(super) fn into_error(self, limit: usize) -> CallError {
        match self {
            Broken::Cut(reason) => CallError::Lost(reason.into()),
            Broken::TooLarge => errors::body_too_large(limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_known_by_how_it_begins() {
        for (text, says_events, expected) in [
            ("{\"jsonrpc\"", false, Some(Kind::Json)),
            ("\u{feff} [{", true, Some(Kind::Json)),
            ("  \r\n", false, None),
            ("da", false, None),
            ("data: {}", false, Some(Kind::Events)),
            (": ping", false, Some(Kind::Events)),
            ("id:1", false, Some(Kind::Events)),
            ("x", true, Some(Kind::Events)),
            ("<!DOCTYPE html>", false, Some(Kind::Other)),
            ("database", false, Some(Kind::Other)),
        ] {
            assert_eq!(kind(text.as_bytes(), says_events, false), expected, "{text:?}");
        }
        assert_eq!(kind(b"", false, true), Some(Kind::Empty));
        assert_eq!(kind(b"", true, true), Some(Kind::Events));
        assert_eq!(kind(b"ok", false, true), Some(Kind::Other));
    }
}
