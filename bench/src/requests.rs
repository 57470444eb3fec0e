//! Requests that are sent repeatedly, and the figures of such a run.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

/// Figures of one run, in microseconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Latencies {
    /// Median time of a request.
    pub p50: f64,
    /// 99th percentile of the time of a request.
    pub p99: f64,
    /// Requests per second.
    pub per_second: f64,
}

/// Sends a number of requests, of which at most `in_flight` are open at a time.
///
/// # Errors
///
/// Fails with the error of the first request that fails.
pub async fn send_requests<F, Fut>(count: usize, in_flight: usize, send: F) -> anyhow::Result<Latencies>
where
    F: Fn() -> Fut,
    Fut: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let begin = Instant::now();
    let (mut tasks, mut left, mut times) = (JoinSet::new(), count, Vec::with_capacity(count));
    while left > 0 || !tasks.is_empty() {
        while left > 0 && tasks.len() < in_flight {
            let request = send();
            tasks.spawn(async move {
                let begin = Instant::now();
                request.await.map(|()| begin.elapsed())
            });
            left -= 1;
        }
        if let Some(done) = tasks.join_next().await {
            times.push(done??);
        }
    }
    let wall = begin.elapsed();
    times.sort_unstable();
    let percentile = |percent: usize| times.get(times.len() * percent / 100).map_or(0.0, micros);
    Ok(Latencies {
        p50: percentile(50),
        p99: percentile(99),
        per_second: as_float(count) / wall.as_secs_f64(),
    })
}

/// Converts a time to microseconds.
pub fn micros(time: &Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Converts a count to a floating point number.
pub fn as_float(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Returns the median of figures.
pub fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_unstable_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}
