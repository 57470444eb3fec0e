//! Manual clock.

use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;
use linchpin_hub_core::platform::{Platform, SystemPlatform};

/// World whose clock only advances by [`Clock::turn`].
#[derive(Default)]
pub(crate) struct Clock(AtomicI64);

impl Clock {
    pub(crate) fn advance(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }
}

impl Platform for Clock {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + self.0.load(Ordering::SeqCst)).unwrap()
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        SystemPlatform.fill_random(bytes);
    }
}
