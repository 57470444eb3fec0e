//! Tracing layer that queues finished spans for export. A full queue drops spans: the hub never waits for a collector.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use linchpin_hub_core::platform::{Platform as _, SystemPlatform, random};
use linchpin_hub_core::trace_context::TraceContext;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::{LookupSpan, Registry};

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

/// Returns the trace context of an exported span of the global subscriber.
pub(crate) fn context_of(span: &tracing::Span) -> Option<TraceContext> {
    let found = span.with_subscriber(|(id, dispatch)| {
        let span = dispatch.downcast_ref::<Registry>()?.span(id)?;
        span.extensions().get::<OpenSpan>().map(|open| open.context.clone())
    });
    found.flatten()
}

/// Span that has started and is not closed yet.
struct OpenSpan {
    context: TraceContext,
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
        let parent_span = span
            .parent()
            .and_then(|span| span.extensions().get::<OpenSpan>().map(|open| open.context.clone()));
        let parent_span = parent_span.or_else(|| TraceContext::parse(fields.traceparent.as_deref()?));
        let trace = parent_span.as_ref().map(|parent_span| parent_span.trace);
        let span_context = TraceContext::new(
            trace.unwrap_or_else(|| u128::from_be_bytes(random(&SystemPlatform))),
            u64::from_be_bytes(random(&SystemPlatform)),
            parent_span.as_ref().is_none_or(|parent_span| parent_span.is_sampled),
        );
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
    fn the_context_of_a_span_continues_the_trace_of_its_parent() {
        let (spans, _queue) = SpanLayer::new();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(spans), || {
            let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
            let outer = tracing::info_span!("outer", traceparent = parent);
            let inner = tracing::info_span!(parent: &outer, "inner");
            let [outer, inner] = [&outer, &inner].map(|span| context_of(span).unwrap());
            let expected = TraceContext::parse(parent).unwrap();
            for context in [&outer, &inner] {
                assert_eq!((context.trace, context.is_sampled), (expected.trace, false));
                assert_ne!(context.span, expected.span);
            }
            assert_ne!(outer.span, inner.span);
        });
        assert_eq!(context_of(&tracing::Span::none()), None);
    }
}
