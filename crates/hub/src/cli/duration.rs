//! Durations on the command line: `500ms`, `30s`, `15m`, `2h`, or a plain number of seconds.

use std::ops::RangeInclusive;
use std::time::Duration;

use linchpin_hub_core::server::TIMEOUT_RANGE_MS;

/// Parses a duration of at least one millisecond.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "" | "s" => Some(1_000),
        "ms" => Some(1),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let parsed = number.parse::<u32>().ok().zip(factor).map(|(number, factor)| u64::from(number) * factor);
    let duration = parsed.filter(|millis| *millis > 0).map(Duration::from_millis);
    duration.ok_or_else(|| {
        "must be a duration such as 500ms, 30s, 15m or 2h; a plain number is in seconds".to_owned()
    })
}

/// Parses the request timeout of a server into milliseconds.
pub(super) fn parse_timeout(text: &str) -> Result<u64, String> {
    parse_millis(text, &TIMEOUT_RANGE_MS)
}

/// Parses a duration within a range of milliseconds.
pub(super) fn parse_millis(text: &str, range: &RangeInclusive<u64>) -> Result<u64, String> {
    let millis = u64::try_from(parse(text)?.as_millis()).unwrap_or(u64::MAX);
    let text = || {
        format!(
            "must be from {} to {}; a plain number is in seconds",
            format_millis(*range.start()),
            format_millis(*range.end())
        )
    };
    range.contains(&millis).then_some(millis).ok_or_else(text)
}

/// Formats milliseconds in the largest unit without a remainder, up to minutes above five minutes: `30s`, `1500ms`.
pub(super) fn format_millis(millis: u64) -> String {
    match millis {
        _ if !millis.is_multiple_of(1_000) => format!("{millis}ms"),
        _ if millis > 300_000 && millis.is_multiple_of(3_600_000) => format!("{}h", millis / 3_600_000),
        _ if millis > 300_000 && millis.is_multiple_of(60_000) => format!("{}m", millis / 60_000),
        _ => format!("{}s", millis / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_number_is_in_seconds() {
        for (text, millis) in [
            ("30", 30_000),
            ("30s", 30_000),
            ("500ms", 500),
            ("1500ms", 1_500),
            ("15m", 900_000),
            ("2h", 7_200_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "0", "0ms", "s", "-1", "1.5", "1d", "1 s", "99999999999"] {
            assert!(parse(text).unwrap_err().contains("500ms, 30s, 15m or 2h"), "{text}");
        }
    }

    #[test]
    fn a_server_has_from_one_second_to_five_minutes() {
        assert_eq!((parse_timeout("1"), parse_timeout("300s")), (Ok(1_000), Ok(300_000)));
        for text in ["999ms", "301", "30000"] {
            let expected = "must be from 1s to 300s; a plain number is in seconds";
            assert_eq!(parse_timeout(text).unwrap_err(), expected, "{text}");
        }
        for (millis, text) in [
            (30_000, "30s"),
            (1_500, "1500ms"),
            (300_000, "300s"),
            (600_000, "10m"),
            (86_400_000, "24h"),
            (601_000, "601s"),
        ] {
            assert_eq!(format_millis(millis), text);
        }
    }
}
