//! Expansion of the references in client files, such as `${env:NAME}`, `${input:id}` and `${VAR:-default}`, in the
//! syntax of each client. An environment variable is used only if a user has confirmed it for the server that refers to
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{MAIN_SEPARATOR_STR, PathBuf};

use linchpin_hub_core::is_secret_name;

use super::formats::ClientFormat;
use crate::config::env_variable;

/// Where the references in a client's file get their values: folders, inputs and environment variables.
#[derive(Debug, Clone, Default)]
pub(super) struct VariableContext {
    pub(super) home: Option<PathBuf>,
    /// Project folder that the imported file belongs to, if any.
    pub(super) folder: Option<PathBuf>,
    /// Inputs that the client requests from the user when a server starts.
    pub(super) inputs: BTreeMap<String, Input>,
    /// Environment variables that may be read.
    pub(super) readable: ReadableVariables,
}

/// Environment variables that an imported server may read through references.
#[derive(Debug, Clone, Default)]
pub(super) enum ReadableVariables {
    #[default]
    None,
    Only(BTreeSet<String>),
    /// All variables; only to compare a server with the existing one.
    All,
}

impl ReadableVariables {
    pub(super) fn allows(&self, name: &str) -> bool {
        match self {
            ReadableVariables::None => false,
            ReadableVariables::Only(names) => names.contains(name),
            ReadableVariables::All => true,
        }
    }
}

/// Input that a client file requests from the user (`inputs` of VS Code), to which other values refer.
#[derive(Debug, Clone)]
pub(super) struct Input {
    pub(super) is_password: bool,
    pub(super) default: Option<String>,
}

/// Result of expanding the variable references in a text of a client's file.
#[derive(Debug, PartialEq)]
pub(super) enum Expansion {
    /// Expanded text, and whether it contains the value of a variable with a secret name.
    Resolved(String, bool),
    /// A reference has no value here: the reason, and whether the value is secret.
    Unresolved(String, bool),
    /// Text that refers to this environment variable, whose import the user has not confirmed; `true` if it looks
    /// secret.
    Unconfirmed(String, bool),
}

impl VariableContext {
    /// Expands the variable references of a text in the syntax of this client app.
    pub(super) fn expand(&self, format: ClientFormat, text: &str) -> Result<Expansion, String> {
        let (mut out, mut is_secret, mut rest) = (String::new(), false, text);
        if format == ClientFormat::ClaudeDesktop {
            return Ok(Expansion::Resolved(text.to_owned(), false));
        }
        while let Some((before, after)) = rest.split_once("${") {
            let (name, after) = after.split_once('}').ok_or("`${` without `}`")?;
            out.push_str(before);
            match self.resolve(format, name)? {
                Expansion::Resolved(text, secret) => {
                    out.push_str(&text);
                    is_secret |= secret;
                }
                unknown => return Ok(unknown),
            }
            rest = after;
        }
        out.push_str(rest);
        Ok(Expansion::Resolved(out, is_secret))
    }

    fn resolve(&self, format: ClientFormat, name: &str) -> Result<Expansion, String> {
        if format == ClientFormat::ClaudeCode {
            let (name, default) =
                name.split_once(":-").map_or((name, None), |(name, text)| (name, Some(text)));
            return Ok(self.resolve_variable(name, default));
        }
        if let Some(name) = name.strip_prefix("env:") {
            return Ok(self.resolve_variable(name, None));
        }
        if let Some(id) = name.strip_prefix("input:") {
            let Input { is_password, default } =
                self.inputs.get(id).ok_or_else(|| format!("`inputs` has no entry `{id}`"))?;
            let reason = format!(
                "the client requests the input `{id}` on start: replace the reference with the value"
            );
            return Ok(match default.as_ref().filter(|_| !is_password) {
                Some(default) => Expansion::Resolved(default.clone(), false),
                None => Expansion::Unresolved(reason, *is_password),
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
        text.map(|text| Expansion::Resolved(text, false)).ok_or_else(missing)
    }

    fn resolve_variable(&self, name: &str, default: Option<&str>) -> Expansion {
        let is_secret = is_secret_name(name);
        let found = env_variable(name).and_then(|text| text.into_string().ok());
        match (found, default) {
            (Some(text), _) if self.readable.allows(name) => Expansion::Resolved(text, is_secret),
            (_, Some(default)) => Expansion::Resolved(default.to_owned(), is_secret),
            (Some(_), None) => Expansion::Unconfirmed(name.to_owned(), is_secret),
            (None, None) => Expansion::Unresolved(
                format!("environment variable `{name}` is not set: set it, then import again"),
                is_secret,
            ),
        }
    }
}

/// Returns the environment variables that a text refers to, in the syntax of this client.
pub(super) fn referenced_variables(format: ClientFormat, text: &str) -> Vec<&str> {
    let (mut names, mut rest) = (Vec::new(), text);
    while let Some((name, after)) = rest.split_once("${").and_then(|(_, after)| after.split_once('}')) {
        names.extend(match format {
            ClientFormat::ClaudeDesktop => None,
            ClientFormat::ClaudeCode => name.split(":-").next(),
            ClientFormat::Cursor | ClientFormat::VsCode => name.strip_prefix("env:"),
        });
        rest = after;
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_context() -> VariableContext {
        let input =
            |is_password, default: Option<&str>| Input { is_password, default: default.map(str::to_owned) };
        let inputs = [
            ("key", input(true, Some("x"))),
            ("mode", input(false, Some("fast"))),
            ("who", input(false, None)),
        ];
        VariableContext {
            home: Some("/home/ada".into()),
            folder: Some("/project/site".into()),
            inputs: inputs.map(|(id, input)| (id.to_owned(), input)).into(),
            readable: ReadableVariables::All,
        }
    }

    fn resolved(format: ClientFormat, text: &str) -> String {
        match test_context().expand(format, text) {
            Ok(Expansion::Resolved(text, false)) => text,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn each_client_has_its_own_way() {
        assert_eq!(resolved(ClientFormat::ClaudeDesktop, "${A} ${"), "${A} ${");
        assert_eq!(resolved(ClientFormat::ClaudeCode, "a${NOBODY_SETS_THIS:-b:-c}d"), "ab:-cd");
        for format in [ClientFormat::Cursor, ClientFormat::VsCode] {
            assert_eq!(resolved(format, "${userHome}${/}a"), "/home/ada/a");
            assert_eq!(
                resolved(format, "${workspaceFolder}/${workspaceFolderBasename}"),
                "/project/site/site"
            );
            assert_eq!(resolved(format, "${input:mode}, $x {y}"), "fast, $x {y}");
        }
        assert_eq!(
            resolved(ClientFormat::VsCode, "${env:PATH}"),
            env_variable("PATH").unwrap().to_str().unwrap()
        );
    }

    #[test]
    fn a_variable_is_read_only_for_a_server_that_may() {
        let format = ClientFormat::ClaudeCode;
        assert_eq!(referenced_variables(format, "${A} ${B:-${C}} $D ${E"), ["A", "B"]);
        assert_eq!(referenced_variables(ClientFormat::Cursor, "${env:A}${userHome}${/}"), ["A"]);
        assert!(referenced_variables(ClientFormat::ClaudeDesktop, "${A}").is_empty());
        let only = |names: &[&str]| VariableContext {
            readable: ReadableVariables::Only(names.iter().map(|&name| name.to_owned()).collect()),
            ..test_context()
        };
        let path = env_variable("PATH").unwrap().into_string().unwrap();
        let expand = |context: VariableContext, text: &str| context.expand(format, text).unwrap();
        assert_eq!(expand(only(&["PATH"]), "${PATH}"), Expansion::Resolved(path, false));
        let none = VariableContext { readable: ReadableVariables::None, ..test_context() };
        for context in [none, only(&["HOME"])] {
            assert_eq!(expand(context.clone(), "a${PATH}"), Expansion::Unconfirmed("PATH".into(), false));
            assert_eq!(expand(context, "${PATH:-b}"), Expansion::Resolved("b".into(), false));
        }
    }

    #[test]
    fn what_is_not_known_is_said() {
        let open = |format, text: &str| match test_context().expand(format, text) {
            Ok(Expansion::Unresolved(reason, is_secret)) => (reason, is_secret),
            other => panic!("{text}: {other:?}"),
        };
        assert!(open(ClientFormat::VsCode, "Bearer ${input:key}").1);
        assert!(!open(ClientFormat::VsCode, "${input:who}").1);
        let (reason, is_secret) = open(ClientFormat::ClaudeCode, "${NOBODY_SETS_THIS_TOKEN}");
        assert!(is_secret && reason.contains("`NOBODY_SETS_THIS_TOKEN` is not set"), "{reason}");
        for invalid in ["${input:none}", "${command:pick}", "${A}", "${", "${workspaceFolder:x}"] {
            assert!(test_context().expand(ClientFormat::VsCode, invalid).is_err(), "{invalid}");
        }
        assert!(VariableContext::default().expand(ClientFormat::Cursor, "${workspaceFolder}").is_err());
    }
}
