//! Numbers with the semantics of JSON Schema: `1` equals `1.0`, and `0.3` is a multiple of `0.1`.

use std::cmp::Ordering;
use std::fmt::{self, Write};

/// Magnitude 2^100, below which integers are stored as `i128`, with room to spare; above it every float is an integer.
const INTEGER_BOUND: f64 = 1_267_650_600_228_229_401_496_703_205_376.0;

/// JSON number as an exact integer or a float, with the precision of `serde_json`. A `Float` is either not an integer
/// or at least [`INTEGER_BOUND`] in magnitude.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    Integer(i128),
    Float(f64),
}

impl Number {
    pub(crate) fn from_json(number: &serde_json::Number) -> Self {
        if let Some(value) = number.as_i64() {
            return Self::Integer(value.into());
        }
        if let Some(value) = number.as_u64() {
            return Self::Integer(value.into());
        }
        Self::from_float(number.as_f64().unwrap_or(f64::INFINITY))
    }

    fn from_float(value: f64) -> Self {
        if value.abs() < INTEGER_BOUND && value.fract() == 0.0 {
            #[expect(clippy::cast_possible_truncation, reason = "the value is an integer below 2^100")]
            return Self::Integer(value as i128);
        }
        Self::Float(value)
    }

    pub(crate) fn is_integer(self) -> bool {
        match self {
            Self::Integer(_) => true,
            Self::Float(value) => value.fract() == 0.0,
        }
    }

    pub(crate) fn is_positive(self) -> bool {
        match self {
            Self::Integer(value) => value > 0,
            Self::Float(value) => value > 0.0,
        }
    }

    /// Compares exactly, also integers that no float can represent with floats.
    pub(crate) fn compare(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Integer(left), Self::Integer(right)) => left.cmp(&right),
            (Self::Float(left), Self::Float(right)) => left.total_cmp(&right),
            (Self::Integer(left), Self::Float(right)) => compare_mixed(left, right),
            (Self::Float(left), Self::Integer(right)) => compare_mixed(right, left).reverse(),
        }
    }

    /// Reports whether this number is a multiple of `divisor`, which is positive. Floats are treated as the decimal
    /// that was written.
    pub(crate) fn is_multiple_of(self, divisor: Self) -> bool {
        if let (Self::Integer(value), Self::Integer(divisor)) = (self, divisor) {
            return value.checked_rem(divisor) == Some(0);
        }
        let (value, divisor) = (self.decimal(), divisor.decimal());
        if value.digits == 0 {
            return true;
        }
        let Some(modulus) = std::num::NonZeroU128::new(divisor.digits.into()) else { return false };
        let Ok(shift) = u32::try_from(value.exponent - divisor.exponent) else {
            // The divisor has trailing zeros that the value must have, too.
            let zeros = value.exponent.abs_diff(divisor.exponent);
            let scale = 10_u128.checked_pow(zeros).and_then(|power| power.checked_mul(modulus.get()));
            return scale.is_some_and(|scale| u128::from(value.digits).is_multiple_of(scale));
        };
        let power = power_of_ten(shift, modulus);
        (u128::from(value.digits) % modulus * power).is_multiple_of(modulus.get())
    }

    fn decimal(self) -> Decimal {
        match self {
            Self::Integer(value) => match u64::try_from(value.unsigned_abs()) {
                Ok(digits) => Decimal { digits, exponent: 0 },
                #[expect(clippy::cast_precision_loss, reason = "an integer this large was a float")]
                Err(_) => Decimal::from_float(value as f64),
            },
            Self::Float(value) => Decimal::from_float(value),
        }
    }
}

fn compare_mixed(integer: i128, float: f64) -> Ordering {
    if float.abs() >= INTEGER_BOUND {
        return if float > 0.0 { Ordering::Less } else { Ordering::Greater };
    }
    // The float is not an integer, so it is greater than its floor.
    #[expect(clippy::cast_possible_truncation, reason = "the value is below 2^100")]
    let floor = float.floor() as i128;
    if integer <= floor { Ordering::Less } else { Ordering::Greater }
}

fn power_of_ten(mut exponent: u32, modulus: std::num::NonZeroU128) -> u128 {
    let (mut power, mut base) = (1 % modulus, 10 % modulus);
    while exponent > 0 {
        if exponent & 1 == 1 {
            power = power * base % modulus;
        }
        base = base * base % modulus;
        exponent >>= 1;
    }
    power
}

/// Shortest decimal that parses to the absolute value of a finite float: `digits` times ten to the power of `exponent`.
#[derive(Debug, PartialEq)]
struct Decimal {
    digits: u64,
    exponent: i32,
}

impl Decimal {
    fn from_float(value: f64) -> Self {
        let mut reader =
            DecimalReader { digits: 0, fraction: 0, exponent: 0, part: Part::Integer, negative: false };
        if !value.is_finite() || write!(reader, "{:e}", value.abs()).is_err() {
            return Self { digits: 1, exponent: i32::MAX / 2 };
        }
        let exponent = if reader.negative { -reader.exponent } else { reader.exponent };
        Self { digits: reader.digits, exponent: exponent - reader.fraction }
    }
}

/// Formatter target that parses the decimal digits of a float as they are written, without a buffer. A float has at
/// most 17 digits.
struct DecimalReader {
    digits: u64,
    fraction: i32,
    exponent: i32,
    part: Part,
    negative: bool,
}

#[derive(PartialEq)]
enum Part {
    Integer,
    Fraction,
    Exponent,
}

impl Write for DecimalReader {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            match byte {
                b'.' => self.part = Part::Fraction,
                b'e' => self.part = Part::Exponent,
                b'-' => self.negative = true,
                b'0'..=b'9' if self.part == Part::Exponent => {
                    self.exponent = self.exponent * 10 + i32::from(byte - b'0');
                }
                b'0'..=b'9' => {
                    let digits = self.digits.checked_mul(10).ok_or(fmt::Error)?;
                    self.digits = digits.checked_add(u64::from(byte - b'0')).ok_or(fmt::Error)?;
                    self.fraction += i32::from(self.part == Part::Fraction);
                }
                _ => return Err(fmt::Error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_str};

    use super::*;

    fn number(text: &str) -> Number {
        match from_str(text).unwrap() {
            Value::Number(number) => Number::from_json(&number),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn order_is_exact() {
        for (left, right) in [
            ("-1e300", "-9223372036854775808"),
            ("-9223372036854775808", "-0.5"),
            ("-1.5", "-1"),
            ("-1", "-0.5"),
            ("0.5", "1"),
            ("9007199254740992", "9007199254740993"),
            ("9007199254740993", "9007199254740994.0"),
            ("18446744073709551614", "18446744073709551615"),
            ("18446744073709551615", "1e20"),
            ("1e30", "1e31"),
            ("1e31", "1e300"),
        ] {
            assert_eq!(number(left).compare(number(right)), Ordering::Less, "{left} {right}");
            assert_eq!(number(right).compare(number(left)), Ordering::Greater, "{right} {left}");
        }
        for (left, right) in [("1", "1.0"), ("0", "-0.0"), ("1e3", "1000"), ("1e20", "100000000000000000000")]
        {
            assert_eq!(number(left).compare(number(right)), Ordering::Equal, "{left} {right}");
        }
    }

    #[test]
    fn multiples_are_those_of_the_decimals_that_were_written() {
        for (value, divisor, expected) in [
            ("10", "5", true),
            ("-10", "5", true),
            ("11", "5", false),
            ("0", "0.1", true),
            ("0.3", "0.1", true),
            ("0.35", "0.1", false),
            ("19.99", "0.01", true),
            ("4.02", "0.01", true),
            ("0.0075", "0.0001", true),
            ("0.00751", "0.0001", false),
            ("1.1", "1", false),
            ("3", "1.5", true),
            ("4", "1.5", false),
            ("1e308", "0.5", true),
            ("1e308", "0.123456789", false),
            ("1e308", "1e-8", true),
            ("1e-300", "1e300", false),
            ("12391239123", "1e-8", true),
            ("18446744073709551615", "5", true),
            ("18446744073709551615", "18446744073709551615", true),
            ("18446744073709551614", "4", false),
            ("9007199254740993", "2", false),
            ("9007199254740993", "0.5", true),
            ("1e20", "3", false),
            ("3e20", "3", true),
            ("3e40", "3e39", true),
        ] {
            assert_eq!(number(value).is_multiple_of(number(divisor)), expected, "{value} of {divisor}");
        }
    }

    #[test]
    fn whole_numbers_have_many_forms() {
        for (text, expected) in
            [("1", true), ("1.0", true), ("-0.0", true), ("1e300", true), ("1.5", false), ("1e-3", false)]
        {
            assert_eq!(number(text).is_integer(), expected, "{text}");
        }
    }

    #[test]
    fn decimals_are_the_shortest() {
        assert_eq!(Decimal::from_float(4.02), Decimal { digits: 402, exponent: -2 });
        assert_eq!(Decimal::from_float(-1e-7), Decimal { digits: 1, exponent: -7 });
        assert_eq!(Decimal::from_float(5e-324), Decimal { digits: 5, exponent: -324 });
        assert_eq!(Decimal::from_float(f64::MAX), Decimal { digits: 17_976_931_348_623_157, exponent: 292 });
    }
}
