//! Platform services: the clock and the source of randomness.

use std::cell::RefCell;
use std::num::NonZeroUsize;

use jiff::Timestamp;
use zeroize::Zeroize as _;

/// Maximum number of random bytes that are taken from the buffer of the thread. Longer requests are keys, of which no
/// copy may remain in memory.
const MAX_BUFFERED_LEN: usize = 24;
/// Number of random bytes that a thread reads from the operating system at once.
const BUFFER_LEN: usize = 480;

/// Clock and source of randomness, passed in so that tests can control both.
pub trait Platform: Send + Sync + 'static {
    /// Returns the current time.
    fn now(&self) -> Timestamp;

    /// Fills the buffer with unpredictable bytes.
    fn fill_random(&self, bytes: &mut [u8]);
}

/// Returns the number of worker threads of a hub: half of the processors. The servers, the database and the kernel need
/// the others, and with more workers a call costs more, because they wake each other.
pub fn default_worker_threads() -> NonZeroUsize {
    let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    NonZeroUsize::new(processors / 2).unwrap_or(NonZeroUsize::MIN)
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
        if bytes.len() <= MAX_BUFFERED_LEN {
            RANDOM_BUFFER.with_borrow_mut(|buffer| buffer.take(bytes));
        } else {
            read_random(bytes);
        }
    }
}

thread_local! {
    static RANDOM_BUFFER: RefCell<RandomBuffer> = const { RefCell::new(RandomBuffer::empty()) };
}

/// Random bytes for the ids and nonces of one thread, so that not each of them costs a system call. Each byte is used
/// once.
struct RandomBuffer {
    bytes: [u8; BUFFER_LEN],
    /// Number of bytes that were used.
    used: usize,
}

impl RandomBuffer {
    const fn empty() -> Self {
        RandomBuffer { bytes: [0; BUFFER_LEN], used: BUFFER_LEN }
    }

    /// Moves unused bytes to `target`, which is no longer than [`MAX_BUFFERED_LEN`].
    fn take(&mut self, target: &mut [u8]) {
        if self.used + target.len() > BUFFER_LEN {
            read_random(&mut self.bytes);
            self.used = 0;
        }
        let taken = &mut self.bytes[self.used..self.used + target.len()];
        target.copy_from_slice(taken);
        taken.zeroize();
        self.used += target.len();
    }
}

fn read_random(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the operating system provides random numbers");
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};

    use super::*;

    #[test]
    fn buffered_random_bytes_are_never_repeated() {
        let mut seen = std::collections::HashSet::new();
        for _ in 0..1_000 {
            assert!(seen.insert(random::<16>(&SystemPlatform)));
            assert!(seen.insert(random::<16>(&SystemPlatform)));
            assert_ne!(random::<12>(&SystemPlatform), [0; 12]);
            assert_ne!(random::<32>(&SystemPlatform), [0; 32]);
        }
    }

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
