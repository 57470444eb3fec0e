//! Login throttle: after some failures, each further attempt has to wait longer. A name is counted whether or not a
//! user has it.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;

use crate::digest::Digest;
use crate::lock::lock;

/// Maximum wait before the next login attempt.
const MAX_WAIT: Duration = Duration::from_mins(1);
/// Time after which failed login attempts are forgotten.
const RESET_AFTER: Duration = Duration::from_mins(15);
/// Maximum number of tracked keys of limits: names, names from one source, and users. Each costs an attacker the work
/// of a password hash.
const MAX_TRACKED_KEYS: usize = 10_000;

/// Failed password attempts by name, source or user, which make further attempts wait.
#[derive(Default)]
pub(in crate::hub) struct LoginThrottle(Mutex<HashMap<Digest, Attempts>>);

struct Attempts {
    count: u32,
    last: Timestamp,
}

impl Attempts {
    fn wait(&self, free: u32, now: Timestamp) -> Duration {
        let backoff =
            self.count.checked_sub(free).map(|excess| Duration::from_secs(1 << excess.min(16)).min(MAX_WAIT));
        backoff.unwrap_or_default().saturating_sub(elapsed_since(self.last, now))
    }
}

/// Returns the time from `last` to `now`. A clock that was set back counts as no time.
fn elapsed_since(last: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(last)).unwrap_or_default()
}

/// Limit of failed password attempts for one name, one name from one source, or one user: how many are allowed before
/// the next has to wait.
#[derive(Debug, Clone, Copy)]
pub(in crate::hub) struct AttemptLimit {
    /// Digest of the limited name, source or user.
    pub(in crate::hub) key: Digest,
    /// Number of failed attempts before the next one has to wait.
    pub(in crate::hub) free_attempts: u32,
}

impl LoginThrottle {
    /// Counts an attempt against all its limits before it is made, so that concurrent attempts count as well. If a
    /// limit is reached, counts nothing and returns the time to wait.
    pub(in crate::hub) fn count_attempt(
        &self,
        limits: &[AttemptLimit],
        now: Timestamp,
    ) -> Result<(), Duration> {
        let mut all = lock(&self.0);
        let mut wait = Duration::ZERO;
        for limit in limits {
            wait = wait.max(load_attempts(&mut all, limit.key, now).wait(limit.free_attempts, now));
        }
        if !wait.is_zero() {
            return Err(wait);
        }
        for limit in limits {
            let attempts = load_attempts(&mut all, limit.key, now);
            *attempts = Attempts { count: attempts.count + 1, last: now };
        }
        Ok(())
    }

    /// Clears the failed login attempts that count against these limits.
    pub(in crate::hub) fn clear(&self, limits: &[AttemptLimit]) {
        let mut all = lock(&self.0);
        for limit in limits {
            all.remove(&limit.key);
        }
    }
}

/// Returns the failed login attempts of one key, reset if they are too old to count.
fn load_attempts(all: &mut HashMap<Digest, Attempts>, key: Digest, now: Timestamp) -> &mut Attempts {
    if all.len() >= MAX_TRACKED_KEYS && !all.contains_key(&key) {
        all.retain(|_, attempts| elapsed_since(attempts.last, now) < RESET_AFTER);
        if all.len() >= MAX_TRACKED_KEYS {
            let oldest = all.iter().min_by_key(|(_, attempts)| attempts.last).map(|(key, _)| *key);
            oldest.map(|key| all.remove(&key));
        }
    }
    let attempts = all.entry(key).or_insert(Attempts { count: 0, last: now });
    attempts.last = attempts.last.min(now);
    if elapsed_since(attempts.last, now) >= RESET_AFTER {
        attempts.count = 0;
    }
    attempts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    const FREE_ATTEMPTS: u32 = 5;

    fn key(number: usize) -> Digest {
        Digest::of("test").part(number.to_string()).finish()
    }

    fn one_limit(number: usize) -> [AttemptLimit; 1] {
        [AttemptLimit { key: key(number), free_attempts: FREE_ATTEMPTS }]
    }

    #[test]
    fn an_attempt_counts_against_all_its_limits_or_none() {
        let throttle = LoginThrottle::default();
        let both = |number| [one_limit(number)[0], AttemptLimit { key: key(100), free_attempts: 8 }];
        for _ in 0..FREE_ATTEMPTS {
            throttle.count_attempt(&both(1), at(0)).unwrap();
        }
        for _ in 0..10 {
            assert!(throttle.count_attempt(&both(1), at(0)).is_err());
        }
        for _ in 0..3 {
            throttle.count_attempt(&both(2), at(0)).unwrap();
        }
        assert!(throttle.count_attempt(&both(3), at(0)).is_err(), "eight in all");
        assert_eq!(throttle.count_attempt(&one_limit(3), at(0)), Ok(()));
    }

    #[test]
    fn each_failure_makes_the_wait_longer() {
        let throttle = LoginThrottle::default();
        let mut waits = Vec::new();
        let mut now = 0;
        for _ in 0..14 {
            let wait = throttle.count_attempt(&one_limit(1), at(now)).err().unwrap_or_default().as_secs();
            now += i64::try_from(wait).unwrap();
            if wait > 0 {
                assert!(throttle.count_attempt(&one_limit(1), at(now - 1)).is_err(), "waiting is not a try");
                throttle.count_attempt(&one_limit(1), at(now)).unwrap();
            }
            waits.push(wait);
        }
        assert_eq!(waits, [0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(throttle.count_attempt(&one_limit(2), at(now)), Ok(()), "others do not wait");
        assert_eq!(
            throttle.count_attempt(&one_limit(1), at(now - 1_000)),
            Err(MAX_WAIT),
            "a clock that was set back"
        );
        assert_eq!(throttle.count_attempt(&one_limit(1), at(now - 940)), Ok(()));
        assert!(throttle.count_attempt(&one_limit(1), at(now - 940)).is_err());
        throttle.clear(&one_limit(1));
        assert_eq!(throttle.count_attempt(&one_limit(1), at(now - 940)), Ok(()));
    }

    #[test]
    fn it_forgets_with_time_and_before_it_becomes_large() {
        let throttle = LoginThrottle::default();
        for _ in 0..=FREE_ATTEMPTS {
            let _ = throttle.count_attempt(&one_limit(0), at(0));
        }
        assert!(throttle.count_attempt(&one_limit(0), at(0)).is_err());
        assert_eq!(throttle.count_attempt(&one_limit(0), at(15 * 60)), Ok(()));
        assert_eq!(throttle.count_attempt(&one_limit(0), at(15 * 60)), Ok(()), "the count was reset");
        for number in 1..MAX_TRACKED_KEYS + 100 {
            throttle.count_attempt(&one_limit(number), at(15 * 60 + 1)).unwrap();
        }
        assert_eq!(lock(&throttle.0).len(), MAX_TRACKED_KEYS);
        assert!(!lock(&throttle.0).contains_key(&key(0)), "the oldest went first");
    }
}
