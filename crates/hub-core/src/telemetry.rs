//! Tracing target of exported spans. Spans name the called server and the outcome, and contain no arguments and no
//! results.

/// Target of the exported spans. They cost nothing unless a subscriber enables this target.
pub const TARGET: &str = "linchpin::spans";
