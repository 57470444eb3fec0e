//! Parts that the benchmarks share: servers and their tools, callers, and figures of runs.

pub mod cpu_time;
pub mod dummy_tools;
pub mod gateway_load;
pub mod gateway_processes;
pub mod hub_caller;
pub mod requests;
pub mod upstream;

use linchpin_hub_core::platform::default_worker_threads;
use tokio::runtime::{Builder, Runtime};

/// Creates the runtime that a hub has; `TOKIO_WORKER_THREADS` overrides the number of its threads.
pub fn hub_runtime() -> std::io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    if std::env::var_os("TOKIO_WORKER_THREADS").is_none() {
        builder.worker_threads(default_worker_threads().get());
    }
    builder.enable_all().build()
}
