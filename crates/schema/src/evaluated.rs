//! Set of evaluated members or items of a value, for the `unevaluated…` keywords.

/// Set of the indexes of members or items that keywords have evaluated. The first 64 need no allocation.
#[derive(Debug, Default)]
pub(crate) struct EvaluatedSet {
    first: u64,
    rest: Vec<u64>,
}

impl EvaluatedSet {
    pub(crate) fn insert(&mut self, index: usize) {
        match (index / 64).checked_sub(1) {
            None => self.first |= 1 << index,
            Some(word) => {
                if self.rest.len() <= word {
                    self.rest.resize(word + 1, 0);
                }
                self.rest[word] |= 1 << (index % 64);
            }
        }
    }

    pub(crate) fn insert_first(&mut self, count: usize) {
        (0..count).for_each(|index| self.insert(index));
    }

    pub(crate) fn contains(&self, index: usize) -> bool {
        let word = match (index / 64).checked_sub(1) {
            None => self.first,
            Some(word) => self.rest.get(word).copied().unwrap_or(0),
        };
        word >> (index % 64) & 1 == 1
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.first |= other.first;
        if self.rest.len() < other.rest.len() {
            self.rest.resize(other.rest.len(), 0);
        }
        for (word, other) in self.rest.iter_mut().zip(&other.rest) {
            *word |= other;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_kept_and_merged() {
        let (mut one, mut two) = (EvaluatedSet::default(), EvaluatedSet::default());
        one.insert_first(3);
        for index in [63, 64, 127, 128, 1000] {
            assert!(!two.contains(index));
            two.insert(index);
            assert!(two.contains(index) && !two.contains(index + 2));
        }
        one.merge(&two);
        let found: Vec<usize> = (0..2000).filter(|index| one.contains(*index)).collect();
        assert_eq!(found, [0, 1, 2, 63, 64, 127, 128, 1000]);
    }
}
