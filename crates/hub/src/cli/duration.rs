//! Durations on the command line: `500ms`, `30s`, or a plain number of seconds.

use std::time::Duration;

use linchpin_hub_core::server::TIMEOUT_RANGE_MS;

/// Parses a duration of at least one millisecond.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "" | "s" => Some(1_000),
        "ms" => Some(1),
        _ => None,
    };
    let parsed = number.parse::<u32>().ok().zip(factor).map(|(number, factor)| u64::from(number) * factor);
    let duration = parsed.filter(|millis| *millis > 0).map(Duration::from_millis);
    duration.ok_or_else(|| "must be a duration such as 30s or 500ms; a plain number is in seconds".to_owned())
}

/// Parses the request timeout of a server into milliseconds.
pub(super) fn parse_timeout(text: &str) -> Result<u64, String> {
    let millis = u64::try_from(parse(text)?.as_millis()).unwrap_or(u64::MAX);
    let text = || {
        format!(
            "the timeout must be from {} to {}; a plain number is in seconds",
            format_millis(*TIMEOUT_RANGE_MS.start()),
            format_millis(*TIMEOUT_RANGE_MS.end())
        )
    };
    TIMEOUT_RANGE_MS.contains(&millis).then_some(millis).ok_or_else(text)
}

/// Formats milliseconds as `30s` or `1500ms`.
pub(super) fn format_millis(millis: u64) -> String {
    if millis.is_multiple_of(1_000) { format!("{}s", millis / 1_000) } else { format!("{millis}ms") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_number_is_in_seconds() {
        for (text, millis) in [("30", 30_000), ("30s", 30_000), ("500ms", 500), ("1500ms", 1_500)] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "0", "0ms", "s", "-1", "1.5", "1h", "1 s", "99999999999"] {
            assert!(parse(text).unwrap_err().contains("30s or 500ms"), "{text}");
        }
    }

    #[test]
    fn a_server_has_from_one_second_to_five_minutes() {
        assert_eq!((parse_timeout("1"), parse_timeout("300s")), (Ok(1_000), Ok(300_000)));
        for text in ["999ms", "301", "30000"] {
            let expected = "the timeout must be from 1s to 300s; a plain number is in seconds";
            assert_eq!(parse_timeout(text).unwrap_err(), expected, "{text}");
        }
        assert_eq!((format_millis(30_000), format_millis(1_500)), ("30s".to_owned(), "1500ms".to_owned()));
    }
}
