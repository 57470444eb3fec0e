//! Reader of a JSON object, member by member. Unknown members are rejected with a suggestion.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::text::shorten;

/// Minimum similarity, from 0 to 1, of an unknown name to the suggested one.
const MIN_SIMILARITY: f64 = 0.6;
/// Former names of members, with the current name that is suggested in their place.
const FORMER_NAMES: [(&str, &str); 1] = [("calls_at_once", "max_concurrent_calls")];

/// Reader of a JSON object that takes each member once and rejects those that are left over.
pub struct ObjectReader {
    /// Prefix of field names in errors: empty, or the path of the object and a dot.
    path: String,
    pub(crate) members: Map<String, Value>,
    /// Names of all members that the object may have, for the error of an unknown one.
    accepted: Vec<&'static str>,
}

impl ObjectReader {
    /// Creates a reader for the members of a JSON object. Fails if the value is not an object.
    pub fn new(value: Value) -> Result<Self> {
        match value {
            Value::Object(members) => Ok(ObjectReader { path: String::new(), members, accepted: Vec::new() }),
            _ => Err(Error::invalid("body", "must be an object")),
        }
    }

    /// Returns whether a member of the object is present and not `null`.
    pub fn has(&self, name: &str) -> bool {
        self.members.get(name).is_some_and(|value| !value.is_null())
    }

    /// Creates an error about a member of the object that is read.
    pub fn error(&self, name: &str, text: impl Into<String>) -> Error {
        Error::invalid(format!("{}{name}", self.path), text)
    }

    fn take(&mut self, name: &'static str) -> Option<Value> {
        self.accepted.push(name);
        self.members.remove(name).filter(|value| !value.is_null())
    }

    /// Takes a member of any type from the object.
    pub fn value(&mut self, name: &'static str) -> Option<Value> {
        self.take(name)
    }

    /// Takes a string from the object, with a maximum length in characters and without NUL characters.
    pub fn string(&mut self, name: &'static str, max_len: usize) -> Result<Option<String>> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) if is_valid_string(&text, max_len) => Ok(Some(text)),
            Some(Value::String(_)) => {
                Err(self
                    .error(name, format!("must have at most {max_len} characters, without NUL characters")))
            }
            Some(_) => Err(self.error(name, "must be a string")),
        }
    }

    /// Takes an integer in a range from the object.
    pub fn number(&mut self, name: &'static str, range: RangeInclusive<u64>) -> Result<Option<u64>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let in_range = value.as_u64().filter(|number| range.contains(number));
        let text = || format!("must be an integer from {} to {}", range.start(), range.end());
        in_range.map(Some).ok_or_else(|| self.error(name, text()))
    }

    /// Takes the boolean member `name` from the object.
    pub fn boolean(&mut self, name: &'static str) -> Result<Option<bool>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.error(name, "must be true or false"))
    }

    /// Takes the member `name`, which must be an object.
    pub fn object(&mut self, name: &'static str) -> Result<Option<ObjectReader>> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Object(members)) => Ok(Some(ObjectReader {
                path: format!("{}{name}.", self.path),
                members,
                accepted: Vec::new(),
            })),
            Some(_) => Err(self.error(name, "must be an object")),
        }
    }

    /// Takes all members of the object, each of which must be an object.
    pub fn objects(self) -> Result<Vec<(String, ObjectReader)>> {
        let path = self.path.clone();
        let read = |(name, value): (String, Value)| match value {
            Value::Object(members) => {
                let path = format!("{path}{}.", shorten(&name));
                Ok((name, ObjectReader { path, members, accepted: Vec::new() }))
            }
            _ => Err(Error::invalid(format!("{path}{}", shorten(&name)), "must be an object")),
        };
        self.members.into_iter().map(read).collect()
    }

    /// Takes a list of strings from the object, with a maximum number of strings and of characters in each.
    pub fn strings(&mut self, name: &'static str, max_items: usize, max_len: usize) -> Result<Vec<String>> {
        let Some(value) = self.take(name) else { return Ok(Vec::new()) };
        let valid_string =
            |value: &Value| value.as_str().filter(|text| is_valid_string(text, max_len)).map(str::to_owned);
        let read = value.as_array().filter(|list| list.len() <= max_items);
        let read = read.and_then(|list| list.iter().map(valid_string).collect::<Option<Vec<_>>>());
        let text =
            || format!("must be a list of at most {max_items} strings of at most {max_len} characters each");
        read.ok_or_else(|| self.error(name, text()))
    }

    /// Takes an object of strings from the object, with a maximum number of members and of characters in each.
    pub fn string_map(
        &mut self,
        name: &'static str,
        max_items: usize,
        max_len: usize,
    ) -> Result<BTreeMap<String, String>> {
        let Some(inner) = self.object(name)? else { return Ok(BTreeMap::new()) };
        if inner.members.len() > max_items {
            return Err(self.error(name, format!("must have at most {max_items} members")));
        }
        let read = |(name, value): (&String, &Value)| {
            let text = value.as_str().filter(|text| is_valid_string(text, max_len));
            let invalid =
                || inner.error(&shorten(name), format!("must be a string of at most {max_len} characters"));
            Ok((name.clone(), text.ok_or_else(invalid)?.to_owned()))
        };
        inner.members.iter().map(read).collect()
    }

    /// Accepts a further name, so that it can be suggested for an unknown one.
    pub fn also_accepts(&mut self, name: &'static str) -> &Self {
        self.accepted.push(name);
        self
    }

    /// Fails with `reason` if one of these members is present.
    pub fn reject_fields(&self, names: &[&str], reason: &str) -> Result<()> {
        let found = names.iter().find(|name| self.members.contains_key(**name));
        found.map_or(Ok(()), |name| Err(self.error(name, reason)))
    }

    /// Fails if a member was not taken, and suggests its current or a similar name.
    pub fn finish(&self) -> Result<()> {
        let Some(name) = self.members.keys().next() else { return Ok(()) };
        let similarity = |field: &&'static str| strsim::normalized_damerau_levenshtein(name, field);
        let nearest = self.accepted.iter().copied().map(|field| (similarity(&field), field));
        let nearest = nearest
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY);
        let current = FORMER_NAMES.iter().find(|(former, _)| former == name).map(|(_, current)| *current);
        let suggested = current
            .filter(|current| self.accepted.contains(current))
            .or_else(|| nearest.map(|(_, field)| field));
        let advice = suggested.map(|field| format!(": did you mean `{field}`?")).unwrap_or_default();
        Err(self.error(&shorten(name), format!("unknown field{advice}")))
    }
}

fn is_valid_string(text: &str, max_len: usize) -> bool {
    text.chars().count() <= max_len && !text.contains('\0')
}
