//! Reader of a JSON object, member by member. Unknown members are rejected with a suggestion.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::text::shortened;

/// Minimum similarity, from 0 to 1, of an unknown name to the suggested one.
const ALIKE: f64 = 0.6;

/// Members of a JSON object, each taken at most once.
pub struct Form {
    /// Prefix of field names in errors: empty, or the path of the object and a dot.
    path: String,
    pub(crate) members: Map<String, Value>,
    /// Names of all members that are accepted.
    known: Vec<&'static str>,
}

impl Form {
    /// Creates a reader. Fails if the value is not an object.
    pub fn new(value: Value) -> Result<Self> {
        match value {
            Value::Object(members) => Ok(Form { path: String::new(), members, known: Vec::new() }),
            _ => Err(Error::invalid("body", "must be an object")),
        }
    }

    /// Returns whether a member is present and not `null`.
    pub fn has(&self, name: &str) -> bool {
        self.members.get(name).is_some_and(|value| !value.is_null())
    }

    /// Creates an error about a member.
    pub fn error(&self, name: &str, text: impl Into<String>) -> Error {
        Error::invalid(format!("{}{name}", self.path), text)
    }

    fn take(&mut self, name: &'static str) -> Option<Value> {
        self.known.push(name);
        self.members.remove(name).filter(|value| !value.is_null())
    }

    /// Takes a member of any type.
    pub fn value(&mut self, name: &'static str) -> Option<Value> {
        self.take(name)
    }

    /// Takes a string with a maximum length in characters, without NUL characters.
    pub fn text(&mut self, name: &'static str, longest: usize) -> Result<Option<String>> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) if is_text(&text, longest) => Ok(Some(text)),
            Some(Value::String(_)) => {
                Err(self
                    .error(name, format!("must have at most {longest} characters, without NUL characters")))
            }
            Some(_) => Err(self.error(name, "must be a string")),
        }
    }

    /// Takes an integer in a range.
    pub fn number(&mut self, name: &'static str, range: RangeInclusive<u64>) -> Result<Option<u64>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let fits = value.as_u64().filter(|number| range.contains(number));
        let text = || format!("must be an integer from {} to {}", range.start(), range.end());
        fits.map(Some).ok_or_else(|| self.error(name, text()))
    }

    /// Takes a boolean.
    pub fn flag(&mut self, name: &'static str) -> Result<Option<bool>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.error(name, "must be true or false"))
    }

    /// Takes a nested object.
    pub fn object(&mut self, name: &'static str) -> Result<Option<Form>> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Object(members)) => {
                Ok(Some(Form { path: format!("{}{name}.", self.path), members, known: Vec::new() }))
            }
            Some(_) => Err(self.error(name, "must be an object")),
        }
    }

    /// Takes all members, each of which must be an object.
    pub fn objects(self) -> Result<Vec<(String, Form)>> {
        let path = self.path.clone();
        let read = |(name, value): (String, Value)| match value {
            Value::Object(members) => {
                let path = format!("{path}{}.", shortened(&name));
                Ok((name, Form { path, members, known: Vec::new() }))
            }
            _ => Err(Error::invalid(format!("{path}{}", shortened(&name)), "must be an object")),
        };
        self.members.into_iter().map(read).collect()
    }

    /// Takes a list of strings, with a maximum number of strings and of characters in each.
    pub fn texts(&mut self, name: &'static str, most: usize, longest: usize) -> Result<Vec<String>> {
        let Some(value) = self.take(name) else { return Ok(Vec::new()) };
        let fits = |value: &Value| value.as_str().filter(|text| is_text(text, longest)).map(str::to_owned);
        let read = value.as_array().filter(|list| list.len() <= most);
        let read = read.and_then(|list| list.iter().map(fits).collect::<Option<Vec<_>>>());
        let text =
            || format!("must be a list of at most {most} strings of at most {longest} characters each");
        read.ok_or_else(|| self.error(name, text()))
    }

    /// Takes an object of strings, with a maximum number of members and of characters in each.
    pub fn map(
        &mut self,
        name: &'static str,
        most: usize,
        longest: usize,
    ) -> Result<BTreeMap<String, String>> {
        let Some(inner) = self.object(name)? else { return Ok(BTreeMap::new()) };
        if inner.members.len() > most {
            return Err(self.error(name, format!("must have at most {most} members")));
        }
        let read = |(name, value): (&String, &Value)| {
            let text = value.as_str().filter(|text| is_text(text, longest));
            let wrong =
                || inner.error(&shortened(name), format!("must be a string of at most {longest} characters"));
            Ok((name.clone(), text.ok_or_else(wrong)?.to_owned()))
        };
        inner.members.iter().map(read).collect()
    }

    /// Accepts a further name, so that it can be suggested for an unknown one.
    pub fn knows(&mut self, name: &'static str) -> &Self {
        self.known.push(name);
        self
    }

    /// Fails with `why` if one of these members is present.
    pub fn refuse(&self, names: &[&str], why: &str) -> Result<()> {
        let found = names.iter().find(|name| self.members.contains_key(**name));
        found.map_or(Ok(()), |name| Err(self.error(name, why)))
    }

    /// Fails if a member was not taken, and suggests a similar name.
    pub fn end(&self) -> Result<()> {
        let Some(name) = self.members.keys().next() else { return Ok(()) };
        let alike = |known: &&'static str| strsim::normalized_damerau_levenshtein(name, known);
        let nearest = self.known.iter().copied().map(|known| (alike(&known), known));
        let nearest = nearest.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(alike, _)| *alike >= ALIKE);
        let advice = nearest.map(|(_, known)| format!(": did you mean `{known}`?")).unwrap_or_default();
        Err(self.error(&shortened(name), format!("unknown field{advice}")))
    }
}

fn is_text(text: &str, longest: usize) -> bool {
    text.chars().count() <= longest && !text.contains('\0')
}
