//! Parser for event streams (`text/event-stream`, WHATWG), for any division into chunks and with a size limit.
//!
//! It is stricter than a browser in two cases: an event over the limit ends the stream, and so does a used field
//! whose value is not UTF-8, because a message with missing or replaced parts is worse than none. Comments and
//! values of unknown fields may contain any bytes.

use std::fmt;
use std::time::Duration;

use memchr::{memchr, memchr2};

const BOM: &[u8] = "\u{feff}".as_bytes();
/// Size above which the parser frees a buffer after an event, rather than reusing it.
const MAX_RETAINED_BYTES: usize = 64 * 1024;

/// Event of an SSE stream: id, type and data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SseEvent<'a> {
    /// Last id set by the stream, in this event or before; `None` if it was never set, or was reset.
    pub id: Option<&'a str>,
    /// Whether this event has set the last event id.
    pub has_id: bool,
    /// Event type. Default: `message`.
    pub event: &'a str,
    /// Data, with lines joined by `\n`.
    pub data: &'a str,
}

/// Reason why an SSE stream cannot be parsed further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SseError {
    /// An event exceeds the size limit.
    TooLarge,
    /// A field is not UTF-8.
    Invalid,
}

/// Incremental parser of an SSE stream. An incomplete event at the end of the stream is discarded.
#[derive(Debug)]
pub(crate) struct SseParser {
    max_event: usize,
    /// Bytes of an incomplete line.
    partial_line: Vec<u8>,
    /// Number of matched bytes of a byte order mark; `None` after the start of the stream.
    bom: Option<usize>,
    /// Whether the last line ended with a carriage return: a following line feed belongs to it.
    last_was_cr: bool,
    data: String,
    /// Whether the current event has a `data` field.
    has_data: bool,
    event: String,
    /// Id set by the current event, if `has_id`.
    id: String,
    has_id: bool,
    last_id: String,
    retry: Option<Duration>,
    error: Option<SseError>,
}

impl SseParser {
    /// Creates a parser for one stream; `max_event` is the size limit of one event in bytes.
    pub(crate) fn new(max_event: usize) -> Self {
        SseParser {
            max_event,
            partial_line: Vec::new(),
            bom: Some(0),
            last_was_cr: false,
            data: String::new(),
            has_data: false,
            event: String::new(),
            id: String::new(),
            has_id: false,
            last_id: String::new(),
            retry: None,
            error: None,
        }
    }

    /// Returns the id to resume from: that of the last complete event with an id, even if it had no data.
    pub(crate) fn last_event_id(&self) -> Option<&str> {
        (!self.last_id.is_empty()).then_some(&*self.last_id)
    }

    /// Returns the reconnection delay that the SSE stream has set, if any.
    pub(crate) fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Parses the next chunk and calls `on_event` for each completed event. After an error, all further calls fail.
    pub(crate) fn feed(
        &mut self,
        chunk: &[u8],
        mut on_event: impl FnMut(SseEvent<'_>),
    ) -> Result<(), SseError> {
        if let Some(fault) = self.error {
            return Err(fault);
        }
        let read = self.lines(chunk, &mut on_event);
        self.error = read.err();
        read
    }

    fn lines(&mut self, chunk: &[u8], on_event: &mut impl FnMut(SseEvent<'_>)) -> Result<(), SseError> {
        let mut rest = self.skip_bom(chunk);
        if rest.is_empty() {
            return Ok(());
        }
        if std::mem::take(&mut self.last_was_cr) && rest[0] == b'\n' {
            rest = &rest[1..];
        }
        while let Some(end) = memchr2(b'\n', b'\r', rest) {
            let (line, remainder) = (&rest[..end], &rest[end + 1..]);
            self.check_size(line.len())?;
            if self.partial_line.is_empty() {
                self.end_line(line, on_event)?;
            } else {
                let mut line_bytes = std::mem::take(&mut self.partial_line);
                line_bytes.extend_from_slice(line);
                self.end_line(&line_bytes, on_event)?;
                line_bytes.clear();
                line_bytes.shrink_to(MAX_RETAINED_BYTES);
                self.partial_line = line_bytes;
            }
            rest = match (rest[end], remainder) {
                (b'\r', [b'\n', remainder @ ..]) => remainder,
                (b'\r', []) => {
                    self.last_was_cr = true;
                    remainder
                }
                _ => remainder,
            };
        }
        self.check_size(rest.len())?;
        self.partial_line.extend_from_slice(rest);
        Ok(())
    }

    /// Skips a byte order mark at the start of the stream, even if it arrives in parts.
    fn skip_bom<'a>(&mut self, chunk: &'a [u8]) -> &'a [u8] {
        let Some(mut matched) = self.bom else { return chunk };
        let mut rest = chunk;
        while let [first, remainder @ ..] = rest {
            if *first != BOM[matched] {
                // The bytes were not a byte order mark, but the start of a line.
                self.partial_line.extend_from_slice(&BOM[..matched]);
                self.bom = None;
                return rest;
            }
            (matched, rest) = (matched + 1, remainder);
            if matched == BOM.len() {
                self.bom = None;
                return rest;
            }
        }
        self.bom = Some(matched);
        rest
    }

    /// Checks that the event may grow by `more` bytes.
    fn check_size(&self, more: usize) -> Result<(), SseError> {
        let size = self.data.len() + self.event.len() + self.partial_line.len() + more;
        if size > self.max_event { Err(SseError::TooLarge) } else { Ok(()) }
    }

    fn end_line(&mut self, line: &[u8], on_event: &mut impl FnMut(SseEvent<'_>)) -> Result<(), SseError> {
        if line.is_empty() {
            self.end_event(on_event);
            return Ok(());
        }
        let (field, value) = match memchr(b':', line) {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let text = || std::str::from_utf8(value).map_err(|_| SseError::Invalid);
        match field {
            b"data" => {
                let text = text()?;
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push('\n');
                }
                self.data.push_str(text);
            }
            b"event" => text()?.clone_into(&mut self.event),
            b"id" if !value.contains(&0) => {
                text()?.clone_into(&mut self.id);
                self.has_id = true;
            }
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                self.retry = Some(Duration::from_millis(text()?.parse().unwrap_or(u64::MAX)));
            }
            // The standard ignores comments and unknown fields, whatever their bytes are. A field name that is not
            // UTF-8 may be a damaged `data`.
            _ => std::str::from_utf8(field).map(|_| ()).map_err(|_| SseError::Invalid)?,
        }
        Ok(())
    }

    fn end_event(&mut self, on_event: &mut impl FnMut(SseEvent<'_>)) {
        let has_id = std::mem::take(&mut self.has_id);
        if has_id {
            std::mem::swap(&mut self.id, &mut self.last_id);
        }
        if std::mem::take(&mut self.has_data) {
            on_event(SseEvent {
                id: self.last_event_id(),
                has_id,
                event: if self.event.is_empty() { "message" } else { &self.event },
                data: &self.data,
            });
        }
        self.data.clear();
        self.data.shrink_to(MAX_RETAINED_BYTES);
        self.event.clear();
    }
}

impl fmt::Display for SseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SseError::TooLarge => "an event of the stream is larger than allowed",
            SseError::Invalid => "the event stream is not valid UTF-8",
        })
    }
}

impl std::error::Error for SseError {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An event as owned text: id, whether the event itself set it, type, data.
    type OwnedEvent = (Option<String>, bool, String, String);

    #[derive(Debug, PartialEq)]
    struct ParsedStream {
        events: Vec<OwnedEvent>,
        last_id: Option<String>,
        retry: Option<Duration>,
        fault: Option<SseError>,
    }

    fn read<'a>(chunks: impl IntoIterator<Item = &'a [u8]>, max_event: usize) -> ParsedStream {
        let mut parser = SseParser::new(max_event);
        let mut events = Vec::new();
        let mut fault = None;
        for chunk in chunks {
            let outcome = parser.feed(chunk, |event| {
                let SseEvent { id, has_id, event, data } = event;
                events.push((id.map(str::to_owned), has_id, event.to_owned(), data.to_owned()));
            });
            fault = outcome.err();
        }
        let last_id = parser.last_event_id().map(str::to_owned);
        ParsedStream { events, last_id, retry: parser.retry(), fault }
    }

    fn parse_all(stream: &str) -> ParsedStream {
        read([stream.as_bytes()], 1000)
    }

    /// Type and data of the events.
    fn events_of(stream: &str) -> Vec<(String, String)> {
        parse_all(stream).events.into_iter().map(|(_, _, event, data)| (event, data)).collect()
    }

    fn message(data: &str) -> (String, String) {
        ("message".to_owned(), data.to_owned())
    }

    #[test]
    fn the_examples_of_the_standard() {
        assert_eq!(events_of("data: YHOO\ndata: +2\ndata: 10\n\n"), [message("YHOO\n+2\n10")]);
        let stream =
            ": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n";
        let event = |id: Option<&str>, has_id, data: &str| {
            (id.map(str::to_owned), has_id, "message".to_owned(), data.to_owned())
        };
        let expected = [
            event(Some("1"), true, "first event"),
            event(None, true, "second event"),
            event(None, false, " third event"),
        ];
        assert_eq!(parse_all(stream).events, expected);
        assert_eq!(events_of("data\n\ndata\ndata\n\ndata:"), [message(""), message("\n")]);
        assert_eq!(events_of("data:test\n\ndata: test\n\n"), [message("test"), message("test")]);
        let types = events_of("event: add\ndata: 1\n\nevent: remove\n\nevent:\ndata: 2\n\n");
        assert_eq!(types, [("add".to_owned(), "1".to_owned()), message("2")]);
    }

    #[test]
    fn every_end_of_a_line() {
        for end in ["\n", "\r", "\r\n"] {
            let stream = format!("data: a{end}data: b{end}{end}: x{end}data: c{end}{end}");
            assert_eq!(events_of(&stream), [message("a\nb"), message("c")], "{end:?}");
        }
        assert_eq!(events_of("data: a\r\rdata: b\n\r\ndata: c\r\n\n"), ["a", "b", "c"].map(message));
    }

    #[test]
    fn a_byte_order_mark_is_left_out_once() {
        assert_eq!(events_of("\u{feff}data: a\n\n"), [message("a")]);
        assert_eq!(events_of("\u{feff}\u{feff}data: a\n\n"), []);
        assert_eq!(events_of("data: \u{feff}\n\n"), [message("\u{feff}")]);
        // The first two bytes of a mark, and then something else.
        let outcome = read([&b"\xef"[..], b"\xbb", b"\xbf", b"data: a\n\n"], 1000);
        assert_eq!(outcome.events.len(), 1);
        assert_eq!(read([&b"\xef\xbb"[..], b"data: a\n\n"], 1000).fault, Some(SseError::Invalid));
    }

    #[test]
    fn ids_count_when_their_event_is_complete() {
        let outcome = parse_all("id: 7\n\nid: 8\ndata: cut off\n");
        assert_eq!((outcome.last_id.as_deref(), outcome.events.len()), (Some("7"), 0));
        assert_eq!(
            parse_all("id: 7\n\nid: a\0b\n\n").last_id.as_deref(),
            Some("7"),
            "an id with NUL is none"
        );
        assert_eq!(parse_all("id: 7\n\nid\n\n").last_id, None);
        let sticky = parse_all("id: 7\ndata: a\n\ndata: b\n\n").events;
        assert_eq!(sticky[1], (Some("7".into()), false, "message".into(), "b".into()));
    }

    #[test]
    fn retry_is_a_whole_number_and_counts_at_once() {
        let retry = |stream| parse_all(stream).retry.map(|time| time.as_millis());
        assert_eq!(retry("retry: 250\n"), Some(250));
        assert_eq!(retry("retry: 250\nretry: 1s\nretry\nretry: -1\n"), Some(250));
        assert_eq!(retry("retry: 99999999999999999999999\n"), Some(u128::from(u64::MAX)));
        assert_eq!(retry("retry: 250"), None);
    }

    #[test]
    fn an_event_over_the_size_ends_the_stream() {
        let small = "data: 1234\n\n".repeat(50);
        assert_eq!(read([small.as_bytes()], 10).events.len(), 50);
        for stream in
            ["data: 12345\n\n", "data: 12345", ":2345678901", "data:\n\ndata: 1\ndata: 22\ndata: 333\n"]
        {
            let outcome = read([stream.as_bytes(), b"\n\ndata: 1\n\n"], 10);
            assert_eq!(outcome.fault, Some(SseError::TooLarge), "{stream:?}");
        }
        assert_eq!(read([":\n".repeat(1000).as_bytes()], 10).fault, None, "comments leave nothing behind");
        assert_eq!(read(["data\n".repeat(20).as_bytes()], 10).fault, Some(SseError::TooLarge));
    }

    #[test]
    fn what_is_not_utf8_ends_the_stream_after_the_events_before_it() {
        let outcome = read([&b"data: a\n\ndata: \xff\n\n"[..], b"data: b\n\n"], 1000);
        assert_eq!((outcome.events.len(), outcome.fault), (1, Some(SseError::Invalid)));
    }

    #[test]
    fn comments_and_unknown_fields_may_have_any_bytes() {
        let outcome = read([&b": caf\xe9\n:\xff\nother: \xff\nretry: \xff\ndata: a\n\n"[..]], 1000);
        assert_eq!((outcome.events.len(), outcome.fault), (1, None));
        for field in ["data", "event", "id"] {
            let line = [field.as_bytes(), b": \xff\n\n"].concat();
            assert_eq!(read([&*line], 1000).fault, Some(SseError::Invalid), "{field}");
        }
    }

    #[test]
    fn a_large_event_does_not_keep_its_memory() {
        let mut parser = SseParser::new(1 << 21);
        let large = format!("data: {}", "x".repeat(1 << 20));
        parser.feed(large.as_bytes(), |_| {}).unwrap();
        parser.feed(b"\n\n", |_| {}).unwrap();
        assert!(
            parser.data.capacity() <= MAX_RETAINED_BYTES
                && parser.partial_line.capacity() <= MAX_RETAINED_BYTES
        );
    }

    /// Streams of relevant pieces and random bytes.
    fn stream() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            6 => prop::sample::select(vec![
                "\n", "\r", "\r\n", "data: ", "data:", "data", "id: 4", "id", "event: a", "retry: 12", ":", " ",
                "\u{feff}", "世界", "\0", "x", "data: {\"a\":1}\n\n",
            ]).prop_map(|text| text.as_bytes().to_vec()),
            1 => prop::collection::vec(any::<u8>(), 0..4),
        ];
        prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn chunks_do_not_matter(stream in stream(), cuts in prop::collection::vec(0usize..200, 0..30), max in 0usize..80) {
            let expected = read([&*stream], max);
            prop_assert_eq!(&read(stream.chunks(1), max), &expected, "byte by byte");
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let chunks = cuts.windows(2).map(|ends| &stream[ends[0]..ends[1]]);
            prop_assert_eq!(&read(chunks, max), &expected, "cut at {:?}", cuts);
        }
    }
}
