//! Parsers from typed text to field values. Errors are written for the user who typed the text.

use serde_json::{Value, json};

use super::field::{AnswerSource, Choice};
use crate::terminal::one_line;

pub(super) fn parse_text(
    typed: &str,
    (least, most): (u64, u64),
    format: Option<&str>,
) -> Result<Value, String> {
    let length = typed.chars().count() as u64;
    if length < least {
        return Err(format!("too short: enter at least {least} characters"));
    }
    if length > most {
        return Err(format!("too long: enter at most {most} characters"));
    }
    let is_date = |text: &str| {
        let parts: Vec<&str> = text.split('-').collect();
        let fits = |(part, length): (&&str, usize)| {
            part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit())
        };
        parts.len() == 3 && parts.iter().zip([4, 2, 2]).all(fits)
    };
    let fits = match format {
        Some("email") => {
            typed.split_once('@').is_some_and(|(name, host)| !name.is_empty() && host.contains('.'))
        }
        Some("uri") => {
            typed.split_once(':').is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty())
        }
        Some("date") => is_date(typed),
        Some("date-time") => {
            typed.split_once(['T', 't']).is_some_and(|(date, time)| is_date(date) && !time.is_empty())
        }
        _ => true,
    };
    match format {
        Some("date") if !fits => Err(format!("{typed} is not a date: write it as 2031-12-24")),
        Some("date-time") if !fits => Err(format!("{typed} is not a time: write it as 2031-12-24T18:30:00Z")),
        Some(format) if !fits => Err(format!("{typed} is not a valid {format}")),
        _ => Ok(json!(typed)),
    }
}

pub(super) fn parse_number(
    typed: &str,
    whole: bool,
    (least, most): (Option<f64>, Option<f64>),
) -> Result<Value, String> {
    let value = match typed.parse::<i64>() {
        Ok(number) => json!(number),
        Err(_) if whole => return Err(format!("{typed} is not an integer")),
        Err(_) => match typed.parse::<f64>() {
            Ok(number) if number.is_finite() => json!(number),
            _ => return Err(format!("{typed} is not a number")),
        },
    };
    let number = value.as_f64().unwrap_or_default();
    match (least, most) {
        (Some(least), _) if number < least => Err(format!("{typed} is too small: enter at least {least}")),
        (_, Some(most)) if number > most => Err(format!("{typed} is too large: enter at most {most}")),
        _ => Ok(value),
    }
}

pub(super) fn parse_choice<'a>(
    choices: &'a [Choice],
    typed: &str,
    from: AnswerSource,
) -> Result<&'a str, String> {
    let place = typed.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    let by_number = || place.and_then(|place| choices.get(place));
    let same = |text: &str| text.to_lowercase() == typed.to_lowercase();
    let by_name = || choices.iter().find(|choice| same(&choice.value) || same(&choice.title));
    let found = match from {
        AnswerSource::Terminal => by_number().or_else(by_name),
        AnswerSource::CommandLine => by_name().or_else(by_number),
    };
    let names = || choices.iter().map(|choice| one_line(&choice.value)).collect::<Vec<_>>().join(", ");
    found.map(|choice| &*choice.value).ok_or_else(|| match from {
        AnswerSource::Terminal => {
            format!("{typed} is not one of the choices: enter a number from 1 to {}", choices.len())
        }
        AnswerSource::CommandLine => format!("{typed} is not one of {}", names()),
    })
}

pub(super) fn parse_choices(
    choices: &[Choice],
    typed: &str,
    (least, most): (u64, u64),
    from: AnswerSource,
) -> Result<Value, String> {
    let mut values: Vec<&str> = Vec::new();
    for part in typed.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let value = parse_choice(choices, part, from)?;
        if !values.contains(&value) {
            values.push(value);
        }
    }
    match values.len() as u64 {
        count if count < least => Err(format!("too few: select at least {least}")),
        count if count > most => Err(format!("too many: select at most {most}")),
        _ => Ok(json!(values)),
    }
}
