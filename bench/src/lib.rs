//! Parts that the benchmarks of the hub share: an upstream server, and callers of its tool.

pub mod hub_caller;
pub mod upstream;

use linchpin_hub_core::platform::worker_threads;
use tokio::runtime::{Builder, Runtime};

/// Creates the runtime that a hub has.
pub fn hub_runtime() -> std::io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(worker_threads()).enable_all().build()
}
