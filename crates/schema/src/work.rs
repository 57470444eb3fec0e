//! What a check may cost. A schema and a value that are each harmless can be dear together, so work is counted.

/// How deep a check may nest: values in values, and references followed on the way.
const MAX_DEPTH: u32 = 320;

/// The work that is left. Once it has run out it stays so, and what was found since means nothing.
#[derive(Debug)]
pub(crate) struct Work {
    left: u64,
    depth: u32,
    over: Option<Over>,
}

/// Why a check was given up.
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

    /// Whether there is still this much work left; if so, it is spent.
    pub(crate) fn spend(&mut self, steps: u64) -> bool {
        if let Some(left) = self.left.checked_sub(steps) {
            self.left = left;
            return true;
        }
        self.left = 0;
        self.over.get_or_insert(Over::Steps);
        false
    }

    /// One level deeper, until [`Work::leave`].
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
