//! YAML to JSON conversion: one document, the core schema of YAML 1.2, and only values that JSON can express.
//!
//! Anchors, aliases and tags are rejected: no frontmatter needs them, and small texts can expand to huge ones with
//! them.

use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Number, Value};

/// Maximum nesting depth of YAML frontmatter.
const MAX_DEPTH: usize = 32;

/// YAML list or mapping whose end has not been parsed yet.
enum OpenNode {
    List(Vec<Value>),
    /// Mapping, with the key whose value comes next.
    Mapping(Map<String, Value>, Option<String>),
}

/// Parses a YAML document. The error names the problem and its line.
pub(super) fn read(text: &str) -> Result<Value, String> {
    let mut reader = YamlReader::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| error.to_string())?;
        reader.on_event(event).map_err(|reason| format!("{reason}, in line {}", span.start.line()))?;
    }
    Ok(reader.document.unwrap_or(Value::Null))
}

#[derive(Default)]
struct YamlReader {
    open: Vec<OpenNode>,
    document: Option<Value>,
}

impl YamlReader {
    fn on_event(&mut self, event: Event<'_>) -> Result<(), String> {
        match event {
            Event::DocumentStart(_) if self.document.is_some() => {
                Err("only one YAML document is allowed".into())
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => Ok(()),
            Event::Scalar(_, _, 1.., _)
            | Event::SequenceStart(1.., _)
            | Event::MappingStart(1.., _)
            | Event::Alias(_) => Err("anchors and aliases are not allowed".into()),
            Event::Scalar(_, _, _, Some(tag))
            | Event::SequenceStart(_, Some(tag))
            | Event::MappingStart(_, Some(tag)) => Err(format!("the tag `{tag}` is not allowed")),
            Event::Scalar(text, style, ..) => self.scalar(&text, style),
            Event::SequenceStart(..) => self.start_node(OpenNode::List(Vec::new())),
            Event::MappingStart(..) => self.start_node(OpenNode::Mapping(Map::new(), None)),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(OpenNode::List(items)) => self.value(Value::Array(items)),
                Some(OpenNode::Mapping(members, _)) => self.value(Value::Object(members)),
                None => Err("unexpected end of a list or mapping".into()),
            },
        }
    }

    fn start_node(&mut self, open: OpenNode) -> Result<(), String> {
        if matches!(self.open.last(), Some(OpenNode::Mapping(_, None))) {
            return Err("keys must be strings".into());
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(format!("lists and mappings are nested deeper than {MAX_DEPTH} levels"));
        }
        self.open.push(open);
        Ok(())
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle) -> Result<(), String> {
        if let Some(OpenNode::Mapping(members, key @ None)) = self.open.last_mut() {
            if members.contains_key(text) {
                return Err(format!("duplicate key `{text}`"));
            }
            *key = Some(text.to_owned());
            return Ok(());
        }
        let value = if style == ScalarStyle::Plain { parse_plain(text)? } else { text.into() };
        self.value(value)
    }

    fn value(&mut self, value: Value) -> Result<(), String> {
        match self.open.last_mut() {
            None => self.document = Some(value),
            Some(OpenNode::List(items)) => items.push(value),
            Some(OpenNode::Mapping(members, key)) => {
                members.insert(key.take().ok_or("keys must be strings")?, value);
            }
        }
        Ok(())
    }
}

/// Interprets a plain (unquoted) YAML scalar.
fn parse_plain(text: &str) -> Result<Value, String> {
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ => number(text)?.map_or_else(|| text.into(), Value::Number),
    })
}

/// Parses a number, if the text is one. Fails for numbers that JSON cannot express.
fn number(text: &str) -> Result<Option<Number>, String> {
    let invalid = || format!("the number `{text}` cannot be expressed in JSON");
    for (prefix, radix) in [("0o", 8), ("0x", 16)] {
        let digits = text.strip_prefix(prefix);
        if let Some(digits) =
            digits.filter(|digits| all_bytes(digits, |byte| char::from(byte).is_digit(radix)))
        {
            let number = u64::from_str_radix(digits, radix).map_err(|_| invalid())?;
            return Ok(Some(number.into()));
        }
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Err(invalid());
    }
    if !is_decimal(unsigned) {
        return Ok(None);
    }
    let signed = text.strip_prefix('+').unwrap_or(text);
    let integer =
        signed.parse::<i64>().map(Number::from).or_else(|_| signed.parse::<u64>().map(Number::from));
    let number = integer.ok().or_else(|| signed.parse::<f64>().ok().and_then(Number::from_f64));
    number.map(Some).ok_or_else(invalid)
}

fn all_bytes(digits: &str, allowed: impl Fn(u8) -> bool) -> bool {
    !digits.is_empty() && digits.bytes().all(allowed)
}

/// Returns whether a text is digits, optionally with a decimal point and an exponent.
fn is_decimal(text: &str) -> bool {
    let digit = |byte: u8| byte.is_ascii_digit();
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let exponent = exponent.map(|exponent| exponent.strip_prefix(['+', '-']).unwrap_or(exponent));
    let (before, after) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let has_digits = !before.is_empty() || !after.is_empty();
    has_digits
        && before.bytes().all(digit)
        && after.bytes().all(digit)
        && exponent.is_none_or(|exponent| all_bytes(exponent, digit))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn scalars_mean_what_the_core_schema_says() {
        for (text, value) in [
            ("", json!(null)),
            ("~", json!(null)),
            ("True", json!(true)),
            ("yes", json!("yes")),
            ("12", json!(12)),
            ("-3", json!(-3)),
            ("+7", json!(7)),
            ("0x1F", json!(31)),
            ("0o17", json!(15)),
            ("1.5", json!(1.5)),
            (".5e1", json!(5.0)),
            ("1.", json!(1.0)),
            ("18446744073709551615", json!(u64::MAX)),
            ("2024-05-06", json!("2024-05-06")),
            ("1.2.3", json!("1.2.3")),
            ("0x", json!("0x")),
            ("e5", json!("e5")),
            (".", json!(".")),
            ("\"12\"", json!("12")),
            ("'true'", json!("true")),
            ("\"a\\tb\"", json!("a\tb")),
        ] {
            assert_eq!(read(&format!("a: {text}\n")), Ok(json!({ "a": value })), "{text}");
        }
    }

    #[test]
    fn lists_mappings_and_long_texts_nest() {
        let text = "name: x # said\nmetadata:\n  tags: [a, 'b', {c: 1}]\n  list:\n  - one\n  - two: 2\n    three: 3\n\
                    folded: >-\n  first\n  second\nliteral: |\n  first\n  second\n";
        let expected = json!({
            "name": "x",
            "metadata": {"tags": ["a", "b", {"c": 1}], "list": ["one", {"two": 2, "three": 3}]},
            "folded": "first second",
            "literal": "first\nsecond\n",
        });
        assert_eq!(read(text), Ok(expected));
    }

    #[test]
    fn what_json_cannot_say_is_refused() {
        let deep = format!("a: {}1{}", "[".repeat(40), "]".repeat(40));
        for (text, reason) in [
            ("a: &x 1", "anchors and aliases are not allowed, in line 1"),
            ("a: &x [1]\nb: *x", "anchors and aliases are not allowed, in line 1"),
            ("a: !!binary aGk=", "the tag `"),
            ("a: 1\nb: 2\na: 3", "duplicate key `a`, in line 3"),
            ("? [1, 2]\n: 3", "keys must be strings, in line 1"),
            ("a: .inf", "the number `.inf` cannot be expressed in JSON"),
            ("a: 1\n---\nb: 2", "only one YAML document is allowed"),
            (&deep, "nested deeper than 32 levels"),
            ("a: [1", "line"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
