//! What is typed for a tool: its arguments, and answers given beforehand.

use std::io;

use linchpin::server::web::{Limits, check_json};
use linchpin_hub_core::number::too_wide;
use serde_json::{Map, Value};

use crate::apart::{self, apart};
use crate::failure::Failure;

/// The arguments: JSON itself, `@file`, or `-` for standard input.
pub(crate) async fn read(typed: &str) -> Result<Map<String, Value>, Failure> {
    let (source, text) = if typed == "-" {
        let read = apart(|| io::read_to_string(io::stdin())).await;
        let text =
            read.map_err(|error| Failure::usage(format!("--args: standard input cannot be read: {error}")))?;
        ("--args from standard input".to_owned(), text)
    } else if let Some(path) = typed.strip_prefix('@') {
        let text = apart::file(path)
            .await
            .map_err(|error| Failure::usage(format!("--args: {path} cannot be read: {error}")))?;
        (format!("--args from {path}"), text)
    } else {
        ("--args".to_owned(), typed.to_owned())
    };
    check_json(&text, Limits::default())
        .map_err(|error| Failure::usage(format!("{source}: this is no JSON as it is read here: {error}")))?;
    if let Some(number) = too_wide(&text) {
        let number = crate::terminal::shorten(number, 60);
        return Err(Failure::usage(format!(
            "{source}: the number {number} has more than 64 bits and would not arrive as it was typed: write it as a \
             string, if the tool takes one"
        )));
    }
    match serde_json::from_str(&text) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(other) => {
            let other = crate::terminal::shorten(&other.to_string(), 60);
            Err(Failure::usage(format!(
                r#"{source}: arguments are a JSON object like {{"name": "value"}}, not {other}"#
            )))
        }
        Err(error) => Err(Failure::usage(format!("{source}: this is no JSON: {error}"))),
    }
}

/// `field=value`.
pub(crate) fn parse_answer(typed: &str) -> Result<(String, String), String> {
    let (field, value) = typed.split_once('=').ok_or("an answer looks like field=value")?;
    Ok((field.trim().to_owned(), value.to_owned()))
}
