//! Frontmatter of a `SKILL.md`: parsing and comparison.

use linchpin_protocol::model::SkillFrontmatter;
use serde_json::{Number, Value};

use super::yaml;

/// Maximum size of a frontmatter in bytes.
const MAX_HEAD: usize = 64 << 10;
const FENCE: &str = "---";

/// Parses the frontmatter. The error names the problem.
pub(crate) fn parse(text: &str) -> Result<SkillFrontmatter, String> {
    let (head, _) = split(text).ok_or("it must start with a frontmatter between two lines of `---`")?;
    if head.len() > MAX_HEAD {
        return Err(format!("its frontmatter is larger than {MAX_HEAD} bytes"));
    }
    let value = yaml::read(head).map_err(|reason| format!("its frontmatter cannot be read: {reason}"))?;
    let Value::Object(mut others) = value else { return Err("its frontmatter must be a mapping".into()) };
    let mut text = |key: &str| match others.shift_remove(key) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text),
        Some(_) => Err(format!("`{key}` in its frontmatter must be a non-empty string")),
        None => Err(format!("its frontmatter has no `{key}`")),
    };
    Ok(SkillFrontmatter { name: text("name")?, description: text("description")?, others })
}

/// Returns the text after the frontmatter.
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

/// Checks that two frontmatters are equivalent. A null member equals an absent one.
pub(crate) fn same(one: &SkillFrontmatter, other: &SkillFrontmatter) -> Result<(), String> {
    let differ = |key: &str| format!("`{key}` in its frontmatter differs from the skill entry");
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

/// Compares values semantically: `1` and `1.0` are equal.
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

/// Returns the bits of the float value; integers that no float can represent are equal only to themselves.
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
            ("name: a\n", "must start with a frontmatter"),
            ("---\nname: a\ndescription: b\n", "must start with a frontmatter"),
            ("---\n---\n", "must start with a frontmatter"),
            ("---\n- a\n---\n", "its frontmatter must be a mapping"),
            ("---\nname: a\n---\n", "its frontmatter has no `description`"),
            ("---\nname: 5\ndescription: b\n---\n", "`name` in its frontmatter must be a non-empty string"),
            (
                "---\nname: a\ndescription: ''\n---\n",
                "`description` in its frontmatter must be a non-empty string",
            ),
            ("---\nname: [\n---\n", "its frontmatter cannot be read"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        let long = format!("---\nname: a\ndescription: {}\n---\n", "x".repeat(MAX_HEAD));
        assert!(parse(&long).unwrap_err().contains("larger than 65536 bytes"));
    }

    #[test]
    fn heads_are_compared_by_what_they_mean() {
        assert_eq!(same(&head("n: 1.0\nm: {a: [2]}\n"), &head("m: {a: [2.0]}\nn: 1\nx: ~\n")), Ok(()));
        for (one, other) in
            [("n: 1\n", "n: 2\n"), ("n: 1\n", "n: '1'\n"), ("n: [1]\n", "n: [1, 1]\n"), ("", "n: {}\n")]
        {
            let error = same(&head(one), &head(other)).unwrap_err();
            assert_eq!(error, "`n` in its frontmatter differs from the skill entry");
        }
        assert!(same(&head("n: 9007199254740993\n"), &head("n: 9007199254740992.0\n")).is_err());
        let other = SkillFrontmatter { description: "c".into(), ..head("") };
        assert!(same(&head(""), &other).is_err_and(|error| error.starts_with("`description`")));
    }
}
