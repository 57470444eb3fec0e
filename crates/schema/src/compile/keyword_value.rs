//! Typed reading of the values of schema keywords, with the reason if the type is wrong.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::error::display_value;
use crate::node::Types;
use crate::number::Number;

pub(super) fn string(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| "must be a string".into())
}

pub(super) fn boolean(value: &Value) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| "must be a boolean".into())
}

pub(super) fn object(value: &Value) -> Result<&Map<String, Value>, String> {
    value.as_object().ok_or_else(|| "must be an object".into())
}

/// Reads the non-negative integer of a schema keyword. Integers that do not fit into `u64` are clamped to its maximum.
pub(super) fn count(value: &Value) -> Result<u64, String> {
    match value {
        Value::Number(number) if Number::from_json(number).is_integer() => match Number::from_json(number) {
            Number::Integer(count @ 0..) => Ok(u64::try_from(count).unwrap_or(u64::MAX)),
            Number::Float(count) if count > 0.0 => Ok(u64::MAX),
            _ => Err("must not be negative".into()),
        },
        _ => Err("must be an integer".into()),
    }
}

/// Reads the array of unique strings of a schema keyword.
pub(super) fn names(value: &Value) -> Result<Vec<Box<str>>, String> {
    let list = value.as_array().ok_or("must be an array")?;
    let names: Option<Vec<&str>> = list.iter().map(Value::as_str).collect();
    let names = names.ok_or("must contain only strings")?;
    let mut seen = HashSet::with_capacity(names.len());
    match names.iter().find(|name| !seen.insert(**name)) {
        Some(double) => Err(format!("contains {double:?} twice")),
        None => Ok(names.into_iter().map(Box::from).collect()),
    }
}

pub(super) fn types(value: &Value) -> Result<Types, String> {
    let named = |value: &Value| {
        let type_bits = value.as_str().and_then(Types::from_name);
        type_bits.ok_or_else(|| format!("{} is not a JSON Schema type", display_value(value)))
    };
    match value {
        Value::Array(list) => {
            names(value)?;
            if list.is_empty() {
                return Err("must contain at least one type".into());
            }
            list.iter().try_fold(Types::NONE, |types, one| Ok(types.union(named(one)?)))
        }
        one => named(one),
    }
}

/// Copies the JSON value of a keyword if it is nested at most `depth` levels.
pub(super) fn value(value: &Value, depth: usize) -> Result<Value, String> {
    fn is_bounded(value: &Value, depth: usize) -> bool {
        match value {
            Value::Array(items) => depth > 0 && items.iter().all(|item| is_bounded(item, depth - 1)),
            Value::Object(members) => {
                depth > 0 && members.values().all(|member| is_bounded(member, depth - 1))
            }
            _ => true,
        }
    }
    if is_bounded(value, depth) {
        Ok(value.clone())
    } else {
        Err(format!("is nested deeper than {depth} levels"))
    }
}
