//! `tracing` target of the spans that are exported to OpenTelemetry. Spans name the called server and the outcome, and
//! contain no arguments and no results.

/// `tracing` target of the spans that are exported to OpenTelemetry. They cost nothing unless a subscriber enables this
/// target.
pub const TARGET: &str = "linchpin::spans";
