//! W3C trace context of a request: the headers `traceparent` and `tracestate`, which are passed on to upstream servers.

use linchpin::model::Meta;

/// Maximum length of a `tracestate`, in bytes.
const MAX_STATE_LEN: usize = 512;
/// Maximum number of entries of a `tracestate`.
const MAX_STATE_ENTRIES: usize = 32;
/// Flag of a sampled trace.
const SAMPLED: u8 = 1;

/// Trace of a request, and the span that caused it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    /// Id of the trace; not zero.
    pub trace: u128,
    /// Id of the span; not zero.
    pub span: u64,
    /// Whether the trace is recorded.
    pub is_sampled: bool,
    /// Vendor-specific data of the trace.
    state: Option<String>,
}

impl TraceContext {
    /// Creates the context of a span.
    pub fn new(trace: u128, span: u64, is_sampled: bool) -> Self {
        TraceContext { trace, span, is_sampled, state: None }
    }

    /// Parses a W3C `traceparent` header; `None` if it is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_known = version != "ff" && (version != "00" || parts.next().is_none());
        parse_hex(version, 2)?;
        let (trace, span, flags) = (parse_hex(trace, 32)?, parse_hex(span, 16)?, parse_hex(flags, 2)?);
        let is_valid = is_known && trace != 0 && span != 0;
        let (span, flags) = (u64::try_from(span).ok()?, u8::try_from(flags).ok()?);
        is_valid.then(|| TraceContext::new(trace, span, flags & SAMPLED == SAMPLED))
    }

    /// Adds a W3C `tracestate` header. A malformed one is ignored, as the specification demands.
    #[must_use]
    pub fn with_state(self, text: &str) -> Self {
        let entries: Vec<_> = text.split(',').map(|entry| entry.trim_matches([' ', '\t'])).collect();
        let entries: Vec<_> = entries.into_iter().filter(|entry| !entry.is_empty()).collect();
        let is_valid = (1..=MAX_STATE_ENTRIES).contains(&entries.len()) && entries.iter().all(is_state_entry);
        let state = Some(entries.join(",")).filter(|state| is_valid && state.len() <= MAX_STATE_LEN);
        TraceContext { state, ..self }
    }

    /// Returns the context of a span of this hub in the same trace: the state of the trace stays.
    #[must_use]
    pub fn continued_by(self, span: &TraceContext) -> Self {
        let TraceContext { trace, state, .. } = self;
        TraceContext { state: state.filter(|_| trace == span.trace), ..*span }
    }

    /// Returns the `_meta` members of an MCP request with this context.
    pub fn to_meta(&self) -> Meta {
        let TraceContext { trace, span, is_sampled, state } = self;
        let parent = format!("00-{trace:032x}-{span:016x}-{:02x}", u8::from(*is_sampled));
        let mut meta = Meta::new();
        meta.insert("traceparent".to_owned(), parent.into());
        meta.extend(state.as_ref().map(|state| ("tracestate".to_owned(), state.as_str().into())));
        meta
    }
}

/// Parses exactly `digits` lower-case hexadecimal digits.
fn parse_hex(text: &str, digits: usize) -> Option<u128> {
    let is_valid = text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_valid.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

/// Returns whether an entry of a `tracestate` is well formed: a key of 1 to 256 characters, `=`, and a value of 1 to
/// 256 printable characters.
fn is_state_entry(entry: &&str) -> bool {
    let Some((key, value)) = entry.split_once('=') else { return false };
    let is_key_char = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-' | b'*' | b'/' | b'@')
    };
    let is_key = (1..=256).contains(&key.len())
        && key.bytes().all(is_key_char)
        && key.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit());
    let is_value_char = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b',' | b'=');
    is_key && (1..=256).contains(&value.len()) && value.bytes().all(is_value_char)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    fn meta(parent: &str, state: Option<&str>) -> Option<serde_json::Value> {
        let context = TraceContext::parse(parent)?;
        let context = state.map_or(context.clone(), |state| context.with_state(state));
        Some(context.to_meta().into())
    }

    #[test]
    fn a_traceparent_is_parsed_strictly() {
        for (parent, flags) in [
            (format!("00-{TRACE}-{SPAN}-01"), "01"),
            (format!("00-{TRACE}-{SPAN}-00"), "00"),
            (format!("00-{TRACE}-{SPAN}-03"), "01"),
            (format!("cc-{TRACE}-{SPAN}-01-more"), "01"),
        ] {
            let expected = json!({ "traceparent": format!("00-{TRACE}-{SPAN}-{flags}") });
            assert_eq!(meta(&parent, None), Some(expected), "{parent}");
        }
        for invalid in [
            String::new(),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{}-{SPAN}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{}ä-{SPAN}-01", &TRACE[2..]),
            format!("00-{TRACE}-{SPAN}-+1"),
        ] {
            assert_eq!(meta(&invalid, None), None, "{invalid}");
        }
    }

    #[test]
    fn a_malformed_tracestate_is_ignored() {
        let parent = format!("00-{TRACE}-{SPAN}-01");
        let state = |state: &str| meta(&parent, Some(state)).unwrap().get("tracestate").cloned();
        assert_eq!(state("a=1, b@c=x y ,,d*/=~"), Some(json!("a=1,b@c=x y,d*/=~")));
        for invalid in
            ["", " , ", "a", "a=", "=1", "A=1", "-a=1", "a=b=c", "a=\u{e9}", "a=\n1", &"a=1,".repeat(33)]
        {
            assert_eq!(state(invalid), None, "{invalid}");
        }
        assert_eq!(state(&format!("a={}", "x".repeat(257))), None);
    }

    #[test]
    fn a_span_of_the_hub_continues_the_trace() {
        let parent = TraceContext::parse(&format!("00-{TRACE}-{SPAN}-01")).unwrap().with_state("a=1");
        let own = parent.clone().continued_by(&TraceContext::new(parent.trace, 7, true)).to_meta();
        let expected =
            json!({ "traceparent": format!("00-{TRACE}-0000000000000007-01"), "tracestate": "a=1" });
        assert_eq!(json!(own), expected);
        let other = parent.continued_by(&TraceContext::new(9, 7, false)).to_meta();
        assert_eq!(json!(other), json!({ "traceparent": format!("00-{:032x}-{:016x}-00", 9, 7) }));
    }
}
