//! Exporter that sends finished spans in batches to an OpenTelemetry collector. Spans that cannot be sent are counted
//! and dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::Request;
use http::header::CONTENT_TYPE;
use linchpin::egress::{Body, Egress, Network, Policy};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::settings::Settings;
use crate::error::{CliError, CliErrorKind};

/// Maximum number of spans sent to the collector at once.
const MAX_BATCH: usize = 512;
/// Maximum time a span waits for its batch to fill.
const BATCH_INTERVAL: Duration = Duration::from_secs(5);
/// Timeout for sending a batch of spans, and for flushing all remaining spans at shutdown.
const SEND_TIMEOUT: Duration = Duration::from_secs(3);
/// Private networks on which plain HTTP is allowed: collectors there often have no TLS.
const PRIVATE_NETWORKS: [&str; 4] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"];

/// Queue of finished spans that wait for export to the collector.
pub(super) struct SpanQueue {
    pub(super) spans: mpsc::Receiver<Value>,
    /// Number of spans dropped because the queue was full.
    pub(super) dropped_spans: Arc<AtomicU64>,
}

/// Exporter of spans to an OpenTelemetry collector.
pub(crate) struct Exporter {
    queue: SpanQueue,
    settings: Settings,
    egress: Egress,
}

impl Exporter {
    pub(super) fn new(queue: SpanQueue, settings: Settings) -> Result<Self, CliError> {
        let networks = PRIVATE_NETWORKS.iter().filter_map(|network| network.parse::<Network>().ok());
        let policy = networks.fold(Policy::default(), Policy::allow_http);
        let egress = Egress::builder().policy(policy).build();
        let egress = egress.map_err(|error| CliError::new(CliErrorKind::Other, error.to_string()))?;
        Ok(Exporter { queue, settings, egress })
    }

    /// Sends spans until `end`, then flushes the remaining ones.
    pub(crate) async fn run(mut self, end: impl Future<Output = ()>) -> Result<(), CliError> {
        let (mut end, mut batch) = (std::pin::pin!(end), Vec::with_capacity(MAX_BATCH));
        loop {
            let is_finished = tokio::select! {
                () = &mut end => true,
                () = fill_batch(&mut self.queue.spans, &mut batch) => false,
                () = tokio::time::sleep(BATCH_INTERVAL) => false,
            };
            if is_finished {
                break;
            }
            self.send(&mut batch).await;
        }
        let rest = async {
            self.send(&mut batch).await;
            while let Ok(span) = self.queue.spans.try_recv() {
                batch.push(span);
                if batch.len() == MAX_BATCH || self.queue.spans.is_empty() {
                    self.send(&mut batch).await;
                }
            }
        };
        if timeout(SEND_TIMEOUT, rest).await.is_err() {
            let dropped = batch.len() + self.queue.spans.len();
            tracing::warn!(dropped, "span collector is too slow; dropped the remaining spans");
        }
        Ok(())
    }

    async fn send(&mut self, batch: &mut Vec<Value>) {
        if !batch.is_empty() {
            let sent = timeout(SEND_TIMEOUT, self.post(batch))
                .await
                .unwrap_or_else(|_| Err("the request to the collector timed out".to_owned()));
            if let Err(error) = sent {
                tracing::warn!(
                    error,
                    dropped = batch.len(),
                    "failed to send spans to the collector; dropped them"
                );
            }
            batch.clear();
        }
        let dropped = self.queue.dropped_spans.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            tracing::warn!(dropped, "span queue was full; dropped spans");
        }
    }

    async fn post(&self, batch: &[Value]) -> Result<(), String> {
        let version = env!("CARGO_PKG_VERSION");
        let attribute = |key: &str, text: &str| json!({ "key": key, "value": { "stringValue": text } });
        let resource =
            [attribute("service.name", &self.settings.service), attribute("service.version", version)];
        let body = json!({ "resourceSpans": [{
            "resource": { "attributes": resource },
            "scopeSpans": [{ "scope": { "name": "linchpin", "version": version }, "spans": batch }],
        }] });
        let mut request =
            Request::post("/").body(Body::from(body.to_string())).map_err(|error| error.to_string())?;
        *request.headers_mut() = self.settings.headers.clone();
        request.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
        let response =
            self.egress.send(request, &self.settings.target).await.map_err(|error| error.to_string())?;
        let status = response.status();
        // Read the body, so that the connection can be reused.
        drop(response.into_body().read_to_end(64 << 10).await);
        if status.is_success() { Ok(()) } else { Err(format!("HTTP status {status}")) }
    }
}

/// Fills a batch of spans for the next export. Cancel safe: received spans stay in the batch.
async fn fill_batch(spans: &mut mpsc::Receiver<Value>, batch: &mut Vec<Value>) {
    while batch.len() < MAX_BATCH {
        if spans.recv_many(batch, MAX_BATCH - batch.len()).await == 0 {
            return std::future::pending().await; // the span layer is gone
        }
    }
}

#[cfg(test)]
mod tests {
    use linchpin::egress::Target;
    use linchpin::server::web::Listener;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_collector_that_says_nothing_does_not_hold_up_the_end() {
        let silent = Listener::bind("127.0.0.1:0").await.unwrap();
        let target = Target::configured(&format!("{}/v1/traces", silent.origin())).unwrap();
        let settings = Settings { target, headers: http::HeaderMap::new(), service: String::new() };
        let (notes, spans) = mpsc::channel(MAX_BATCH + 1);
        for _ in 0..=MAX_BATCH {
            notes.try_send(json!({})).unwrap();
        }
        let exporter = Exporter::new(SpanQueue { spans, dropped_spans: Arc::default() }, settings).unwrap();
        let started = Instant::now();
        timeout(60 * SEND_TIMEOUT, exporter.run(std::future::ready(()))).await.unwrap().unwrap();
        assert!(started.elapsed() <= 3 * SEND_TIMEOUT, "{:?}", started.elapsed());
    }
}
