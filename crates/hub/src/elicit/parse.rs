//! Parsers from the text that a user typed to values of elicitation fields. Errors are written for the user who typed
//! the text.

use serde_json::{Value, json};

use super::field::{Choice, InputSource};
use crate::terminal::one_line;

pub(super) fn parse_text(input: &str, (min, max): (u64, u64), format: Option<&str>) -> Result<Value, String> {
    let length = input.chars().count() as u64;
    if length < min {
        return Err(format!("too short: enter at least {min} characters"));
    }
    if length > max {
        return Err(format!("too long: enter at most {max} characters"));
    }
    let is_date = |text: &str| {
        let parts: Vec<&str> = text.split('-').collect();
        let is_valid = |(part, length): (&&str, usize)| {
            part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit())
        };
        parts.len() == 3 && parts.iter().zip([4, 2, 2]).all(is_valid)
    };
    let is_valid = match format {
        Some("email") => {
            input.split_once('@').is_some_and(|(name, host)| !name.is_empty() && host.contains('.'))
        }
        Some("uri") => {
            input.split_once(':').is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty())
        }
        Some("date") => is_date(input),
        Some("date-time") => {
            input.split_once(['T', 't']).is_some_and(|(date, time)| is_date(date) && !time.is_empty())
        }
        _ => true,
    };
    match format {
        Some("date") if !is_valid => Err(format!("{input} is not a date: write it as 2031-12-24")),
        Some("date-time") if !is_valid => {
            Err(format!("{input} is not a time: write it as 2031-12-24T18:30:00Z"))
        }
        Some(format) if !is_valid => Err(format!("{input} is not a valid {format}")),
        _ => Ok(json!(input)),
    }
}

pub(super) fn parse_number(
    input: &str,
    is_integer: bool,
    (min, max): (Option<f64>, Option<f64>),
) -> Result<Value, String> {
    let value = match input.parse::<i64>() {
        Ok(number) => json!(number),
        Err(_) if is_integer => return Err(format!("{input} is not an integer")),
        Err(_) => match input.parse::<f64>() {
            Ok(number) if number.is_finite() => json!(number),
            _ => return Err(format!("{input} is not a number")),
        },
    };
    let number = value.as_f64().unwrap_or_default();
    match (min, max) {
        (Some(min), _) if number < min => Err(format!("{input} is too small: enter at least {min}")),
        (_, Some(max)) if number > max => Err(format!("{input} is too large: enter at most {max}")),
        _ => Ok(value),
    }
}

pub(super) fn parse_choice<'a>(
    choices: &'a [Choice],
    input: &str,
    from: InputSource,
) -> Result<&'a str, String> {
    let index = input.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    let by_number = || index.and_then(|index| choices.get(index));
    let is_same_text = |text: &str| text.to_lowercase() == input.to_lowercase();
    let by_name = || choices.iter().find(|choice| is_same_text(&choice.value) || is_same_text(&choice.title));
    let found = match from {
        InputSource::Terminal => by_number().or_else(by_name),
        InputSource::CommandLine => by_name().or_else(by_number),
    };
    let names = || choices.iter().map(|choice| one_line(&choice.value)).collect::<Vec<_>>().join(", ");
    found.map(|choice| &*choice.value).ok_or_else(|| match from {
        InputSource::Terminal => {
            format!("{input} is not one of the choices: enter a number from 1 to {}", choices.len())
        }
        InputSource::CommandLine => format!("{input} is not one of {}", names()),
    })
}

pub(super) fn parse_choices(
    choices: &[Choice],
    input: &str,
    (min, max): (u64, u64),
    from: InputSource,
) -> Result<Value, String> {
    let mut values: Vec<&str> = Vec::new();
    for part in input.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let value = parse_choice(choices, part, from)?;
        if !values.contains(&value) {
            values.push(value);
        }
    }
    match values.len() as u64 {
        count if count < min => Err(format!("too few: select at least {min}")),
        count if count > max => Err(format!("too many: select at most {max}")),
        _ => Ok(json!(values)),
    }
}
