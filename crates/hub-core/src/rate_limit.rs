//! Rate limits: a token bucket that refills with time, and the errors of exceeded limits.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::error::{Error, Kind, seconds};

/// Clock difference from which the stored time is discarded as wrong.
const FAR: SignedDuration = SignedDuration::from_mins(5);

/// Rate limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Size of the bucket.
    pub burst: u32,
    /// Tokens added per minute.
    pub per_minute: u32,
}

/// State of a token bucket. The caller stores it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    /// Tokens left.
    pub left: f64,
    /// Time of the last update.
    pub at: Timestamp,
}

/// Creates the error of an exceeded rate limit, with the time to wait.
pub fn too_often(of: &str, wait: Duration) -> Error {
    let text = format!("rate limit exceeded: retry in {} s", seconds(wait));
    Error::new(Kind::Exhausted, "rate_limited", text).after(wait).about(of)
}

/// Creates the error of an exceeded concurrency limit.
pub fn too_many(most: impl std::fmt::Display) -> Error {
    let text = format!("{most} calls are already running: wait until one has finished");
    Error::new(Kind::Exhausted, "too_many_calls", text).after(Duration::from_secs(1))
}

/// Creates the error of too many pending approvals.
pub fn too_many_waiting(most: impl std::fmt::Display) -> Error {
    let text = format!("{most} calls already wait for approval: wait until some are decided");
    Error::new(Kind::Exhausted, "too_many_questions", text)
}

impl Bucket {
    /// Creates a full bucket.
    pub fn full(rate: Rate, now: Timestamp) -> Self {
        Bucket { left: f64::from(rate.burst), at: now }
    }

    /// Takes a token, or returns the time to wait for one.
    pub fn take(&mut self, rate: Rate, now: Timestamp) -> Result<(), Duration> {
        let per_second = f64::from(rate.per_minute) / 60.0;
        // A time far in the future comes from a wrong clock, and must not block until then.
        if self.at.duration_since(now) > FAR {
            self.at = now;
        }
        // A clock that was set back adds no tokens and removes none.
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
            assert_eq!(bucket.take(rate, at(1_000)), Ok(()), "never more than the burst");
        }
        assert!(bucket.take(rate, at(1_000)).is_err());
        let never = Rate { burst: 1, per_minute: 0 };
        let mut bucket = Bucket::full(never, at(0));
        assert_eq!((bucket.take(never, at(0)), bucket.take(never, at(9))), (Ok(()), Err(Duration::MAX)));
    }
}
