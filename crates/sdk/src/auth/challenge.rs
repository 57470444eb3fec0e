//! Parser of `WWW-Authenticate` challenges (RFC 9110 section 11.6.1, RFC 6750 section 3, RFC 9728 section 5.1).

use super::scopes::Scopes;

/// Maximum number of bytes read from a `WWW-Authenticate` header.
const MAX_HEADER_LEN: usize = 8 << 10;
/// Maximum number of challenges in a `WWW-Authenticate` header, and of parameters of each.
const MAX_CHALLENGES: usize = 32;

/// Parsed `WWW-Authenticate` challenge of a server that requires authentication or more scopes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Challenge {
    /// URL of the protected resource metadata.
    pub resource_metadata: Option<String>,
    /// Scopes that the rejected request requires, from the challenge.
    pub scope: Option<Scopes>,
    /// Error code, such as `invalid_token` or `insufficient_scope`.
    pub error: Option<String>,
    /// Human-readable error text of the server; it is untrusted.
    pub error_description: Option<String>,
    /// Whether the server requests tokens that are bound to a key, by a `DPoP` challenge (RFC 9449).
    pub dpop: bool,
}

impl Challenge {
    /// Parses the values of `WWW-Authenticate`. Other schemes and malformed parameters are ignored.
    pub fn parse<'a>(headers: impl IntoIterator<Item = &'a str>) -> Self {
        let mut found = Challenge::default();
        for header in headers {
            for (scheme, parameters) in challenges(header) {
                let dpop = scheme.eq_ignore_ascii_case("dpop");
                if dpop || scheme.eq_ignore_ascii_case("bearer") {
                    found.merge(dpop, parameters);
                }
            }
        }
        found
    }

    /// Merges the parameters of one `WWW-Authenticate` challenge into the result; the first value of each wins.
    fn merge(&mut self, dpop: bool, parameters: Vec<(&str, String)>) {
        self.dpop |= dpop;
        for (name, value) in parameters {
            let slots = [
                ("resource_metadata", &mut self.resource_metadata),
                ("error", &mut self.error),
                ("error_description", &mut self.error_description),
            ];
            if name.eq_ignore_ascii_case("scope") {
                self.scope.get_or_insert_with(|| Scopes::parse(&value));
            } else if let Some((_, slot)) =
                slots.into_iter().find(|(parameter, _)| parameter.eq_ignore_ascii_case(name))
            {
                slot.get_or_insert(value);
            }
        }
    }

    /// Returns whether the challenge says that the token lacks scopes.
    pub(super) fn is_insufficient_scope(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }
}

/// Splits a `WWW-Authenticate` header into challenges: `scheme param=value, param="value", scheme2 token68, …`.
fn challenges(header: &str) -> Vec<(&str, Vec<(&str, String)>)> {
    let mut all: Vec<(&str, Vec<(&str, String)>)> = Vec::new();
    let mut rest = header.get(..MAX_HEADER_LEN.min(header.len())).unwrap_or_default();
    while all.len() < MAX_CHALLENGES {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let word = token(rest);
        if word.is_empty() {
            break;
        }
        let after = rest[word.len()..].trim_start_matches([' ', '\t']);
        match (parameter_value(after), all.last_mut()) {
            (Some((value, next)), Some((_, parameters))) => {
                if parameters.len() < MAX_CHALLENGES {
                    parameters.push((word, value));
                }
                rest = next;
            }
            (Some((_, next)), None) => rest = next, // a parameter without a scheme
            (None, _) => {
                all.push((word, Vec::new()));
                rest = skip_token68(&rest[word.len()..]);
            }
        }
    }
    all
}

/// Skips the `token68` that some schemes have in place of parameters.
fn skip_token68(rest: &str) -> &str {
    let start = rest.trim_start_matches([' ', '\t']);
    let end = start.find([' ', '\t', ',']).unwrap_or(start.len());
    let word = &start[..end];
    let is_parameter =
        word.trim_end_matches('=').contains('=') || parameter_value(&start[token(start).len()..]).is_some();
    if is_parameter || word.is_empty() { rest } else { &start[end..] }
}

fn token(text: &str) -> &str {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let end = text.bytes().position(|byte| !is_token(byte)).unwrap_or(text.len());
    &text[..end]
}

/// Parses the value after a parameter name; returns it with the rest.
fn parameter_value(after: &str) -> Option<(String, &str)> {
    let rest = after.trim_start_matches([' ', '\t']).strip_prefix('=')?.trim_start_matches([' ', '\t']);
    let Some(quoted) = rest.strip_prefix('"') else {
        // Accepts more than tokens: some servers omit the quotes around URLs.
        let end = rest.find([',', ' ', '\t']).unwrap_or(rest.len());
        return (end > 0).then(|| (rest[..end].to_owned(), &rest[end..]));
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            char => value.push(char),
        }
    }
    None // unterminated
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(header: &str) -> Challenge {
        Challenge::parse([header])
    }

    #[test]
    fn what_servers_say() {
        let full = read(concat!(
            r#"Bearer resource_metadata="https://a/.well-known/x", scope="files:read  files:write", "#,
            r#"error=insufficient_scope, error_description="say \"please\"""#,
        ));
        assert_eq!(full.resource_metadata.as_deref(), Some("https://a/.well-known/x"));
        assert_eq!(full.scope.as_ref().map(Scopes::to_string).as_deref(), Some("files:read files:write"));
        assert_eq!(full.error_description.as_deref(), Some("say \"please\""));
        assert!(full.is_insufficient_scope() && !full.dpop);
        assert_eq!(read("Bearer"), Challenge::default());
        assert_eq!(read("bEARER Error = \"x\"").error.as_deref(), Some("x"));
        assert_eq!(
            read("Bearer resource_metadata=https://a/b").resource_metadata.as_deref(),
            Some("https://a/b")
        );
    }

    #[test]
    fn among_other_schemes() {
        let several =
            read(r#"Basic realm="a, b", Negotiate abc==, DPoP algs="ES256", error="use_dpop_nonce""#);
        assert!(several.dpop);
        assert_eq!(several.error.as_deref(), Some("use_dpop_nonce"));
        assert_eq!(read(r#"Digest error="no", Bearer scope=x"#).error, None);
        let two = Challenge::parse(["Basic", r#"Bearer error="a""#, r#"Bearer error="b", scope="c""#]);
        assert_eq!(
            (two.error.as_deref(), two.scope.map(|scope| scope.to_string())),
            (Some("a"), Some("c".into()))
        );
    }

    #[test]
    fn nonsense_is_not_said() {
        for header in ["", ",,,", "=", "\"", "Bearer scope=\"open", "Bearer =x", "Bearer ,=,", "é", "scope=x"]
        {
            let read = read(header);
            assert_eq!((read.scope, read.error), (None, None), "{header}");
        }
        let long = format!("Bearer {}scope=x", "a=b, ".repeat(100_000));
        assert_eq!(read(&long).scope, None);
    }
}
