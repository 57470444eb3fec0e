//! One field of an elicitation form: a description of its accepted values, and the validation of an input.

use std::fmt::Write as _;

use linchpin::model::{ElicitSchema, EnumOption, PrimitiveSchema};
use serde_json::{Value, json};

use super::parse::{chosen, number, several, text};
use crate::terminal::one_line;

pub(super) struct Field {
    pub(super) name: String,
    /// Title from the schema, or the name.
    pub(super) label: String,
    pub(super) about: String,
    pub(super) required: bool,
    /// Value used for an empty input.
    pub(super) default: Option<Value>,
    pub(super) kind: Kind,
}

pub(super) enum Kind {
    Text { least: u64, most: u64, format: Option<String> },
    Number { whole: bool, least: Option<f64>, most: Option<f64> },
    YesNo,
    One(Vec<Choice>),
    Several { choices: Vec<Choice>, least: u64, most: u64 },
}

pub(super) struct Choice {
    pub(super) value: String,
    pub(super) title: String,
}

/// Origin of an input. At the terminal a number selects a choice by position; on the command line the value of a
/// choice takes precedence.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    Person,
    CommandLine,
}

impl Field {
    pub(super) fn all(form: &ElicitSchema) -> Vec<Field> {
        let required = |name: &String| form.required.as_ref().is_some_and(|names| names.contains(name));
        form.properties.iter().map(|(name, schema)| Field::new(name, schema, required(name))).collect()
    }

    fn new(name: &str, schema: &Value, required: bool) -> Field {
        // A field of an unknown type is treated as text.
        let schema: PrimitiveSchema = serde_json::from_value(schema.clone()).unwrap_or_default();
        let label = one_line(schema.title.as_deref().unwrap_or(name));
        let about = one_line(schema.description.as_deref().unwrap_or_default());
        let default = schema.default.clone().filter(|default| !default.is_null());
        Field { name: name.to_owned(), label, about, required, default, kind: Kind::of(schema) }
    }

    /// Describes the accepted values.
    pub(super) fn takes(&self) -> String {
        let between = |least: Option<String>, most: Option<String>| match (least, most) {
            (Some(least), Some(most)) => format!(" from {least} to {most}"),
            (Some(least), None) => format!(", at least {least}"),
            (None, Some(most)) => format!(", at most {most}"),
            (None, None) => String::new(),
        };
        let text = match &self.kind {
            Kind::Text { least, most, format } => {
                let kind = format.as_deref().unwrap_or("text");
                let mut text = one_line(kind);
                if *least > 0 {
                    let _ = write!(text, ", at least {least} characters");
                }
                if *most < u64::MAX {
                    let _ = write!(text, ", at most {most} characters");
                }
                text
            }
            Kind::Number { whole, least, most } => {
                let kind = if *whole { "integer" } else { "number" };
                format!(
                    "{kind}{}",
                    between(least.map(|least| least.to_string()), most.map(|most| most.to_string()))
                )
            }
            Kind::YesNo => "y or n".into(),
            Kind::One(choices) => format!("a number from 1 to {}", choices.len()),
            Kind::Several { choices, least, most } => {
                let least = (*least > 0).then(|| least.to_string());
                let most = (*most < choices.len() as u64).then(|| most.to_string());
                let least = least.map(|least| format!(", at least {least}")).unwrap_or_default();
                let most = most.map(|most| format!(", at most {most}")).unwrap_or_default();
                format!("numbers from 1 to {}, separated by commas{least}{most}", choices.len())
            }
        };
        if self.required || self.default.is_some() { text } else { format!("{text}, optional") }
    }

    pub(super) fn choices(&self) -> &[Choice] {
        match &self.kind {
            Kind::One(choices) | Kind::Several { choices, .. } => choices,
            _ => &[],
        }
    }

    /// Formats a value of this field the way a user would type it.
    pub(super) fn typed(&self, value: &Value) -> String {
        let number = |value: &Value| {
            let place = self.choices().iter().position(|choice| value == &*choice.value);
            place.map(|place| (place + 1).to_string())
        };
        match value {
            Value::Bool(yes) => if *yes { "y" } else { "n" }.into(),
            Value::Array(values) => values.iter().filter_map(number).collect::<Vec<_>>().join(","),
            Value::String(text) => number(value).unwrap_or_else(|| one_line(text)),
            other => other.to_string(),
        }
    }

    /// Parses an input. `None` omits an optional field; an error says why the input is invalid.
    pub(super) fn parse(&self, typed: &str, from: From) -> Result<Option<Value>, String> {
        if typed.is_empty() && from == From::Person {
            return match &self.default {
                Some(default) => Ok(Some(default.clone())),
                None if self.required => Err("a value is required".into()),
                None => Ok(None),
            };
        }
        let value = match &self.kind {
            Kind::Text { least, most, format } => text(typed, (*least, *most), format.as_deref())?,
            Kind::Number { whole, least, most } => number(typed, *whole, (*least, *most))?,
            Kind::YesNo => match &*typed.to_lowercase() {
                "y" | "yes" | "true" => json!(true),
                "n" | "no" | "false" => json!(false),
                _ => return Err(format!("{typed} is not valid: enter y or n")),
            },
            Kind::One(choices) => json!(chosen(choices, typed, from)?),
            Kind::Several { choices, least, most } => several(choices, typed, (*least, *most), from)?,
        };
        Ok(Some(value))
    }
}

impl Kind {
    fn of(schema: PrimitiveSchema) -> Kind {
        let titled = |options: Vec<EnumOption>| -> Vec<Choice> {
            let choice = |option: EnumOption| Choice { value: option.value, title: one_line(&option.title) };
            options.into_iter().map(choice).collect()
        };
        let plain = |values: Vec<String>, names: Option<Vec<String>>| -> Vec<Choice> {
            let mut names = names.unwrap_or_default().into_iter();
            let choice =
                |value: String| Choice { title: one_line(&names.next().unwrap_or(value.clone())), value };
            values.into_iter().map(choice).collect()
        };
        if let Some(options) = schema.one_of {
            return Kind::One(titled(options));
        }
        if let Some(values) = schema.choices {
            return Kind::One(plain(values, schema.choice_names));
        }
        let bound = |bound: Option<Value>| bound.as_ref().and_then(Value::as_f64);
        match &*schema.kind {
            "integer" | "number" => Kind::Number {
                whole: schema.kind == "integer",
                least: bound(schema.minimum),
                most: bound(schema.maximum),
            },
            "boolean" => Kind::YesNo,
            "array" => {
                let items = schema.items.map(|items| match (items.any_of, items.choices) {
                    (Some(options), _) => titled(options),
                    (None, values) => plain(values.unwrap_or_default(), None),
                });
                let (least, most) = (schema.min_items.unwrap_or(0), schema.max_items.unwrap_or(u64::MAX));
                Kind::Several { choices: items.unwrap_or_default(), least, most }
            }
            _ => Kind::Text {
                least: schema.min_length.unwrap_or(0),
                most: schema.max_length.unwrap_or(u64::MAX),
                format: schema.format,
            },
        }
    }
}
