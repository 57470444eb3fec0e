//! Captures all log events, at every level.
#![allow(clippy::allow_attributes, dead_code, reason = "each test file uses a part of it")]

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use tracing::level_filters::LevelFilter;

/// The captured text.
#[derive(Clone, Default)]
pub(crate) struct LogCapture(Arc<Mutex<String>>);

impl LogCapture {
    /// Captures the log events of this thread until the guard is dropped.
    pub(crate) fn on_this_thread() -> (Self, tracing::subscriber::DefaultGuard) {
        register_callsites_for_all_threads();
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

/// Prevents that a thread without a subscriber disables a callsite for all threads.
///
/// While only one dispatcher exists, `tracing` registers a callsite with the subscriber of the thread that hits it first.
/// Two permanent dispatchers prevent that. Until both exist, their level hint is `OFF`, so that no thread registers a
/// callsite.
fn register_callsites_for_all_threads() {
    static DISPATCHERS: OnceLock<[tracing::Dispatch; 2]> = OnceLock::new();
    DISPATCHERS.get_or_init(|| {
        let enabled = Arc::new(AtomicBool::new(false));
        let dispatchers = [(); 2].map(|()| tracing::Dispatch::new(Registrar(enabled.clone())));
        enabled.store(true, Ordering::SeqCst);
        tracing::callsite::rebuild_interest_cache();
        dispatchers
    });
}

/// A subscriber that enables all callsites once its flag is set, and records nothing.
struct Registrar(Arc<AtomicBool>);

impl tracing::Subscriber for Registrar {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(if self.0.load(Ordering::SeqCst) { LevelFilter::TRACE } else { LevelFilter::OFF })
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {}

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
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
