//! Placeholders of a transcript and their values in a replay.
//!
//! Request ids, progress tokens, session ids and event ids differ in every run. In a transcript they are `{client 1}`,
//! `{server 1}`, `{token 1}`, `{session 1}` and `{event 1}`.

use std::collections::BTreeMap;

use serde_json::Value;

/// Values of the placeholders in one conversation.
#[derive(Default)]
pub struct Placeholders(BTreeMap<String, Value>);

/// Returns whether a text is a placeholder: a word and a number in braces.
fn is_placeholder(text: &str) -> bool {
    let inner = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    inner.and_then(|inner| inner.split_once(' ')).is_some_and(|(word, number)| {
        word.bytes().all(|byte| byte.is_ascii_lowercase()) && number.parse::<usize>().is_ok()
    })
}

impl Placeholders {
    /// Replaces the placeholders of a recorded value. A placeholder without a value gets a new one.
    pub fn fill(&mut self, recorded: &Value) -> Value {
        match recorded {
            Value::String(text) if is_placeholder(text) => {
                let number: u64 = text.trim_end_matches('}').rsplit(' ').next().unwrap().parse().unwrap();
                let own = if text.starts_with("{client") || text.starts_with("{server") {
                    number.into()
                } else {
                    text.trim_matches(['{', '}']).replace(' ', "-").into()
                };
                self.0.entry(text.clone()).or_insert(own).clone()
            }
            Value::Array(all) => all.iter().map(|one| self.fill(one)).collect(),
            Value::Object(all) => {
                Value::Object(all.iter().map(|(name, one)| (name.clone(), self.fill(one))).collect())
            }
            other => other.clone(),
        }
    }

    /// As [`Self::fill`], for a text that contains a placeholder.
    pub fn fill_text(&mut self, recorded: &str) -> String {
        let Some((before, placeholder, after)) = split(recorded) else { return recorded.to_owned() };
        let filled = self.fill(&placeholder.into());
        format!("{before}{}{after}", filled.as_str().map_or_else(|| filled.to_string(), str::to_owned))
    }

    /// Returns whether a value matches the recorded one. A placeholder without a value takes the actual one.
    pub fn matches(&mut self, recorded: &Value, said: &Value) -> bool {
        match (recorded, said) {
            (Value::String(text), said) if is_placeholder(text) => {
                self.0.entry(text.clone()).or_insert_with(|| said.clone()) == said
            }
            (Value::Array(recorded), Value::Array(said)) => {
                recorded.len() == said.len()
                    && recorded.iter().zip(said).all(|(recorded, said)| self.matches(recorded, said))
            }
            (Value::Object(recorded), Value::Object(said)) => {
                recorded.len() == said.len()
                    && recorded.iter().all(|(name, recorded)| {
                        said.get(name).is_some_and(|said| self.matches(recorded, said))
                    })
            }
            (recorded, said) => recorded == said,
        }
    }

    /// As [`Self::matches`], for a text that contains a placeholder.
    pub fn matches_text(&mut self, recorded: &str, said: &str) -> bool {
        let Some((before, placeholder, after)) = split(recorded) else { return recorded == said };
        let value = said.strip_prefix(before).and_then(|said| said.strip_suffix(after));
        value.is_some_and(|value| self.matches(&placeholder.into(), &value.into()))
    }
}

/// Splits a text at its first placeholder: before, placeholder, after.
fn split(text: &str) -> Option<(&str, &str, &str)> {
    let start = text.find('{')?;
    let end = start + text[start..].find('}')? + 1;
    is_placeholder(&text[start..end]).then(|| (&text[..start], &text[start..end], &text[end..]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_placeholder_stands_for_one_thing_all_the_time() {
        let mut bindings = Placeholders::default();
        let recorded =
            json!({ "id": "{server 1}", "params": { "progressToken": "{token 1}", "text": "{}" } });
        let said = json!({ "id": "abc", "params": { "progressToken": 7, "text": "{}" } });
        assert!(bindings.matches(&recorded, &said));
        assert_eq!(bindings.fill(&recorded), said);
        let other = json!({ "id": "abd", "params": { "progressToken": 7, "text": "{}" } });
        assert!(!bindings.matches(&recorded, &other));
        assert!(!bindings.matches(&recorded, &json!({ "id": "abc" })));
        assert!(bindings.matches_text("/messages?sessionId={session 1}", "/messages?sessionId=0f"));
        assert_eq!(bindings.fill_text("{session 1}"), "0f");
        assert!(!bindings.matches_text("{session 1}", "1f"));
        assert_eq!(bindings.fill(&"{client 3}".into()), 3);
    }
}
