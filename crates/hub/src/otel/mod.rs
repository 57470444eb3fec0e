//! OpenTelemetry export: [`spans`] records the hub's spans and [`export`] sends them as OTLP over HTTP with JSON. The
//! standard `OTEL_*` environment variables configure it.

mod export;
mod settings;
mod spans;

use std::sync::{Mutex, PoisonError};

use linchpin_hub_core::telemetry::TARGET;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

use self::settings::Settings;
use crate::config::env_variable;
use crate::error::CliError;

pub(crate) use export::Exporter;
pub(crate) use spans::context_of;

/// Queue of finished spans, created with the subscriber and taken over by [`exporter`], which can report invalid
/// settings.
static SPAN_QUEUE: Mutex<Option<export::SpanQueue>> = Mutex::new(None);

/// Returns whether a collector is configured.
pub(crate) fn is_enabled() -> bool {
    settings::is_enabled(&env_variable)
}

/// Creates the span layer.
fn layer<S>() -> impl Layer<S>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
{
    let (spans, queue) = spans::SpanLayer::new();
    *SPAN_QUEUE.lock().unwrap_or_else(PoisonError::into_inner) = Some(queue);
    spans.with_filter(Targets::new().with_target(TARGET, LevelFilter::TRACE))
}

/// Creates the exporter, if the span layer is installed.
pub(crate) fn exporter() -> Result<Option<Exporter>, CliError> {
    let span_queue = SPAN_QUEUE.lock().unwrap_or_else(PoisonError::into_inner).take();
    span_queue.map(|queue| Exporter::new(queue, Settings::read(&env_variable)?)).transpose()
}

/// Installs the log layer and the span layer as the global subscriber.
pub(crate) fn install(log: impl Layer<tracing_subscriber::Registry> + Send + Sync) {
    use tracing_subscriber::util::SubscriberInitExt as _;
    tracing_subscriber::registry().with(log).with(layer()).init();
}
