//! Kinds and rates of the faults that tests inject into messages.

use std::fmt;
use std::time::Duration;

use crate::testing::Random;

/// Maximum delay in milliseconds: below the request timeout, so that many requests succeed.
const MAX_DELAY_MS: usize = 10_000;

/// Lines that a test injects: not messages, responses without a matching request, or an unknown notification.
const NOISE_LINES: [&str; 8] = [
    "",
    "npm warn deprecated something",
    "{",
    "null",
    "[]",
    r#"{"jsonrpc":"2.0","id":null,"result":{}}"#,
    r#"{"jsonrpc":"2.0","id":"nobody's","result":{}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/noise","params":{}}"#,
];

/// Fault that a test injects into one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The message is delivered unchanged.
    None,
    /// The message is delayed, together with all later messages.
    Delay(Duration),
    /// The message is lost.
    Drop,
    /// The message is delivered twice.
    Duplicate,
    /// The message is delivered after the next one.
    Reorder,
    /// One byte of the message is changed.
    Corrupt {
        /// Position of the byte.
        at: usize,
        /// New value of the byte.
        byte: u8,
    },
    /// The message is truncated to this many bytes.
    Truncate(usize),
    /// The message is preceded by this line, which the receiver should ignore or reject.
    Noise(&'static str),
    /// The message is lost, and the connection is cut.
    Cut,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::None => f.write_str("is delivered"),
            Fault::Delay(time) => write!(f, "is delayed by {time:?}"),
            Fault::Drop => f.write_str("is lost"),
            Fault::Duplicate => f.write_str("is delivered twice"),
            Fault::Reorder => f.write_str("is delivered after the next"),
            Fault::Corrupt { at, byte } => write!(f, "has {byte:#04x} at {at}"),
            Fault::Truncate(length) => write!(f, "is truncated to {length} bytes"),
            Fault::Noise(noise) => write!(f, "is preceded by the noise {noise:?}"),
            Fault::Cut => f.write_str("is lost, and the connection is cut"),
        }
    }
}

/// Number of messages in a thousand that get each fault, at most 1,000 in total. All others are delivered unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "named like the variants of `Fault`")]
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
    /// Rates without faults; start from it to set a few.
    pub const NONE: FaultRates =
        FaultRates { delay: 0, drop: 0, duplicate: 0, reorder: 0, corrupt: 0, truncate: 0, noise: 0, cut: 0 };

    pub(super) fn decide(&self, random: &mut Random, length: usize) -> Fault {
        let mut roll = random.next_below(1_000);
        let mut hits = |rate: u16| {
            let hit = roll < usize::from(rate);
            roll = roll.wrapping_sub(usize::from(rate));
            hit
        };
        if hits(self.delay) {
            let millis = u64::try_from(1 + random.next_below(MAX_DELAY_MS)).unwrap_or(1);
            return Fault::Delay(Duration::from_millis(millis));
        }
        if hits(self.drop) {
            return Fault::Drop;
        }
        if hits(self.duplicate) {
            return Fault::Duplicate;
        }
        if hits(self.reorder) {
            return Fault::Reorder;
        }
        if hits(self.corrupt) && length > 0 {
            let (at, byte) = (random.next_below(length), random.next().to_le_bytes()[0]);
            // A newline would split the message.
            return Fault::Corrupt { at, byte: if byte == b'\n' { b'#' } else { byte } };
        }
        if hits(self.truncate) && length > 0 {
            return Fault::Truncate(random.next_below(length));
        }
        if hits(self.noise) {
            return Fault::Noise(NOISE_LINES[random.next_below(NOISE_LINES.len())]);
        }
        if hits(self.cut) { Fault::Cut } else { Fault::None }
    }
}

/// Rates with which four of five messages are delivered unchanged.
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
