//! Limit of the work of one schema validation. A harmless schema and a harmless value can be expensive in combination,
//! so work is counted.

/// Maximum nesting depth of a validation: nested values plus followed references.
const MAX_DEPTH: u32 = 320;

/// Remaining steps and nesting depth of one validation. Once exhausted it stays exhausted, and later results are
/// meaningless.
#[derive(Debug)]
pub(crate) struct WorkBudget {
    steps_left: u64,
    depth: u32,
    error: Option<BudgetError>,
}

/// Reason why a validation was aborted: too many steps, or too deep nesting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BudgetError {
    Steps,
    Depth,
}

impl WorkBudget {
    pub(crate) fn new(steps: u64) -> Self {
        Self { steps_left: steps, depth: 0, error: None }
    }

    pub(crate) fn error(&self) -> Option<BudgetError> {
        self.error
    }

    /// Charges steps to the work budget. Returns `false` if less is left.
    pub(crate) fn spend(&mut self, steps: u64) -> bool {
        if let Some(left) = self.steps_left.checked_sub(steps) {
            self.steps_left = left;
            return true;
        }
        self.steps_left = 0;
        self.error.get_or_insert(BudgetError::Steps);
        false
    }

    /// Enters a nesting level (a nested value or a followed reference) until [`WorkBudget::leave`]. Returns `false` if
    /// the depth or the work is exhausted.
    pub(crate) fn enter(&mut self) -> bool {
        if self.depth >= MAX_DEPTH {
            self.steps_left = 0;
            self.error.get_or_insert(BudgetError::Depth);
            return false;
        }
        self.depth += 1;
        self.spend(1)
    }

    pub(crate) fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }
}
