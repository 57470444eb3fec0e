//! Whoever fails to sign in again and again has to wait, longer each time. It counts by what was tried, whether there is
//! such a person or not.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;

use crate::digest::Digest;
use crate::sync::lock;

/// How many tries are free.
const FREE: u32 = 5;
/// The longest time to wait.
const LONGEST: Duration = Duration::from_mins(1);
/// After this time nothing is remembered.
const MEMORY: Duration = Duration::from_mins(15);
/// How many are remembered. Each costs whoever tries it the work of a password.
const MOST: usize = 10_000;

/// Who tried how often.
#[derive(Default)]
pub(super) struct Throttle(Mutex<HashMap<Digest, Tries>>);

struct Tries {
    count: u32,
    last: Timestamp,
}

impl Tries {
    fn wait(&self, now: Timestamp) -> Duration {
        let over =
            self.count.checked_sub(FREE).map(|over| Duration::from_secs(1 << over.min(16)).min(LONGEST));
        over.unwrap_or_default().saturating_sub(since(self.last, now))
    }
}

/// A clock that was set back takes nothing away.
fn since(last: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(last)).unwrap_or_default()
}

impl Throttle {
    /// Counts a try before it is made, so that many at once count as many; or says how long to wait.
    pub(super) fn begin(&self, who: Digest, now: Timestamp) -> Result<(), Duration> {
        let mut all = lock(&self.0);
        if all.len() >= MOST && !all.contains_key(&who) {
            all.retain(|_, tries| since(tries.last, now) < MEMORY);
            if all.len() >= MOST {
                let oldest = all.iter().min_by_key(|(_, tries)| tries.last).map(|(who, _)| *who);
                oldest.map(|who| all.remove(&who));
            }
        }
        let tries = all.entry(who).or_insert(Tries { count: 0, last: now });
        tries.last = tries.last.min(now);
        if since(tries.last, now) >= MEMORY {
            tries.count = 0;
        }
        match tries.wait(now) {
            Duration::ZERO => {
                *tries = Tries { count: tries.count + 1, last: now };
                Ok(())
            }
            wait => Err(wait),
        }
    }

    /// Who has got in begins anew.
    pub(super) fn succeeded(&self, who: Digest) {
        lock(&self.0).remove(&who);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn who(number: usize) -> Digest {
        Digest::of("test").part(number.to_string()).end()
    }

    #[test]
    fn each_failure_makes_the_wait_longer() {
        let throttle = Throttle::default();
        let mut waits = Vec::new();
        let mut now = 0;
        for _ in 0..14 {
            let wait = throttle.begin(who(1), at(now)).err().unwrap_or_default().as_secs();
            now += i64::try_from(wait).unwrap();
            if wait > 0 {
                assert!(throttle.begin(who(1), at(now - 1)).is_err(), "waiting is not a try");
                throttle.begin(who(1), at(now)).unwrap();
            }
            waits.push(wait);
        }
        assert_eq!(waits, [0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(throttle.begin(who(2), at(now)), Ok(()), "others do not wait");
        assert_eq!(throttle.begin(who(1), at(now - 1_000)), Err(LONGEST), "a clock that was set back");
        assert_eq!(throttle.begin(who(1), at(now - 940)), Ok(()));
        assert!(throttle.begin(who(1), at(now - 940)).is_err());
        throttle.succeeded(who(1));
        assert_eq!(throttle.begin(who(1), at(now - 940)), Ok(()));
    }

    #[test]
    fn it_forgets_with_time_and_before_it_becomes_large() {
        let throttle = Throttle::default();
        for _ in 0..=FREE {
            let _ = throttle.begin(who(0), at(0));
        }
        assert!(throttle.begin(who(0), at(0)).is_err());
        assert_eq!(throttle.begin(who(0), at(15 * 60)), Ok(()));
        assert_eq!(throttle.begin(who(0), at(15 * 60)), Ok(()), "it began anew");
        for number in 1..MOST + 100 {
            throttle.begin(who(number), at(15 * 60 + 1)).unwrap();
        }
        assert_eq!(lock(&throttle.0).len(), MOST);
        assert!(!lock(&throttle.0).contains_key(&who(0)), "the oldest went first");
    }
}
