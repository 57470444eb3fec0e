//! Parts that the benchmarks of the hub share: an upstream server, and callers of its tool.

pub mod hub_caller;
pub mod upstream;
