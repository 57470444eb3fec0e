//! What comes from outside: the time, and chance.

use jiff::Timestamp;

/// Passed to whoever needs the time or something that nobody can guess.
pub trait World: Send + Sync + 'static {
    /// What time it is.
    fn now(&self) -> Timestamp;

    /// Fills the bytes so that nobody can guess them.
    fn fill(&self, bytes: &mut [u8]);
}

/// Bytes that nobody can guess.
pub fn random<const N: usize>(world: &dyn World) -> [u8; N] {
    let mut bytes = [0; N];
    world.fill(&mut bytes);
    bytes
}

/// The clock of this machine, and the random numbers of its operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct System;

impl World for System {
    fn now(&self) -> Timestamp {
        // To the millisecond, which is what stores keep.
        Timestamp::from_millisecond(Timestamp::now().as_millisecond()).unwrap_or_default()
    }

    fn fill(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the operating system gives random numbers");
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};

    use super::*;

    /// A world that tests turn.
    #[derive(Debug, Default)]
    pub(crate) struct Still {
        pub(crate) seconds: AtomicI64,
        drawn: AtomicU8,
    }

    impl World for Still {
        fn now(&self) -> Timestamp {
            Timestamp::from_second(1_800_000_000 + self.seconds.load(Ordering::SeqCst)).unwrap()
        }

        fn fill(&self, bytes: &mut [u8]) {
            for byte in bytes {
                *byte = self.drawn.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}
