//! Platform services: the clock and the source of randomness.

use jiff::Timestamp;

/// Clock and source of randomness, passed in so that tests can control both.
pub trait Platform: Send + Sync + 'static {
    /// Returns the current time.
    fn now(&self) -> Timestamp;

    /// Fills the buffer with unpredictable bytes.
    fn fill_random(&self, bytes: &mut [u8]);
}

/// Returns unpredictable bytes.
pub fn random<const N: usize>(platform: &dyn Platform) -> [u8; N] {
    let mut bytes = [0; N];
    platform.fill_random(&mut bytes);
    bytes
}

/// Platform of a real hub: the system clock, and random numbers of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemPlatform;

impl Platform for SystemPlatform {
    fn now(&self) -> Timestamp {
        // To the millisecond, which is the precision of the stores.
        Timestamp::from_millisecond(Timestamp::now().as_millisecond()).unwrap_or_default()
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the operating system provides random numbers");
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};

    use super::*;

    /// Clock and randomness that tests control.
    #[derive(Debug, Default)]
    pub(crate) struct FixedPlatform {
        pub(crate) seconds: AtomicI64,
        counter: AtomicU8,
    }

    impl Platform for FixedPlatform {
        fn now(&self) -> Timestamp {
            Timestamp::from_second(1_800_000_000 + self.seconds.load(Ordering::SeqCst)).unwrap()
        }

        fn fill_random(&self, bytes: &mut [u8]) {
            for byte in bytes {
                *byte = self.counter.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}
