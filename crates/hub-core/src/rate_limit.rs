//! Rate limits: a token bucket that refills with time, and the errors of exceeded limits.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::error::{Error, ErrorKind, ceil_seconds};

/// How far in the future the last update of a bucket may be. A later one comes from a wrong clock and is ignored.
const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(5);

/// Rate limit of calls per minute, as a token bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    /// Maximum number of calls at once: the size of the bucket.
    pub burst: u32,
    /// Calls per minute: tokens added to the bucket.
    pub per_minute: u32,
}

/// Current state of a rate limit: tokens left, and the time of the last update. The caller stores it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenBucket {
    /// Tokens left in the bucket; a call takes one.
    pub tokens: f64,
    /// Time at which `tokens` was computed.
    pub updated: Timestamp,
}

/// Creates the error of an exceeded rate limit, with the time to wait.
pub fn rate_limited(bucket: &str, wait: Duration) -> Error {
    let text = format!("rate limit exceeded: retry in {} s", ceil_seconds(wait));
    Error::new(ErrorKind::LimitExceeded, "rate_limited", text).with_retry_after(wait).with_field(bucket)
}

/// Creates the error of an exceeded concurrency limit.
pub fn concurrency_limited(max: impl std::fmt::Display) -> Error {
    let text = format!("{max} calls are already running: wait until one has finished");
    Error::new(ErrorKind::LimitExceeded, "too_many_calls", text).with_retry_after(Duration::from_secs(1))
}

/// Creates the error of too many pending approvals.
pub fn approvals_limited(max: impl std::fmt::Display) -> Error {
    let text = format!("{max} calls already wait for approval: wait until some are decided");
    Error::new(ErrorKind::LimitExceeded, "too_many_pending_approvals", text)
}

impl TokenBucket {
    /// Creates a full token bucket.
    pub fn full(rate: RateLimit, now: Timestamp) -> Self {
        TokenBucket { tokens: f64::from(rate.burst), updated: now }
    }

    /// Takes a token from the bucket, or returns the time to wait for one.
    pub fn take(&mut self, rate: RateLimit, now: Timestamp) -> Result<(), Duration> {
        let per_second = f64::from(rate.per_minute) / 60.0;
        // A time far in the future comes from a wrong clock, and must not block until then.
        if self.updated.duration_since(now) > MAX_CLOCK_SKEW {
            self.updated = now;
        }
        // A clock that was set back adds no tokens and removes none.
        let elapsed = Duration::try_from(now.duration_since(self.updated)).unwrap_or_default();
        self.tokens = (self.tokens + elapsed.as_secs_f64() * per_second).min(f64::from(rate.burst));
        self.updated = self.updated.max(now);
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        Err(Duration::try_from_secs_f64((1.0 - self.tokens) / per_second).unwrap_or(Duration::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_empties_and_fills_again() {
        let rate = RateLimit { burst: 3, per_minute: 60 };
        let at = |seconds: i64| Timestamp::from_second(1_000_000 + seconds).unwrap();
        let mut bucket = TokenBucket::full(rate, at(0));
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
        let never = RateLimit { burst: 1, per_minute: 0 };
        let mut bucket = TokenBucket::full(never, at(0));
        assert_eq!((bucket.take(never, at(0)), bucket.take(never, at(9))), (Ok(()), Err(Duration::MAX)));
    }
}
