//! URI templates (RFC 6570): parsing, and matching in linear time without regular expressions. `{name}` matches one
//! path segment, `{+name}` and `{name*}` also match slashes, and `{?a,b}` at the end matches a query.

use std::collections::BTreeMap;

/// Parsed URI template of a resource template, which is matched against URIs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UriTemplate {
    parts: Vec<Part>,
    query: Option<Vec<String>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    Variable { name: String, slashes: bool },
}

impl UriTemplate {
    /// Parses a URI template. Fails if it is malformed or cannot be matched.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut template = UriTemplate { parts: Vec::new(), query: None };
        let mut rest = text;
        while !rest.is_empty() {
            if template.query.is_some() {
                return Err("a query variable {?…} must be the last part of a template".into());
            }
            let literal = rest.find('{').unwrap_or(rest.len());
            if rest[..literal].contains('}') {
                return Err("unmatched }: remove it, or add the opening {".into());
            }
            if literal > 0 {
                template.parts.push(Part::Literal(rest[..literal].to_owned()));
                rest = &rest[literal..];
                continue;
            }
            let end = rest.find('}').ok_or("unmatched {: add the closing }")?;
            template.variable(&rest[1..end])?;
            rest = &rest[end + 1..];
        }
        if template.variables().next().is_none() {
            return Err("the template has no {variable}: register a plain resource instead".into());
        }
        Ok(template)
    }

    fn variable(&mut self, inside: &str) -> Result<(), String> {
        if let Some(names) = inside.strip_prefix('?') {
            self.query = Some(Vec::new());
            for name in names.split(',') {
                let name = self.checked_name(name)?;
                self.query.get_or_insert_default().push(name);
            }
            return Ok(());
        }
        let (name, slashes) = match inside.strip_prefix('+') {
            Some(name) => (name, true),
            None => (inside.strip_suffix('*').unwrap_or(inside), inside.ends_with('*')),
        };
        if matches!(self.parts.last(), Some(Part::Variable { .. })) {
            return Err(format!("{{{inside}}} follows another variable: put text between them"));
        }
        let name = self.checked_name(name)?;
        self.parts.push(Part::Variable { name, slashes });
        Ok(())
    }

    fn checked_name(&self, name: &str) -> Result<String, String> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty() || !name.bytes().all(allowed) {
            return Err(format!("{{{name}}} is not a variable: use {{name}}, {{+name}} or {{?name,name}}"));
        }
        if self.variables().any(|other| other == name) {
            return Err(format!("the variable {{{name}}} occurs twice"));
        }
        Ok(name.to_owned())
    }

    /// Returns the names of all variables of the URI template.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        let path = self.parts.iter().filter_map(|part| match part {
            Part::Variable { name, .. } => Some(&**name),
            Part::Literal(_) => None,
        });
        path.chain(self.query.iter().flatten().map(|name| &**name))
    }

    /// Matches a URI and returns the values of the variables, or `None` if it does not match.
    pub fn matches(&self, uri: &str) -> Option<BTreeMap<String, String>> {
        let mut values = BTreeMap::new();
        let (mut rest, query) = match (&self.query, uri.split_once('?')) {
            (Some(_), Some((path, query))) => (path, Some(query)),
            _ => (uri, None),
        };
        let mut parts = self.parts.iter().peekable();
        while let Some(part) = parts.next() {
            match part {
                Part::Literal(literal) => rest = rest.strip_prefix(literal.as_str())?,
                Part::Variable { name, slashes } => {
                    let after = parts.clone().nth(1);
                    let end = match parts.peek() {
                        // The last literal must end the URI, and may also occur in the value before it.
                        Some(Part::Literal(last)) if after.is_none() => rest.len().checked_sub(last.len())?,
                        Some(Part::Literal(next)) if *slashes => rest.rfind(next.as_str())?,
                        Some(Part::Literal(next)) => rest.find(next.as_str())?,
                        _ => rest.len(),
                    };
                    let value = percent_decode(rest.get(..end)?)?;
                    // A value of one segment must not contain a slash, even if it is percent-encoded.
                    if value.is_empty() || (!slashes && value.contains('/')) {
                        return None;
                    }
                    values.insert(name.clone(), value);
                    rest = &rest[end..];
                }
            }
        }
        for pair in query.into_iter().flat_map(|query| query.split('&')).filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let is_declared = self.query.as_ref()?.iter().any(|declared| declared == name);
            if !is_declared || values.insert(name.to_owned(), percent_decode(value)?).is_some() {
                return None;
            }
        }
        rest.is_empty().then_some(values)
    }
}

fn percent_decode(text: &str) -> Option<String> {
    if !text.contains('%') {
        return Some(text.to_owned());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let digits = after.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn match_uri(template: &str, uri: &str) -> Option<String> {
        let values = UriTemplate::parse(template).unwrap().matches(uri)?;
        Some(values.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn patterns() {
        let cases = [
            ("users://{id}/profile", "users://7/profile", Some("id=7")),
            ("users://{id}/profile", "users://a%20b/profile", Some("id=a b")),
            ("users://{id}/profile", "users://a%2Fb/profile", None),
            ("file:///{+path}", "file:///a%2Fb", Some("path=a/b")),
            ("f:{name}.txt", "f:a.txt.txt", Some("name=a.txt")),
            ("f:{name}.txt", "f:.txt", None),
            ("f:{name}é", "f:aé", Some("name=a")),
            ("a:{x}", "a:%+5", None),
            ("s://find{?q}", "s://find?q=1&q=2", None),
            ("users://{id}/profile", "users://7/x/profile", None),
            ("users://{id}/profile", "users:///profile", None),
            ("users://{id}/profile", "users://7/profile/more", None),
            ("file:///{+path}", "file:///a/b/c.txt", Some("path=a/b/c.txt")),
            ("file:///{path*}", "file:///a/b", Some("path=a/b")),
            ("a:{+path}/end", "a:x/end/y/end", Some("path=x/end/y")),
            ("a:{x}-{y}", "a:1-2-3", Some("x=1 y=2-3")),
            ("s://find{?q,lang}", "s://find?q=a%26b&lang=de", Some("lang=de q=a&b")),
            ("s://find{?q,lang}", "s://find", Some("")),
            ("s://find{?q}", "s://find?other=1", None),
            ("a:{x}", "a:%zz", None),
            ("a:{x}", "a:%ff", None),
        ];
        for (template, uri, expected) in cases {
            assert_eq!(match_uri(template, uri).as_deref(), expected, "{template} {uri}");
        }
    }

    #[test]
    fn templates_that_cannot_be_matched_are_refused_in_words() {
        for (template, word) in [
            ("plain://uri", "no {variable}"),
            ("a:{x", "unmatched {"),
            ("a:x}", "unmatched }"),
            ("a:{x}{y}", "follows another variable"),
            ("a:{x}/{x}", "twice"),
            ("a:{?q,q}", "twice"),
            ("a:{}", "not a variable"),
            ("a:{#x}", "not a variable"),
            ("a:{?q}/x", "last part"),
        ] {
            let error = UriTemplate::parse(template).unwrap_err();
            assert!(error.contains(word), "{template}: {error}");
        }
    }

    proptest! {
        #[test]
        fn what_was_put_in_comes_out(id in "[a-zA-Z0-9_.~-]{1,20}", path in "[a-z/]{1,20}") {
            let values = UriTemplate::parse("x://{id}/at/{+path}").unwrap()
                .matches(&format!("x://{id}/at/{path}")).unwrap();
            prop_assert_eq!(&values["id"], &id);
            prop_assert_eq!(&values["path"], &path);
        }

        #[test]
        fn nothing_panics(template in "[a-z{}+?*,/%:]{0,20}", uri in "[a-z%/?=&:é]{0,30}") {
            if let Ok(template) = UriTemplate::parse(&template) {
                let _ = template.matches(&uri);
            }
        }
    }
}
