//! What can happen to a message, and how often it does.

use std::fmt;
use std::time::Duration;

use crate::testing::Random;

/// The longest delay, in milliseconds: short of the time that requests have, so that many survive.
const LONGEST_DELAY: usize = 10_000;

/// Lines that are no messages, or none that anybody waits for.
const NOISE: [&str; 8] = [
    "",
    "npm warn deprecated something",
    "{",
    "null",
    "[]",
    r#"{"jsonrpc":"2.0","id":null,"result":{}}"#,
    r#"{"jsonrpc":"2.0","id":"nobody's","result":{}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/noise","params":{}}"#,
];

/// What is done to a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It passes.
    None,
    /// It comes later, and everything behind it as well.
    Delay(Duration),
    /// It is lost.
    Drop,
    /// It comes twice.
    Duplicate,
    /// It comes after the next one.
    Reorder,
    /// One of its bytes is another.
    Corrupt {
        /// Which one.
        at: usize,
        /// What it is now.
        byte: u8,
    },
    /// Only so many bytes of it come.
    Truncate(usize),
    /// Another line comes before it.
    Noise(&'static str),
    /// It is lost, and the connection breaks.
    Cut,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::None => f.write_str("passes"),
            Fault::Delay(time) => write!(f, "comes {time:?} later"),
            Fault::Drop => f.write_str("is lost"),
            Fault::Duplicate => f.write_str("comes twice"),
            Fault::Reorder => f.write_str("comes after the next"),
            Fault::Corrupt { at, byte } => write!(f, "has {byte:#04x} at {at}"),
            Fault::Truncate(length) => write!(f, "ends after {length} bytes"),
            Fault::Noise(noise) => write!(f, "comes after the noise {noise:?}"),
            Fault::Cut => f.write_str("is lost as the connection breaks"),
        }
    }
}

/// How many of a thousand messages meet each fault. Together they are 1,000 at most; all others pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of `Fault`, which says what they are")]
pub struct FaultRates {
    pub delay: u16,
    pub drop: u16,
    pub duplicate: u16,
    pub reorder: u16,
    pub corrupt: u16,
    pub truncate: u16,
    pub noise: u16,
    pub cut: u16,
}

impl FaultRates {
    /// No faults, to begin with when a few are wanted.
    pub const NONE: FaultRates =
        FaultRates { delay: 0, drop: 0, duplicate: 0, reorder: 0, corrupt: 0, truncate: 0, noise: 0, cut: 0 };

    pub(super) fn decide(&self, random: &mut Random, length: usize) -> Fault {
        let mut roll = random.below(1_000);
        let mut is = |rate: u16| {
            let hit = roll < usize::from(rate);
            roll = roll.wrapping_sub(usize::from(rate));
            hit
        };
        if is(self.delay) {
            let millis = u64::try_from(1 + random.below(LONGEST_DELAY)).unwrap_or(1);
            return Fault::Delay(Duration::from_millis(millis));
        }
        if is(self.drop) {
            return Fault::Drop;
        }
        if is(self.duplicate) {
            return Fault::Duplicate;
        }
        if is(self.reorder) {
            return Fault::Reorder;
        }
        if is(self.corrupt) && length > 0 {
            let (at, byte) = (random.below(length), random.next().to_le_bytes()[0]);
            // A newline would make two messages of one.
            return Fault::Corrupt { at, byte: if byte == b'\n' { b'#' } else { byte } };
        }
        if is(self.truncate) && length > 0 {
            return Fault::Truncate(random.below(length));
        }
        if is(self.noise) {
            return Fault::Noise(NOISE[random.below(NOISE.len())]);
        }
        if is(self.cut) { Fault::Cut } else { Fault::None }
    }
}

/// Four of five messages pass.
impl Default for FaultRates {
    fn default() -> Self {
        FaultRates {
            delay: 60,
            drop: 20,
            duplicate: 20,
            reorder: 20,
            corrupt: 20,
            truncate: 10,
            noise: 40,
            cut: 10,
        }
    }
}
