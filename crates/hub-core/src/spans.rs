//! Spans of what is done, for those who collect them. They say who was called and what came of it, and nothing that was sent or
//! answered.

/// Whoever wants them asks for this target. Nobody else pays for them.
pub const TARGET: &str = "linchpin::spans";
