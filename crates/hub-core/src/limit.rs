//! How often something may happen: a bucket that fills again with time.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::error::{Error, Kind, seconds};

/// Nobody's clock is off by so much and right.
const FAR: SignedDuration = SignedDuration::from_mins(5);

/// How many at once, and how many in a minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// At once.
    pub burst: u32,
    /// In a minute, on and on.
    pub per_minute: u32,
}

/// What is left. It can be kept anywhere.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    /// How much.
    pub left: f64,
    /// When.
    pub at: Timestamp,
}

/// Too often: it may be had again after a while.
pub fn too_often(of: &str, wait: Duration) -> Error {
    let text = format!("that is too often: try again in {} s", seconds(wait));
    Error::new(Kind::Exhausted, "rate_limited", text).after(wait).about(of)
}

/// Too many at once.
pub fn too_many(most: impl std::fmt::Display) -> Error {
    let text = format!("{most} calls are under way already: wait for one of them");
    Error::new(Kind::Exhausted, "too_many_calls", text).after(Duration::from_secs(1))
}

/// Too many calls wait for an approval.
pub fn too_many_waiting(most: impl std::fmt::Display) -> Error {
    let text = format!("{most} calls wait for an approval already: wait until some of them are decided");
    Error::new(Kind::Exhausted, "too_many_questions", text)
}

impl Bucket {
    /// A full one.
    pub fn full(rate: Rate, now: Timestamp) -> Self {
        Bucket { left: f64::from(rate.burst), at: now }
    }

    /// Takes one, or says how long to wait for it.
    pub fn take(&mut self, rate: Rate, now: Timestamp) -> Result<(), Duration> {
        let per_second = f64::from(rate.per_minute) / 60.0;
        // A clock that was wrong for a moment does not count until that time comes.
        if self.at.duration_since(now) > FAR {
            self.at = now;
        }
        // One that was set back gives nothing, and takes nothing.
        let passed = Duration::try_from(now.duration_since(self.at)).unwrap_or_default();
        self.left = (self.left + passed.as_secs_f64() * per_second).min(f64::from(rate.burst));
        self.at = self.at.max(now);
        if self.left >= 1.0 {
            self.left -= 1.0;
            return Ok(());
        }
        Err(Duration::try_from_secs_f64((1.0 - self.left) / per_second).unwrap_or(Duration::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_empties_and_fills_again() {
        let rate = Rate { burst: 3, per_minute: 60 };
        let at = |seconds: i64| Timestamp::from_second(1_000_000 + seconds).unwrap();
        let mut bucket = Bucket::full(rate, at(0));
        for _ in 0..3 {
            assert_eq!(bucket.take(rate, at(0)), Ok(()));
        }
        assert_eq!(bucket.take(rate, at(0)), Err(Duration::from_secs(1)));
        assert_eq!(bucket.take(rate, at(-100)), Err(Duration::from_secs(1)));
        assert_eq!(bucket.take(rate, at(1)), Ok(()));
        assert!(bucket.take(rate, at(1)).is_err());
        assert!(bucket.take(rate, at(-10_000)).is_err());
        assert_eq!(bucket.take(rate, at(-9_999)), Ok(()), "the clock was wrong before");
        for _ in 0..3 {
            assert_eq!(bucket.take(rate, at(1_000)), Ok(()), "never more than at once");
        }
        assert!(bucket.take(rate, at(1_000)).is_err());
        let never = Rate { burst: 1, per_minute: 0 };
        let mut bucket = Bucket::full(never, at(0));
        assert_eq!((bucket.take(never, at(0)), bucket.take(never, at(9))), (Ok(()), Err(Duration::MAX)));
    }
}
