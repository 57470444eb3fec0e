//! An object that somebody sent, taken apart member by member.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::text::shortened;

/// How alike two names must be for one to be meant by the other, from 0 to 1.
const ALIKE: f64 = 0.6;

/// The members of an object, each taken once, by those who know what it means.
pub struct Form {
    /// Where it stands in the request: empty, or a name and a dot.
    path: String,
    pub(crate) members: Map<String, Value>,
    /// Every name that was asked for: these are all that there can be.
    known: Vec<&'static str>,
}

impl Form {
    /// Takes an object, and nothing else.
    pub fn new(value: Value) -> Result<Self> {
        match value {
            Value::Object(members) => Ok(Form { path: String::new(), members, known: Vec::new() }),
            _ => Err(Error::invalid("body", "an object is expected")),
        }
    }

    /// Whether a member is there, and says something.
    pub fn has(&self, name: &str) -> bool {
        self.members.get(name).is_some_and(|value| !value.is_null())
    }

    /// An error about one of its members.
    pub fn error(&self, name: &str, text: impl Into<String>) -> Error {
        Error::invalid(format!("{}{name}", self.path), text)
    }

    fn take(&mut self, name: &'static str) -> Option<Value> {
        self.known.push(name);
        self.members.remove(name).filter(|value| !value.is_null())
    }

    /// Whatever it is.
    pub fn value(&mut self, name: &'static str) -> Option<Value> {
        self.take(name)
    }

    /// A text.
    pub fn text(&mut self, name: &'static str, longest: usize) -> Result<Option<String>> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) if is_text(&text, longest) => Ok(Some(text)),
            Some(Value::String(_)) => Err(self.error(name, format!("it has at most {longest} characters"))),
            Some(_) => Err(self.error(name, "it is a text")),
        }
    }

    /// A whole number.
    pub fn number(&mut self, name: &'static str, range: RangeInclusive<u64>) -> Result<Option<u64>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let fits = value.as_u64().filter(|number| range.contains(number));
        let text = || format!("it is a whole number from {} to {}", range.start(), range.end());
        fits.map(Some).ok_or_else(|| self.error(name, text()))
    }

    /// Yes or no.
    pub fn flag(&mut self, name: &'static str) -> Result<Option<bool>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.error(name, "it is `true` or `false`"))
    }

    /// An object within it.
    pub fn object(&mut self, name: &'static str) -> Result<Option<Form>> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Object(members)) => {
                Ok(Some(Form { path: format!("{}{name}.", self.path), members, known: Vec::new() }))
            }
            Some(_) => Err(self.error(name, "it is an object")),
        }
    }

    /// Its members, each of which is an object.
    pub fn objects(self) -> Result<Vec<(String, Form)>> {
        let path = self.path.clone();
        let read = |(name, value): (String, Value)| match value {
            Value::Object(members) => {
                let path = format!("{path}{}.", shortened(&name));
                Ok((name, Form { path, members, known: Vec::new() }))
            }
            _ => Err(Error::invalid(format!("{path}{}", shortened(&name)), "it is an object")),
        };
        self.members.into_iter().map(read).collect()
    }

    /// A list of texts.
    pub fn texts(&mut self, name: &'static str, most: usize, longest: usize) -> Result<Vec<String>> {
        let Some(value) = self.take(name) else { return Ok(Vec::new()) };
        let fits = |value: &Value| value.as_str().filter(|text| is_text(text, longest)).map(str::to_owned);
        let read = value.as_array().filter(|list| list.len() <= most);
        let read = read.and_then(|list| list.iter().map(fits).collect::<Option<Vec<_>>>());
        let text = || format!("it is a list of at most {most} texts of at most {longest} characters each");
        read.ok_or_else(|| self.error(name, text()))
    }

    /// An object of texts.
    pub fn map(
        &mut self,
        name: &'static str,
        most: usize,
        longest: usize,
    ) -> Result<BTreeMap<String, String>> {
        let Some(inner) = self.object(name)? else { return Ok(BTreeMap::new()) };
        if inner.members.len() > most {
            return Err(self.error(name, format!("it has at most {most} members")));
        }
        let read = |(name, value): (&String, &Value)| {
            let text = value.as_str().filter(|text| is_text(text, longest));
            let wrong =
                || inner.error(&shortened(name), format!("it is a text of at most {longest} characters"));
            Ok((name.clone(), text.ok_or_else(wrong)?.to_owned()))
        };
        inner.members.iter().map(read).collect()
    }

    /// There is this one, too, which nobody asked for.
    pub fn knows(&mut self, name: &'static str) -> &Self {
        self.known.push(name);
        self
    }

    /// These do not belong here.
    pub fn refuse(&self, names: &[&str], why: &str) -> Result<()> {
        let found = names.iter().find(|name| self.members.contains_key(**name));
        found.map_or(Ok(()), |name| Err(self.error(name, why)))
    }

    /// Nothing may be left.
    pub fn end(&self) -> Result<()> {
        let Some(name) = self.members.keys().next() else { return Ok(()) };
        let alike = |known: &&'static str| strsim::normalized_damerau_levenshtein(name, known);
        let nearest = self.known.iter().copied().map(|known| (alike(&known), known));
        let nearest = nearest.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(alike, _)| *alike >= ALIKE);
        let advice = nearest.map(|(_, known)| format!(": did you mean `{known}`?")).unwrap_or_default();
        Err(self.error(&shortened(name), format!("there is no such field{advice}")))
    }
}

fn is_text(text: &str, longest: usize) -> bool {
    text.chars().count() <= longest && !text.contains('\0')
}
