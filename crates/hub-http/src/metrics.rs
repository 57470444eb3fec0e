//! Process and HTTP metrics of the hub, and their output in the Prometheus text format. Labels are routes, statuses and
//! slugs: never free text of a user, and never secrets.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use jiff::Timestamp;
use linchpin_hub_core::hub::{BUCKET_BOUNDS_MS, DurationHistogram};

/// Counts and durations of HTTP requests since the start of the hub.
pub(crate) struct Metrics {
    started: Timestamp,
    counters: Mutex<Counters>,
}

#[derive(Default)]
struct Counters {
    requests: BTreeMap<(String, u16), u64>,
    durations: BTreeMap<String, DurationHistogram>,
}

impl Metrics {
    pub(crate) fn new(started: Timestamp) -> Self {
        Metrics { started, counters: Mutex::default() }
    }

    fn counters(&self) -> MutexGuard<'_, Counters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a finished HTTP request by route and status, and adds its duration.
    pub(crate) fn record_request(&self, route: &str, status: StatusCode, time: Duration) {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let mut counted = self.counters();
        *counted.requests.entry((route.to_owned(), status.as_u16())).or_default() += 1;
        counted.durations.entry(route.to_owned()).or_default().add(millis);
    }

    /// Writes the process and HTTP metrics in the Prometheus text format.
    pub(crate) fn write(&self, text: &mut PrometheusText) {
        text.header(
            "process_start_time_seconds",
            "gauge",
            "Start time of the hub in seconds since the Unix epoch.",
        );
        text.sample("process_start_time_seconds", &[], self.started.as_second());
        if let Some(bytes) = resident_bytes() {
            text.header("process_resident_memory_bytes", "gauge", "Resident memory of the hub in bytes.");
            text.sample("process_resident_memory_bytes", &[], bytes);
        }
        let counted = self.counters();
        text.header("linchpin_http_requests_total", "counter", "HTTP requests by route and status.");
        for ((route, status), count) in &counted.requests {
            text.sample(
                "linchpin_http_requests_total",
                &[("route", route), ("status", &status.to_string())],
                count,
            );
        }
        text.header(
            "linchpin_http_request_duration_seconds",
            "histogram",
            "Duration of HTTP requests in seconds.",
        );
        for (route, histogram) in &counted.durations {
            text.histogram("linchpin_http_request_duration_seconds", &[("route", route)], histogram);
        }
    }
}

/// Writer of the Prometheus text format.
#[derive(Default)]
pub(crate) struct PrometheusText(String);

impl PrometheusText {
    pub(crate) fn header(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}"); // writing to a string never fails
    }

    pub(crate) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.0.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            let open = if index == 0 { '{' } else { ',' };
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{open}{label}=\"{text}\""); // writing to a string never fails
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{close} {value}"); // writing to a string never fails
    }

    pub(crate) fn histogram(&mut self, name: &str, labels: &[(&str, &str)], histogram: &DurationHistogram) {
        let mut cumulative = 0;
        for (bound, count) in BUCKET_BOUNDS_MS.iter().zip(histogram.buckets) {
            cumulative += count;
            let bound = seconds(*bound).to_string();
            self.sample(&format!("{name}_bucket"), &[labels, &[("le", &*bound)]].concat(), cumulative);
        }
        self.sample(&format!("{name}_bucket"), &[labels, &[("le", "+Inf")]].concat(), histogram.count);
        self.sample(&format!("{name}_sum"), labels, seconds(histogram.total_ms));
        self.sample(&format!("{name}_count"), labels, histogram.count);
    }

    pub(crate) fn into_string(self) -> String {
        self.0
    }
}

fn seconds(millis: u64) -> f64 {
    Duration::from_millis(millis).as_secs_f64()
}

/// Returns the resident memory of this process in bytes, where the system provides it.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_is_written() {
        let metrics = Metrics::new(Timestamp::from_second(7).unwrap());
        metrics.record_request("/healthz", StatusCode::OK, Duration::from_millis(2));
        metrics.record_request("/healthz", StatusCode::OK, Duration::from_mins(10));
        metrics.record_request("/a\"b\\c\nd", StatusCode::NOT_FOUND, Duration::ZERO);
        let mut text = PrometheusText::default();
        metrics.write(&mut text);
        let text = text.into_string();
        for line in [
            "# TYPE linchpin_http_requests_total counter",
            "process_start_time_seconds 7",
            "linchpin_http_requests_total{route=\"/healthz\",status=\"200\"} 2",
            "linchpin_http_requests_total{route=\"/a\\\"b\\\\c\\nd\",status=\"404\"} 1",
            "linchpin_http_request_duration_seconds_bucket{route=\"/healthz\",le=\"0.001\"} 0",
            "linchpin_http_request_duration_seconds_bucket{route=\"/healthz\",le=\"0.002\"} 1",
            "linchpin_http_request_duration_seconds_bucket{route=\"/healthz\",le=\"300\"} 1",
            "linchpin_http_request_duration_seconds_bucket{route=\"/healthz\",le=\"+Inf\"} 2",
            "linchpin_http_request_duration_seconds_sum{route=\"/healthz\"} 600.002",
            "linchpin_http_request_duration_seconds_count{route=\"/healthz\"} 2",
        ] {
            assert!(text.lines().any(|known| known == line), "{line} is not in\n{text}");
        }
    }
}
