//! Conversion of the configuration file from TOML to JSON values, and lookup of the position of a field.

use std::ops::Range;

use serde_json::{Map, Value};
use toml_edit::{Item, Key, TableLike, Value as Toml};

/// Value of the configuration file that TOML allows and JSON does not: its key, and what to write instead.
pub(super) struct UnsupportedValue<'a> {
    pub(super) key: &'a Key,
    pub(super) advice: &'static str,
}

/// Converts a TOML table to a JSON object.
pub(super) fn to_object(table: &dyn TableLike) -> Result<Map<String, Value>, UnsupportedValue<'_>> {
    let read = |(name, _): (&str, _)| {
        let (key, item) = table.get_key_value(name)?;
        Some(item_value(key, item).map(|value| (name.to_owned(), value)))
    };
    table.iter().filter_map(read).collect()
}

fn item_value<'a>(key: &'a Key, item: &'a Item) -> Result<Value, UnsupportedValue<'a>> {
    match item {
        Item::None => Ok(Value::Null),
        Item::Value(value) => scalar_value(key, value),
        Item::Table(table) => to_object(table).map(Value::Object),
        Item::ArrayOfTables(tables) => {
            tables.iter().map(|table| to_object(table).map(Value::Object)).collect()
        }
    }
}

fn scalar_value<'a>(key: &'a Key, value: &'a Toml) -> Result<Value, UnsupportedValue<'a>> {
    let foreign = |advice| UnsupportedValue { key, advice };
    match value {
        Toml::String(text) => Ok(text.value().as_str().into()),
        Toml::Integer(number) => Ok((*number.value()).into()),
        Toml::Float(number) => serde_json::Number::from_f64(*number.value())
            .map(Value::Number)
            .ok_or_else(|| foreign("must be a finite number")),
        Toml::Boolean(flag) => Ok((*flag.value()).into()),
        Toml::Datetime(_) => Err(foreign("dates are not supported: quote the value to make it a string")),
        Toml::Array(list) => list.iter().map(|value| scalar_value(key, value)).collect(),
        Toml::InlineTable(table) => to_object(table).map(Value::Object),
    }
}

/// Finds the position of a field's key, or of the innermost existing table on its path. Names in the path are separated
/// by dots and may contain dots.
pub(super) fn find_position(table: &dyn TableLike, path: &str) -> Option<Range<usize>> {
    let match_key = |(name, item): (&str, _)| {
        let rest = path.strip_prefix(name)?;
        let rest = if rest.is_empty() { rest } else { rest.strip_prefix('.')? };
        Some((name.len(), table.key(name)?, item, rest.to_owned()))
    };
    let (_, key, item, rest): (_, &Key, &Item, _) =
        table.iter().filter_map(match_key).max_by_key(|found| found.0)?;
    let inner =
        item.as_table_like().filter(|_| !rest.is_empty()).and_then(|table| find_position(table, &rest));
    inner.or_else(|| key.span())
}
