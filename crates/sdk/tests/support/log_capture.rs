//! Captures all log events, at every level.
#![allow(clippy::allow_attributes, dead_code, reason = "each test file uses a part of it")]

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, OnceLock};

/// The captured text.
#[derive(Clone, Default)]
pub(crate) struct LogCapture(Arc<Mutex<String>>);

impl LogCapture {
    /// Captures the log events of this thread until the guard is dropped.
    ///
    /// While only one dispatcher exists, `tracing` registers a callsite for the thread that hits it first, and a
    /// thread without a subscriber disables it for all. The second dispatcher prevents that.
    pub(crate) fn on_this_thread() -> (Self, tracing::subscriber::DefaultGuard) {
        static SECOND: OnceLock<tracing::Dispatch> = OnceLock::new();
        SECOND.get_or_init(|| tracing::Dispatch::new(Self::default()));
        let capture = Self::default();
        (capture.clone(), tracing::subscriber::set_default(capture))
    }

    /// Adds text from another source.
    pub(crate) fn append(&self, text: &str) {
        writeln!(self.0.lock().unwrap(), "{text}").unwrap();
    }

    /// Returns the text since the last call.
    pub(crate) fn take(&self) -> String {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl tracing::Subscriber for LogCapture {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        span.record(&mut FieldWriter(&mut self.0.lock().unwrap()));
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, values: &tracing::span::Record<'_>) {
        values.record(&mut FieldWriter(&mut self.0.lock().unwrap()));
    }

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut FieldWriter(&mut self.0.lock().unwrap()));
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

struct FieldWriter<'a>(&'a mut String);

impl tracing::field::Visit for FieldWriter<'_> {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        writeln!(self.0, "{field}={value:?}").unwrap();
    }
}
