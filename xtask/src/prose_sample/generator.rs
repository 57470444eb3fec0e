//! `SplitMix64`, a small deterministic random number generator.

/// Random number generator. The same seed gives the same numbers.
pub(super) struct Generator(u64);

impl Generator {
    pub(super) fn new(seed: u64) -> Self {
        Generator(seed)
    }

    /// Chooses `count` items without repetition, in random order.
    pub(super) fn choose<T>(&mut self, mut items: Vec<T>, count: usize) -> Vec<T> {
        let count = count.min(items.len());
        for index in 0..count {
            let other = index + self.below(items.len() - index);
            items.swap(index, other);
        }
        items.truncate(count);
        items
    }

    /// Returns a number below the limit. The bias of the remainder is negligible for limits of this size.
    fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).expect("usize has at most 64 bits");
        usize::try_from(self.next() % limit).expect("the remainder is less than a usize")
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_reference_implementation() {
        let mut generator = Generator::new(1_234_567);
        assert_eq!(generator.next(), 6_457_827_717_110_365_317);
        assert_eq!(generator.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn items_are_chosen_without_repetition() {
        let mut chosen = Generator::new(3).choose((0..100).collect(), 60);
        assert!(!chosen.is_sorted());
        chosen.sort_unstable();
        chosen.dedup();
        assert_eq!(chosen.len(), 60);
        assert_eq!(Generator::new(3).choose(vec![1], 60), [1]);
    }
}
