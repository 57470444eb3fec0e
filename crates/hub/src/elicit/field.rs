//! One field of an elicitation form: a description of its accepted values, and the validation of an input.

use std::fmt::Write as _;

use linchpin::model::{ElicitSchema, EnumOption, PrimitiveSchema};
use serde_json::{Value, json};

use super::parse::{parse_choice, parse_choices, parse_number, parse_text};
use crate::terminal::one_line;

pub(super) struct Field {
    pub(super) name: String,
    /// Label of the form field: its title, or its name.
    pub(super) label: String,
    pub(super) description: String,
    pub(super) required: bool,
    /// Value of the form field that is used for an empty input.
    pub(super) default: Option<Value>,
    pub(super) kind: FieldKind,
}

pub(super) enum FieldKind {
    Text { min: u64, max: u64, format: Option<String> },
    Number { is_integer: bool, min: Option<f64>, max: Option<f64> },
    Boolean,
    SingleChoice(Vec<Choice>),
    MultipleChoice { choices: Vec<Choice>, min: u64, max: u64 },
}

pub(super) struct Choice {
    pub(super) value: String,
    pub(super) title: String,
}

/// Where the value of an elicitation field was typed: at the terminal, or on the command line. At the terminal a number
/// selects a choice by position; on the command line the value of a choice takes precedence.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum InputSource {
    Terminal,
    CommandLine,
}

impl Field {
    pub(super) fn from_form(form: &ElicitSchema) -> Vec<Field> {
        let required = |name: &String| form.required.as_ref().is_some_and(|names| names.contains(name));
        form.properties.iter().map(|(name, schema)| Field::new(name, schema, required(name))).collect()
    }

    fn new(name: &str, schema: &Value, required: bool) -> Field {
        // A field of an unknown type is treated as text.
        let schema: PrimitiveSchema = serde_json::from_value(schema.clone()).unwrap_or_default();
        let label = one_line(schema.title.as_deref().unwrap_or(name));
        let description = one_line(schema.description.as_deref().unwrap_or_default());
        let default = schema.default.clone().filter(|default| !default.is_null());
        Field {
            name: name.to_owned(),
            label,
            description,
            required,
            default,
            kind: FieldKind::from_schema(schema),
        }
    }

    /// Describes the accepted values of a form field.
    pub(super) fn describe_values(&self) -> String {
        let format_range = |min: Option<String>, max: Option<String>| match (min, max) {
            (Some(min), Some(max)) => format!(" from {min} to {max}"),
            (Some(min), None) => format!(", at least {min}"),
            (None, Some(max)) => format!(", at most {max}"),
            (None, None) => String::new(),
        };
        let text = match &self.kind {
            FieldKind::Text { min, max, format } => {
                let kind = format.as_deref().unwrap_or("text");
                let mut text = one_line(kind);
                if *min > 0 {
                    let _ = write!(text, ", at least {min} characters");
                }
                if *max < u64::MAX {
                    let _ = write!(text, ", at most {max} characters");
                }
                text
            }
            FieldKind::Number { is_integer, min, max } => {
                let kind = if *is_integer { "integer" } else { "number" };
                format!(
                    "{kind}{}",
                    format_range(min.map(|min| min.to_string()), max.map(|max| max.to_string()))
                )
            }
            FieldKind::Boolean => "y or n".into(),
            FieldKind::SingleChoice(choices) => format!("a number from 1 to {}", choices.len()),
            FieldKind::MultipleChoice { choices, min, max } => {
                let min = (*min > 0).then(|| min.to_string());
                let max = (*max < choices.len() as u64).then(|| max.to_string());
                let min = min.map(|min| format!(", at least {min}")).unwrap_or_default();
                let max = max.map(|max| format!(", at most {max}")).unwrap_or_default();
                format!("numbers from 1 to {}, separated by commas{min}{max}", choices.len())
            }
        };
        if self.required || self.default.is_some() { text } else { format!("{text}, optional") }
    }

    pub(super) fn choices(&self) -> &[Choice] {
        match &self.kind {
            FieldKind::SingleChoice(choices) | FieldKind::MultipleChoice { choices, .. } => choices,
            _ => &[],
        }
    }

    /// Formats a value of this field the way a user would type it.
    pub(super) fn format_value(&self, value: &Value) -> String {
        let number = |value: &Value| {
            let index = self.choices().iter().position(|choice| value == &*choice.value);
            index.map(|index| (index + 1).to_string())
        };
        match value {
            Value::Bool(flag) => if *flag { "y" } else { "n" }.into(),
            Value::Array(values) => values.iter().filter_map(number).collect::<Vec<_>>().join(","),
            Value::String(text) => number(value).unwrap_or_else(|| one_line(text)),
            other => other.to_string(),
        }
    }

    /// Parses the text that a user entered for this field. `None` omits an optional field; an error says why the input
    /// is invalid.
    pub(super) fn parse(&self, text: &str, from: InputSource) -> Result<Option<Value>, String> {
        if text.is_empty() && from == InputSource::Terminal {
            return match &self.default {
                Some(default) => Ok(Some(default.clone())),
                None if self.required => Err("a value is required".into()),
                None => Ok(None),
            };
        }
        let value = match &self.kind {
            FieldKind::Text { min, max, format } => parse_text(text, (*min, *max), format.as_deref())?,
            FieldKind::Number { is_integer, min, max } => parse_number(text, *is_integer, (*min, *max))?,
            FieldKind::Boolean => match &*text.to_lowercase() {
                "y" | "yes" | "true" => json!(true),
                "n" | "no" | "false" => json!(false),
                _ => return Err(format!("{text} is not valid: enter y or n")),
            },
            FieldKind::SingleChoice(choices) => json!(parse_choice(choices, text, from)?),
            FieldKind::MultipleChoice { choices, min, max } => {
                parse_choices(choices, text, (*min, *max), from)?
            }
        };
        Ok(Some(value))
    }
}

impl FieldKind {
    fn from_schema(schema: PrimitiveSchema) -> FieldKind {
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
            return FieldKind::SingleChoice(titled(options));
        }
        if let Some(values) = schema.choices {
            return FieldKind::SingleChoice(plain(values, schema.choice_names));
        }
        let bound = |bound: Option<Value>| bound.as_ref().and_then(Value::as_f64);
        match &*schema.kind {
            "integer" | "number" => FieldKind::Number {
                is_integer: schema.kind == "integer",
                min: bound(schema.minimum),
                max: bound(schema.maximum),
            },
            "boolean" => FieldKind::Boolean,
            "array" => {
                let items = schema.items.map(|items| match (items.any_of, items.choices) {
                    (Some(options), _) => titled(options),
                    (None, values) => plain(values.unwrap_or_default(), None),
                });
                let (min, max) = (schema.min_items.unwrap_or(0), schema.max_items.unwrap_or(u64::MAX));
                FieldKind::MultipleChoice { choices: items.unwrap_or_default(), min, max }
            }
            _ => FieldKind::Text {
                min: schema.min_length.unwrap_or(0),
                max: schema.max_length.unwrap_or(u64::MAX),
                format: schema.format,
            },
        }
    }
}
