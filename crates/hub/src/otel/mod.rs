//! What was done, for a collector of OpenTelemetry: [`spans`] notes the hub's spans and [`export`] sends them, as OTLP over
//! HTTP with JSON. The usual variables of the environment say whether and where to.

mod export;
mod settings;
mod spans;

use std::sync::{Mutex, PoisonError};

use linchpin_hub_core::spans::TARGET;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

use crate::config::variable;
use crate::failure::Failure;
use settings::Settings;

pub(crate) use export::Exporter;

/// What was begun before anybody could say what is wrong, for the hub that is started.
static BEGUN: Mutex<Option<export::Queue>> = Mutex::new(None);

/// Notes spans from now on, if somebody wants them.
fn layer<S>() -> Option<impl Layer<S>>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
{
    if !settings::is_wanted(&variable) {
        return None;
    }
    let (spans, queue) = spans::Spans::new();
    *BEGUN.lock().unwrap_or_else(PoisonError::into_inner) = Some(queue);
    Some(spans.with_filter(Targets::new().with_target(TARGET, LevelFilter::TRACE)))
}

/// What sends the spans that are noted, if there are any.
pub(crate) fn exporter() -> Result<Option<Exporter>, Failure> {
    let begun = BEGUN.lock().unwrap_or_else(PoisonError::into_inner).take();
    begun.map(|queue| Exporter::new(queue, Settings::read(&variable)?)).transpose()
}

/// Writes the log, and notes spans beside it.
pub(crate) fn install(log: impl Layer<tracing_subscriber::Registry> + Send + Sync) {
    use tracing_subscriber::util::SubscriberInitExt as _;
    tracing_subscriber::registry().with(log).with(layer()).init();
}
