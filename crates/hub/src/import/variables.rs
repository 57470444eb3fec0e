//! Expansion of the references in client files, such as `${env:NAME}`, `${input:id}` and `${VAR:-default}`, in the
//! syntax of each client. An environment variable is used only if a user has confirmed it for the server that refers to
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{MAIN_SEPARATOR_STR, PathBuf};

use linchpin_hub_core::looks_secret;

use super::formats::Format;
use crate::config::variable;

/// Context for expanding the references of a file.
#[derive(Debug, Clone, Default)]
pub(super) struct Around {
    pub(super) home: Option<PathBuf>,
    /// Project folder of the file, if it has one.
    pub(super) folder: Option<PathBuf>,
    /// Inputs that the client requests from the user when a server starts.
    pub(super) inputs: BTreeMap<String, Input>,
    /// Environment variables that may be read.
    pub(super) readable: Readable,
}

/// Environment variables that the references of a server may read.
#[derive(Debug, Clone, Default)]
pub(super) enum Readable {
    #[default]
    None,
    Only(BTreeSet<String>),
    /// All variables; only to compare a server with the existing one.
    All,
}

impl Readable {
    pub(super) fn has(&self, name: &str) -> bool {
        match self {
            Readable::None => false,
            Readable::Only(names) => names.contains(name),
            Readable::All => true,
        }
    }
}

/// Input that a client requests from the user (`inputs` of VS Code).
#[derive(Debug, Clone)]
pub(super) struct Input {
    pub(super) is_password: bool,
    pub(super) default: Option<String>,
}

/// Result of expanding a text of a file.
#[derive(Debug, PartialEq)]
pub(super) enum Text {
    /// Expanded text, and whether it contains the value of a variable with a secret name.
    Known(String, bool),
    /// A reference has no value here: the reason, and whether the value is secret.
    Open(String, bool),
    /// Refers to this environment variable, which no user has confirmed; and whether its name is secret.
    Withheld(String, bool),
}

impl Around {
    /// Expands the references of a text in the syntax of this client.
    pub(super) fn expand(&self, format: Format, text: &str) -> Result<Text, String> {
        let (mut out, mut is_secret, mut rest) = (String::new(), false, text);
        if format == Format::ClaudeDesktop {
            return Ok(Text::Known(text.to_owned(), false));
        }
        while let Some((before, after)) = rest.split_once("${") {
            let (name, after) = after.split_once('}').ok_or("`${` without `}`")?;
            out.push_str(before);
            match self.meaning(format, name)? {
                Text::Known(text, secret) => {
                    out.push_str(&text);
                    is_secret |= secret;
                }
                unknown => return Ok(unknown),
            }
            rest = after;
        }
        out.push_str(rest);
        Ok(Text::Known(out, is_secret))
    }

    fn meaning(&self, format: Format, name: &str) -> Result<Text, String> {
        if format == Format::ClaudeCode {
            let (name, default) =
                name.split_once(":-").map_or((name, None), |(name, text)| (name, Some(text)));
            return Ok(self.of_environment(name, default));
        }
        if let Some(name) = name.strip_prefix("env:") {
            return Ok(self.of_environment(name, None));
        }
        if let Some(id) = name.strip_prefix("input:") {
            let Input { is_password, default } =
                self.inputs.get(id).ok_or_else(|| format!("`inputs` has no entry `{id}`"))?;
            let why = format!(
                "the client requests the input `{id}` on start: replace the reference with the value"
            );
            return Ok(match default.as_ref().filter(|_| !is_password) {
                Some(default) => Text::Known(default.clone(), false),
                None => Text::Open(why, *is_password),
            });
        }
        let missing = || format!("`${{{name}}}` is not supported in this file: replace it with the value");
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.to_string_lossy().into_owned());
        let text = match name {
            "userHome" => path(&self.home),
            "workspaceFolder" => path(&self.folder),
            "workspaceFolderBasename" => {
                path(&self.folder.as_ref().and_then(|path| path.file_name()).map(PathBuf::from))
            }
            "pathSeparator" | "/" => Some(MAIN_SEPARATOR_STR.to_owned()),
            _ => None,
        };
        text.map(|text| Text::Known(text, false)).ok_or_else(missing)
    }

    fn of_environment(&self, name: &str, default: Option<&str>) -> Text {
        let is_secret = looks_secret(name);
        let found = variable(name).and_then(|text| text.into_string().ok());
        match (found, default) {
            (Some(text), _) if self.readable.has(name) => Text::Known(text, is_secret),
            (_, Some(default)) => Text::Known(default.to_owned(), is_secret),
            (Some(_), None) => Text::Withheld(name.to_owned(), is_secret),
            (None, None) => Text::Open(
                format!("environment variable `{name}` is not set: set it, then import again"),
                is_secret,
            ),
        }
    }
}

/// Returns the environment variables that a text refers to, in the syntax of this client.
pub(super) fn variables(format: Format, text: &str) -> Vec<&str> {
    let (mut names, mut rest) = (Vec::new(), text);
    while let Some((name, after)) = rest.split_once("${").and_then(|(_, after)| after.split_once('}')) {
        names.extend(match format {
            Format::ClaudeDesktop => None,
            Format::ClaudeCode => name.split(":-").next(),
            Format::Cursor | Format::VsCode => name.strip_prefix("env:"),
        });
        rest = after;
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around() -> Around {
        let input =
            |is_password, default: Option<&str>| Input { is_password, default: default.map(str::to_owned) };
        let inputs = [
            ("key", input(true, Some("x"))),
            ("mode", input(false, Some("fast"))),
            ("who", input(false, None)),
        ];
        Around {
            home: Some("/home/ada".into()),
            folder: Some("/project/site".into()),
            inputs: inputs.map(|(id, input)| (id.to_owned(), input)).into(),
            readable: Readable::All,
        }
    }

    fn known(format: Format, text: &str) -> String {
        match around().expand(format, text) {
            Ok(Text::Known(text, false)) => text,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn each_client_has_its_own_way() {
        assert_eq!(known(Format::ClaudeDesktop, "${A} ${"), "${A} ${");
        assert_eq!(known(Format::ClaudeCode, "a${NOBODY_SETS_THIS:-b:-c}d"), "ab:-cd");
        for format in [Format::Cursor, Format::VsCode] {
            assert_eq!(known(format, "${userHome}${/}a"), "/home/ada/a");
            assert_eq!(known(format, "${workspaceFolder}/${workspaceFolderBasename}"), "/project/site/site");
            assert_eq!(known(format, "${input:mode}, $x {y}"), "fast, $x {y}");
        }
        assert_eq!(known(Format::VsCode, "${env:PATH}"), variable("PATH").unwrap().to_str().unwrap());
    }

    #[test]
    fn a_variable_is_read_only_for_a_server_that_may() {
        let format = Format::ClaudeCode;
        assert_eq!(variables(format, "${A} ${B:-${C}} $D ${E"), ["A", "B"]);
        assert_eq!(variables(Format::Cursor, "${env:A}${userHome}${/}"), ["A"]);
        assert!(variables(Format::ClaudeDesktop, "${A}").is_empty());
        let only = |names: &[&str]| Around {
            readable: Readable::Only(names.iter().map(|&name| name.to_owned()).collect()),
            ..around()
        };
        let path = variable("PATH").unwrap().into_string().unwrap();
        let expand = |around: Around, text: &str| around.expand(format, text).unwrap();
        assert_eq!(expand(only(&["PATH"]), "${PATH}"), Text::Known(path, false));
        let none = Around { readable: Readable::None, ..around() };
        for around in [none, only(&["HOME"])] {
            assert_eq!(expand(around.clone(), "a${PATH}"), Text::Withheld("PATH".into(), false));
            assert_eq!(expand(around, "${PATH:-b}"), Text::Known("b".into(), false));
        }
    }

    #[test]
    fn what_is_not_known_is_said() {
        let open = |format, text: &str| match around().expand(format, text) {
            Ok(Text::Open(why, is_secret)) => (why, is_secret),
            other => panic!("{text}: {other:?}"),
        };
        assert!(open(Format::VsCode, "Bearer ${input:key}").1);
        assert!(!open(Format::VsCode, "${input:who}").1);
        let (why, is_secret) = open(Format::ClaudeCode, "${NOBODY_SETS_THIS_TOKEN}");
        assert!(is_secret && why.contains("`NOBODY_SETS_THIS_TOKEN` is not set"), "{why}");
        for wrong in ["${input:none}", "${command:pick}", "${A}", "${", "${workspaceFolder:x}"] {
            assert!(around().expand(Format::VsCode, wrong).is_err(), "{wrong}");
        }
        assert!(Around::default().expand(Format::Cursor, "${workspaceFolder}").is_err());
    }
}
