//! Parsers for the options `--args` and `--answer` of `linchpin call`.

use std::io;

use linchpin::server::web::{Limits, check_json};
use linchpin_hub_core::number::find_wide_integer;
use serde_json::{Map, Value};

use crate::blocking_input::{self, read_on_thread};
use crate::error::CliError;

/// Reads the arguments of a call: inline JSON, `@file`, or `-` for standard input.
pub(crate) async fn read(argument: &str) -> Result<Map<String, Value>, CliError> {
    let (source, text) = if argument == "-" {
        let read = read_on_thread(|| io::read_to_string(io::stdin())).await;
        let text =
            read.map_err(|error| CliError::usage(format!("--args: failed to read standard input: {error}")))?;
        ("--args from standard input".to_owned(), text)
    } else if let Some(path) = argument.strip_prefix('@') {
        let text = blocking_input::read_file(path)
            .await
            .map_err(|error| CliError::usage(format!("--args: failed to read {path}: {error}")))?;
        (format!("--args from {path}"), text)
    } else {
        ("--args".to_owned(), argument.to_owned())
    };
    check_json(&text, Limits::default())
        .map_err(|error| CliError::usage(format!("{source}: unsupported JSON: {error}")))?;
    if let Some(number) = find_wide_integer(&text) {
        let number = crate::terminal::truncate(number, 60);
        return Err(CliError::usage(format!(
            "{source}: the number {number} has more than 64 bits and would be changed: pass it as a string, if the \
             tool accepts one"
        )));
    }
    match serde_json::from_str(&text) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(other) => {
            let other = crate::terminal::truncate(&other.to_string(), 60);
            Err(CliError::usage(format!(
                r#"{source}: must be a JSON object such as {{"name": "value"}}, not {other}"#
            )))
        }
        Err(error) => Err(CliError::usage(format!("{source}: invalid JSON: {error}"))),
    }
}

/// Parses the `field=value` of an `--answer` option.
pub(crate) fn parse_answer(argument: &str) -> Result<(String, String), String> {
    let (field, value) = argument.split_once('=').ok_or("must have the form field=value")?;
    Ok((field.trim().to_owned(), value.to_owned()))
}
