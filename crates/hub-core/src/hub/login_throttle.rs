//! Login throttle: after some failures, each further attempt has to wait longer. A name is counted whether or not a
//! user has it.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;

use crate::digest::Digest;
use crate::lock::lock;

/// Maximum wait.
const LONGEST: Duration = Duration::from_mins(1);
/// Time after which failed attempts are forgotten.
const MEMORY: Duration = Duration::from_mins(15);
/// Maximum number of tracked keys. Each costs an attacker the work of a password hash.
const MOST: usize = 10_000;

/// Failed attempts by key.
#[derive(Default)]
pub(super) struct Throttle(Mutex<HashMap<Digest, Tries>>);

struct Tries {
    count: u32,
    last: Timestamp,
}

impl Tries {
    fn wait(&self, free: u32, now: Timestamp) -> Duration {
        let over =
            self.count.checked_sub(free).map(|over| Duration::from_secs(1 << over.min(16)).min(LONGEST));
        over.unwrap_or_default().saturating_sub(since(self.last, now))
    }
}

/// Returns the time since `last`. A clock that was set back counts as no time.
fn since(last: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(last)).unwrap_or_default()
}

/// Limit of failed attempts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit {
    /// Digest of the limited name, source or user.
    pub(super) key: Digest,
    /// Attempts before the first wait.
    pub(super) free: u32,
}

impl Throttle {
    /// Counts an attempt against all its limits before it is made, so that concurrent attempts count as well. If a
    /// limit is reached, counts nothing and returns the time to wait.
    pub(super) fn begin(&self, limits: &[Limit], now: Timestamp) -> Result<(), Duration> {
        let mut all = lock(&self.0);
        let mut wait = Duration::ZERO;
        for limit in limits {
            wait = wait.max(tries(&mut all, limit.key, now).wait(limit.free, now));
        }
        if !wait.is_zero() {
            return Err(wait);
        }
        for limit in limits {
            let tries = tries(&mut all, limit.key, now);
            *tries = Tries { count: tries.count + 1, last: now };
        }
        Ok(())
    }

    /// Clears the failed attempts.
    pub(super) fn succeeded(&self, limits: &[Limit]) {
        let mut all = lock(&self.0);
        for limit in limits {
            all.remove(&limit.key);
        }
    }
}

/// Returns the attempts of one key, reset if they are too old to count.
fn tries(all: &mut HashMap<Digest, Tries>, key: Digest, now: Timestamp) -> &mut Tries {
    if all.len() >= MOST && !all.contains_key(&key) {
        all.retain(|_, tries| since(tries.last, now) < MEMORY);
        if all.len() >= MOST {
            let oldest = all.iter().min_by_key(|(_, tries)| tries.last).map(|(key, _)| *key);
            oldest.map(|key| all.remove(&key));
        }
    }
    let tries = all.entry(key).or_insert(Tries { count: 0, last: now });
    tries.last = tries.last.min(now);
    if since(tries.last, now) >= MEMORY {
        tries.count = 0;
    }
    tries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    const FREE: u32 = 5;

    fn key(number: usize) -> Digest {
        Digest::of("test").part(number.to_string()).end()
    }

    fn who(number: usize) -> [Limit; 1] {
        [Limit { key: key(number), free: FREE }]
    }

    #[test]
    fn an_attempt_counts_against_all_its_limits_or_none() {
        let throttle = Throttle::default();
        let both = |number| [who(number)[0], Limit { key: key(100), free: 8 }];
        for _ in 0..FREE {
            throttle.begin(&both(1), at(0)).unwrap();
        }
        for _ in 0..10 {
            assert!(throttle.begin(&both(1), at(0)).is_err());
        }
        for _ in 0..3 {
            throttle.begin(&both(2), at(0)).unwrap();
        }
        assert!(throttle.begin(&both(3), at(0)).is_err(), "eight in all");
        assert_eq!(throttle.begin(&who(3), at(0)), Ok(()));
    }

    #[test]
    fn each_failure_makes_the_wait_longer() {
        let throttle = Throttle::default();
        let mut waits = Vec::new();
        let mut now = 0;
        for _ in 0..14 {
            let wait = throttle.begin(&who(1), at(now)).err().unwrap_or_default().as_secs();
            now += i64::try_from(wait).unwrap();
            if wait > 0 {
                assert!(throttle.begin(&who(1), at(now - 1)).is_err(), "waiting is not a try");
                throttle.begin(&who(1), at(now)).unwrap();
            }
            waits.push(wait);
        }
        assert_eq!(waits, [0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(throttle.begin(&who(2), at(now)), Ok(()), "others do not wait");
        assert_eq!(throttle.begin(&who(1), at(now - 1_000)), Err(LONGEST), "a clock that was set back");
        assert_eq!(throttle.begin(&who(1), at(now - 940)), Ok(()));
        assert!(throttle.begin(&who(1), at(now - 940)).is_err());
        throttle.succeeded(&who(1));
        assert_eq!(throttle.begin(&who(1), at(now - 940)), Ok(()));
    }

    #[test]
    fn it_forgets_with_time_and_before_it_becomes_large() {
        let throttle = Throttle::default();
        for _ in 0..=FREE {
            let _ = throttle.begin(&who(0), at(0));
        }
        assert!(throttle.begin(&who(0), at(0)).is_err());
        assert_eq!(throttle.begin(&who(0), at(15 * 60)), Ok(()));
        assert_eq!(throttle.begin(&who(0), at(15 * 60)), Ok(()), "the count was reset");
        for number in 1..MOST + 100 {
            throttle.begin(&who(number), at(15 * 60 + 1)).unwrap();
        }
        assert_eq!(lock(&throttle.0).len(), MOST);
        assert!(!lock(&throttle.0).contains_key(&key(0)), "the oldest went first");
    }
}
