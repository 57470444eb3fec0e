//! Tracing layer that queues finished spans for export. A full queue drops spans: the hub never waits for a collector.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use linchpin_hub_core::platform::{Platform as _, SystemPlatform, random};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use super::export::SpanQueue;

/// Maximum number of finished spans that wait for export.
const QUEUE_CAPACITY: usize = 8_192;
/// OTLP number of the span kind `SERVER`.
const SPAN_KIND_SERVER: u8 = 2;
/// OTLP number of the span kind `CLIENT`.
const SPAN_KIND_CLIENT: u8 = 3;

/// `tracing` layer that records spans for export.
pub(super) struct SpanLayer {
    finished: mpsc::Sender<Value>,
    dropped_spans: Arc<AtomicU64>,
}

impl SpanLayer {
    pub(super) fn new() -> (Self, SpanQueue) {
        let (span_sender, spans) = mpsc::channel(QUEUE_CAPACITY);
        let dropped = Arc::<AtomicU64>::default();
        (
            SpanLayer { finished: span_sender, dropped_spans: dropped.clone() },
            SpanQueue { spans, dropped_spans: dropped },
        )
    }
}

/// Trace id, span id and sampling flag of a span.
#[derive(Clone, Copy)]
struct SpanContext {
    trace: u128,
    span: u64,
    is_sampled: bool,
}

impl SpanContext {
    /// Parses a W3C `traceparent` header.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_known = version != "ff" && (version != "00" || parts.next().is_none());
        parse_hex(version, 2)?;
        let (trace, span, flags) = (parse_hex(trace, 32)?, parse_hex(span, 16)?, parse_hex(flags, 2)?);
        let is_valid = is_known && trace != 0 && span != 0;
        let span = u64::try_from(span).ok()?;
        is_valid.then_some(SpanContext { trace, span, is_sampled: flags & 1 == 1 })
    }
}

/// Parses exactly `digits` lower-case hexadecimal digits.
fn parse_hex(text: &str, digits: usize) -> Option<u128> {
    let is_valid = text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_valid.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

/// Span that has started and is not closed yet.
struct OpenSpan {
    context: SpanContext,
    parent: Option<u64>,
    started: (i128, Instant),
    /// Duration until the last recorded field, used as the end of the span: a span is closed only after its children,
    /// while its last field is recorded when its own work ends.
    last_recorded: Option<Duration>,
    fields: SpanFields,
}

/// Recorded fields of a tracing span, as they are exported. Names that start with `otel.` set properties of the span;
/// the others become attributes.
#[derive(Default)]
struct SpanFields {
    name: Option<String>,
    kind: u8,
    is_error: bool,
    traceparent: Option<String>,
    attributes: Vec<Value>,
}

impl SpanFields {
    fn add(&mut self, field: &Field, kind: &str, value: &str) {
        self.attributes.push(json!({ "key": field.name(), "value": { kind: value } }));
    }
}

impl Visit for SpanFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "otel.name" => self.name = Some(value.to_owned()),
            "otel.kind" => self.kind = if value == "server" { SPAN_KIND_SERVER } else { SPAN_KIND_CLIENT },
            "otel.status_code" => self.is_error = value == "ERROR",
            "traceparent" => self.traceparent = Some(value.to_owned()),
            _ => self.add(field, "stringValue", value),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, "intValue", &value.to_string());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for SpanLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = SpanFields::default();
        attributes.record(&mut fields);
        let parent_span =
            span.parent().and_then(|span| span.extensions().get::<OpenSpan>().map(|open| open.context));
        let parent_span = parent_span.or_else(|| SpanContext::parse(fields.traceparent.as_deref()?));
        let span_context = SpanContext {
            trace: parent_span.map_or_else(
                || u128::from_be_bytes(random(&SystemPlatform)),
                |parent_span| parent_span.trace,
            ),
            span: u64::from_be_bytes(random(&SystemPlatform)),
            is_sampled: parent_span.is_none_or(|parent_span| parent_span.is_sampled),
        };
        let started = (SystemPlatform.now().as_nanosecond(), Instant::now());
        let parent = parent_span.map(|parent_span| parent_span.span);
        span.extensions_mut().insert(OpenSpan {
            context: span_context,
            parent,
            started,
            last_recorded: None,
            fields,
        });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(open) = span.extensions_mut().get_mut::<OpenSpan>() {
            values.record(&mut open.fields);
            open.last_recorded = Some(open.started.1.elapsed());
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let Some(open) = span.extensions_mut().remove::<OpenSpan>() else { return };
        if open.context.is_sampled && self.finished.try_send(open.into_otlp(span.name())).is_err() {
            self.dropped_spans.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl OpenSpan {
    /// Converts the span to its OTLP form.
    fn into_otlp(self, name: &str) -> Value {
        let OpenSpan {
            context: span_context,
            parent,
            started: (started, since),
            last_recorded: ended,
            fields,
        } = self;
        let ended = ended.unwrap_or_else(|| since.elapsed());
        let end = started + i128::try_from(ended.as_nanos()).unwrap_or_default();
        json!({
            "traceId": format!("{:032x}", span_context.trace),
            "spanId": format!("{:016x}", span_context.span),
            "parentSpanId": parent.map(|parent| format!("{parent:016x}")).unwrap_or_default(),
            "name": fields.name.as_deref().unwrap_or(name),
            "kind": fields.kind.max(1),
            "startTimeUnixNano": started.to_string(),
            "endTimeUnixNano": end.to_string(),
            "attributes": fields.attributes,
            "status": if fields.is_error { json!({ "code": 2 }) } else { json!({}) },
        })
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[test]
    fn what_has_no_room_is_counted_and_nobody_waits() {
        let (spans, mut queue) = SpanLayer::new();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(spans), || {
            for _ in 0..QUEUE_CAPACITY + 3 {
                drop(tracing::info_span!("one", otel.kind = "server", of = 3_u64));
            }
        });
        assert_eq!((queue.spans.len(), queue.dropped_spans.load(Ordering::Relaxed)), (QUEUE_CAPACITY, 3));
        let first = queue.spans.try_recv().unwrap();
        assert_eq!(
            (&first["name"], &first["kind"], &first["parentSpanId"]),
            (&"one".into(), &2.into(), &"".into())
        );
        assert_eq!(first["attributes"], json!([{ "key": "of", "value": { "intValue": "3" } }]));
    }

    #[test]
    fn a_traceparent_is_read_strictly() {
        let (trace, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
        let read = |text: &str| {
            let span_context = SpanContext::parse(text)?;
            Some((
                format!("{:032x}", span_context.trace),
                format!("{:016x}", span_context.span),
                span_context.is_sampled,
            ))
        };
        let both = |is_wanted| Some((trace.to_owned(), span.to_owned(), is_wanted));
        assert_eq!(read(&format!("00-{trace}-{span}-01")), both(true));
        assert_eq!(read(&format!("00-{trace}-{span}-00")), both(false));
        assert_eq!(read(&format!("cc-{trace}-{span}-01-more")), both(true), "of a version to come");
        for invalid in [
            String::new(),
            format!("00-{trace}-{span}"),
            format!("00-{trace}-{span}-01-more"),
            format!("ff-{trace}-{span}-01"),
            format!("00-{}-{span}-01", "0".repeat(32)),
            format!("00-{trace}-{}-01", "0".repeat(16)),
            format!("00-{}-{span}-01", trace.to_uppercase()),
            format!("00-{}ä-{span}-01", &trace[2..]),
            format!("00-{trace}-{span}-+1"),
        ] {
            assert_eq!(read(&invalid), None, "{invalid}");
        }
    }
}
