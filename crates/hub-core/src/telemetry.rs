//! Spans that are exported to OpenTelemetry: their `tracing` target, and their trace context. Spans name the called server and the outcome, and
//! contain no arguments and no results.

use tracing::Span;

use crate::trace_context::TraceContext;

/// `tracing` target of the spans that are exported to OpenTelemetry. They cost nothing unless a subscriber enables this
/// target.
pub const TARGET: &str = "linchpin::spans";

/// Returns the trace context of an exported span; `None` if spans are not exported.
pub type SpanContextOf = fn(&Span) -> Option<TraceContext>;
