//! Frontmatter of a `SKILL.md`: parsing, and comparison with the skill entry.

use linchpin_protocol::model::SkillFrontmatter;
use serde_json::{Number, Value};

use super::yaml;

/// Maximum size of a frontmatter in bytes.
const MAX_FRONTMATTER_BYTES: usize = 64 << 10;
const FENCE: &str = "---";

/// Parses the frontmatter of a skill. The error names the problem.
pub(crate) fn parse(text: &str) -> Result<SkillFrontmatter, String> {
    let (head, _) = split(text).ok_or("the text must start with a frontmatter between two lines of `---`")?;
    if head.len() > MAX_FRONTMATTER_BYTES {
        return Err(format!("its frontmatter is larger than {MAX_FRONTMATTER_BYTES} bytes"));
    }
    let value = yaml::read(head).map_err(|reason| format!("its frontmatter cannot be read: {reason}"))?;
    let Value::Object(mut others) = value else { return Err("its frontmatter must be a mapping".into()) };
    let mut text = |key: &str| match others.shift_remove(key) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text),
        Some(_) => Err(format!("`{key}` in its frontmatter must be a non-empty string")),
        None => Err(format!("its frontmatter has no `{key}`")),
    };
    Ok(SkillFrontmatter { name: text("name")?, description: text("description")?, other_members: others })
}

/// Returns the text of a `SKILL.md` after its frontmatter.
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

/// Checks that the frontmatter of `SKILL.md` is equivalent to the one in the skill entry. A null member equals an
/// absent one.
pub(crate) fn check_equal(left: &SkillFrontmatter, right: &SkillFrontmatter) -> Result<(), String> {
    let mismatch = |key: &str| format!("`{key}` in its frontmatter differs from the skill entry");
    if left.name != right.name {
        return Err(mismatch("name"));
    }
    if left.description != right.description {
        return Err(mismatch("description"));
    }
    let null = Value::Null;
    for key in left.other_members.keys().chain(right.other_members.keys()) {
        let [left, right] = [left, right].map(|head| head.other_members.get(key).unwrap_or(&null));
        if !equal(left, right) {
            return Err(mismatch(key));
        }
    }
    Ok(())
}

/// Compares values semantically: `1` and `1.0` are equal.
fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left == right || float(left) == float(right),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            let in_other =
                |(key, value): (&String, &Value)| right.get(key).is_some_and(|right| equal(value, right));
            left.len() == right.len() && left.iter().all(in_other)
        }
        _ => left == right,
    }
}

/// Returns the bits of a number as a float, for comparison; `None` for an integer beyond ±2^53, which a float may not
/// represent exactly and which is equal only to itself.
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
            assert_eq!(Value::Object(head.other_members), json!({"license": "MIT"}));
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
        let long = format!("---\nname: a\ndescription: {}\n---\n", "x".repeat(MAX_FRONTMATTER_BYTES));
        assert!(parse(&long).unwrap_err().contains("larger than 65536 bytes"));
    }

    #[test]
    fn heads_are_compared_by_what_they_mean() {
        assert_eq!(check_equal(&head("n: 1.0\nm: {a: [2]}\n"), &head("m: {a: [2.0]}\nn: 1\nx: ~\n")), Ok(()));
        for (left, right) in
            [("n: 1\n", "n: 2\n"), ("n: 1\n", "n: '1'\n"), ("n: [1]\n", "n: [1, 1]\n"), ("", "n: {}\n")]
        {
            let error = check_equal(&head(left), &head(right)).unwrap_err();
            assert_eq!(error, "`n` in its frontmatter differs from the skill entry");
        }
        assert!(check_equal(&head("n: 9007199254740993\n"), &head("n: 9007199254740992.0\n")).is_err());
        let right = SkillFrontmatter { description: "c".into(), ..head("") };
        assert!(check_equal(&head(""), &right).is_err_and(|error| error.starts_with("`description`")));
    }
}
