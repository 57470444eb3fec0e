//! Deterministic pseudo-random numbers for tests. They depend only on the seed, on every machine and in every version,
//! so a seed in a failure message is enough to reproduce the failure.

/// Reproducible random numbers for tests (splitmix64).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Creates a random number generator with this seed.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// Returns the next pseudo-random number.
    #[expect(clippy::should_implement_trait, reason = "it never ends, so it is not a useful iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a pseudo-random number below `end`; 0 if `end` is 0.
    pub fn next_below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % end).unwrap_or(0)
    }

    /// Returns a random element of a slice. Panics if there are none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.next_below(items.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_splitmix64() {
        let mut random = Random::new(1_234_567);
        let numbers = [random.next(), random.next(), random.next()];
        assert_eq!(
            numbers,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
        assert_eq!(random.next_below(0), 0);
        assert!((0..100).all(|_| random.next_below(7) < 7));
    }
}
