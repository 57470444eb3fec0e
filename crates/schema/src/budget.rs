//! Work budget of one validation. A harmless schema and a harmless value can be expensive in combination, so work is
//! counted.

/// Maximum nesting depth of a validation: nested values plus followed references.
const MAX_DEPTH: u32 = 320;

/// Remaining work. Once exhausted it stays exhausted, and later results are meaningless.
#[derive(Debug)]
pub(crate) struct Work {
    left: u64,
    depth: u32,
    over: Option<Over>,
}

/// Reason why a validation was aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    Steps,
    Depth,
}

impl Work {
    pub(crate) fn new(steps: u64) -> Self {
        Self { left: steps, depth: 0, over: None }
    }

    pub(crate) fn over(&self) -> Option<Over> {
        self.over
    }

    /// Spends work. Returns `false` if less is left.
    pub(crate) fn spend(&mut self, steps: u64) -> bool {
        if let Some(left) = self.left.checked_sub(steps) {
            self.left = left;
            return true;
        }
        self.left = 0;
        self.over.get_or_insert(Over::Steps);
        false
    }

    /// Enters a nesting level until [`Work::leave`]. Returns `false` if the depth or the work is exhausted.
    pub(crate) fn enter(&mut self) -> bool {
        if self.depth >= MAX_DEPTH {
            self.left = 0;
            self.over.get_or_insert(Over::Depth);
            return false;
        }
        self.depth += 1;
        self.spend(1)
    }

    pub(crate) fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }
}
