//! The head of a `SKILL.md`: where it ends, what it says, and whether two of them say the same.

use linchpin_protocol::model::SkillFrontmatter;
use serde_json::{Number, Value};

use super::yaml;

/// Bytes that a head may have.
const MAX_HEAD: usize = 64 << 10;
const FENCE: &str = "---";

/// Reads the head; the error says what is wrong.
pub(crate) fn parse(text: &str) -> Result<SkillFrontmatter, String> {
    let (head, _) = split(text).ok_or("it does not begin with a head between two lines of `---`")?;
    if head.len() > MAX_HEAD {
        return Err(format!("its head has more than {MAX_HEAD} bytes"));
    }
    let value = yaml::read(head).map_err(|reason| format!("its head cannot be read: {reason}"))?;
    let Value::Object(mut others) = value else { return Err("its head is no mapping".into()) };
    let mut text = |key: &str| match others.shift_remove(key) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text),
        Some(_) => Err(format!("`{key}` in its head is not a text")),
        None => Err(format!("its head has no `{key}`")),
    };
    Ok(SkillFrontmatter { name: text("name")?, description: text("description")?, others })
}

/// What comes after the head.
pub(crate) fn body(text: &str) -> &str {
    split(text).map_or(text, |(_, body)| body)
}

fn split(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (first, rest) = text.split_once('\n')?;
    if first.strip_suffix('\r').unwrap_or(first) != FENCE {
        return None;
    }
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        if at > 0 && line.trim_end_matches(['\n', '\r', ' ', '\t']) == FENCE {
            return Some((&rest[..at], &rest[at + line.len()..]));
        }
        at += line.len();
    }
    None
}

/// Whether two heads say the same. A member that is null says as little as one that is not there.
pub(crate) fn same(one: &SkillFrontmatter, other: &SkillFrontmatter) -> Result<(), String> {
    let differ = |key: &str| format!("`{key}` in its head is not what the entry of the skill says");
    if one.name != other.name {
        return Err(differ("name"));
    }
    if one.description != other.description {
        return Err(differ("description"));
    }
    let null = Value::Null;
    for key in one.others.keys().chain(other.others.keys()) {
        let [one, other] = [one, other].map(|head| head.others.get(key).unwrap_or(&null));
        if !equal(one, other) {
            return Err(differ(key));
        }
    }
    Ok(())
}

/// Equality of what is meant: `1` and `1.0` are one number.
fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || float(one) == float(other),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let in_other =
                |(key, value): (&String, &Value)| other.get(key).is_some_and(|other| equal(value, other));
            one.len() == other.len() && one.iter().all(in_other)
        }
        _ => one == other,
    }
}

/// Bits, so that it can be compared; whole numbers that no float can hold are only equal to themselves.
fn float(number: &Number) -> Option<u64> {
    let exact = number.as_i64().is_none_or(|whole| whole.unsigned_abs() <= 1 << 53)
        && number.as_u64().is_none_or(|whole| whole <= 1 << 53);
    number.as_f64().filter(|_| exact).map(f64::to_bits)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn head(others: &str) -> SkillFrontmatter {
        parse(&format!("---\nname: a\ndescription: b\n{others}---\n")).unwrap()
    }

    #[test]
    fn a_head_is_read_and_what_follows_is_the_body() {
        for text in [
            "---\nname: tidy-up\ndescription: Cleans\nlicense: MIT\n---\nDo it.\n",
            "\u{feff}---\r\nname: tidy-up\r\ndescription: Cleans\r\nlicense: MIT\r\n---  \r\nDo it.\n",
        ] {
            let head = parse(text).unwrap();
            assert_eq!((&*head.name, &*head.description), ("tidy-up", "Cleans"));
            assert_eq!(Value::Object(head.others), json!({"license": "MIT"}));
            assert_eq!(body(text), "Do it.\n");
        }
        assert_eq!(body("---\nname: a\n---"), "");
        assert_eq!(body("no head"), "no head");
    }

    #[test]
    fn a_head_that_is_none_is_refused() {
        for (text, reason) in [
            ("name: a\n", "does not begin with a head"),
            ("---\nname: a\ndescription: b\n", "does not begin with a head"),
            ("---\n---\n", "does not begin with a head"),
            ("---\n- a\n---\n", "its head is no mapping"),
            ("---\nname: a\n---\n", "its head has no `description`"),
            ("---\nname: 5\ndescription: b\n---\n", "`name` in its head is not a text"),
            ("---\nname: a\ndescription: ''\n---\n", "`description` in its head is not a text"),
            ("---\nname: [\n---\n", "its head cannot be read"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        let long = format!("---\nname: a\ndescription: {}\n---\n", "x".repeat(MAX_HEAD));
        assert!(parse(&long).unwrap_err().contains("more than 65536 bytes"));
    }

    #[test]
    fn heads_are_compared_by_what_they_mean() {
        assert_eq!(same(&head("n: 1.0\nm: {a: [2]}\n"), &head("m: {a: [2.0]}\nn: 1\nx: ~\n")), Ok(()));
        for (one, other) in
            [("n: 1\n", "n: 2\n"), ("n: 1\n", "n: '1'\n"), ("n: [1]\n", "n: [1, 1]\n"), ("", "n: {}\n")]
        {
            let error = same(&head(one), &head(other)).unwrap_err();
            assert_eq!(error, "`n` in its head is not what the entry of the skill says");
        }
        assert!(same(&head("n: 9007199254740993\n"), &head("n: 9007199254740992.0\n")).is_err());
        let other = SkillFrontmatter { description: "c".into(), ..head("") };
        assert!(same(&head(""), &other).is_err_and(|error| error.starts_with("`description`")));
    }
}
