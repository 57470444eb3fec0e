//! Conversion of one server of a file into the fields of the hub: a stdio or remote server, with its secrets separated.

use std::collections::{BTreeMap, BTreeSet};

use linchpin::auth::Secret;
use linchpin_hub_core::Error;
use linchpin_hub_core::object_reader::ObjectReader;
use linchpin_hub_core::secrets::scan::{contains_secret, find_secret_argument, is_secret};
use linchpin_hub_core::server::{ConfiguredServer, ServerDraft};
use serde_json::{Map, Value, json};

use super::formats::ClientFormat;
use super::variables::{Expansion, VariableContext, referenced_variables};
use crate::config::env_variable;

/// Maximum number of items of a list in an imported entry; the limits of the hub are lower.
const MAX_ITEMS: usize = 1_000;
/// Maximum length of a text in an imported entry; the limits of the hub are lower.
const MAX_TEXT_LEN: usize = 100_000;
/// Fields of a server in a client's configuration that are imported, or ignored without a note.
const KNOWN_FIELDS: [&str; 9] =
    ["type", "command", "args", "env", "cwd", "url", "headers", "disabled", "name"];
/// Name in an import plan for the only secret of a remote server: its credential.
pub(super) const CREDENTIAL: &str = "credential";

/// Server that was read from the configuration of an MCP client.
#[derive(Debug, Clone)]
pub(super) struct ImportedServer {
    /// Fields of the server for the hub. The configuration file and the API use the same names.
    pub(super) fields: Map<String, Value>,
    pub(super) is_stdio: bool,
    /// Secrets for the vault, by variable; a secret without a value must be entered by a user.
    pub(super) secrets: BTreeMap<String, Option<Secret>>,
    pub(super) is_disabled: bool,
    /// Notes for the user, for example fields that are not imported.
    pub(super) notes: Vec<String>,
}

/// Field of an imported server that cannot be used, with the reason.
#[derive(Debug)]
pub(super) struct EntryError {
    field: String,
    reason: String,
}

impl EntryError {
    fn for_field(field: &str, reason: impl Into<String>) -> Self {
        EntryError { field: field.to_owned(), reason: reason.into() }
    }

    /// Formats the error of an imported server, with its field below the path `at`.
    pub(super) fn with_path(self, at: &str) -> String {
        let dot = if self.field.is_empty() { "" } else { "." };
        format!("`{at}{dot}{}`: {}", self.field, self.reason)
    }
}

impl From<Error> for EntryError {
    fn from(error: Error) -> Self {
        let field = error.field().filter(|field| *field != "body").unwrap_or_default();
        EntryError::for_field(if field == "directory" { "cwd" } else { field }, error.message())
    }
}

/// Reads the entry of a server in the configuration of an MCP client.
pub(super) fn read(
    format: ClientFormat,
    context: &VariableContext,
    name: &str,
    value: Value,
) -> Result<ImportedServer, EntryError> {
    let mut notes = notes(format, context, &value);
    let mut form = ObjectReader::new(value)?;
    let kind = form.string("type", 40)?;
    let is_disabled = form.boolean("disabled")?.unwrap_or_default();
    let is_program = match (form.has("command"), form.has("url")) {
        (true, false) => true,
        (false, true) => false,
        (true, true) => {
            return Err(EntryError::for_field(
                "url",
                "must not be set together with `command`: remove one of them",
            ));
        }
        (false, false) => {
            return Err(EntryError::for_field("command", "missing `command` or `url`: add one of them"));
        }
    };
    let transport = match (kind.as_deref(), is_program) {
        (None, _) | (Some("stdio"), true) => None,
        (Some("http" | "streamable-http" | "streamableHttp"), false) => Some("http"),
        (Some("sse"), false) => Some("sse"),
        (Some(_), true) => return Err(EntryError::for_field("type", "must be `stdio` for a `command`")),
        (Some(_), false) => return Err(EntryError::for_field("type", "must be `http` or `sse` for a `url`")),
    };
    let reader = EntryReader { format, context };
    let mut fields = Map::new();
    fields.insert("name".into(), json!(name));
    let secrets = if is_program {
        reader.read_stdio(&mut form, &mut fields)?
    } else {
        fields.extend(transport.map(|kind| ("transport".to_owned(), json!(kind))));
        reader.read_remote(&mut form, &mut fields, &mut notes)?
    };
    // Validate with the rules of the hub first, so that the import does not start with a server that the hub rejects.
    if is_program {
        ConfiguredServer::read("x", Value::Object(fields.clone()))?;
    } else {
        ServerDraft::read(Value::Object(fields.clone()))?;
    }
    Ok(ImportedServer { fields, is_stdio: is_program, secrets, is_disabled, notes })
}

/// Returns the notes for the user: fields that are not imported, and environment variables that are read or not.
fn notes(format: ClientFormat, context: &VariableContext, value: &Value) -> Vec<String> {
    let unknown = value.as_object().into_iter().flat_map(Map::keys);
    let unknown = unknown.filter(|name| !KNOWN_FIELDS.contains(&name.as_str()));
    let mut notes: Vec<_> =
        unknown.map(|name| format!("the field `{name}` is not supported and not imported")).collect();
    let (confirmed, not_confirmed): (Vec<_>, Vec<_>) = references(format, value)
        .into_iter()
        .filter(|name| env_variable(name).is_some())
        .partition(|name| context.readable.allows(name));
    if !confirmed.is_empty() {
        notes.push(format!("values read from your environment variables: {}", confirmed.join(", ")));
    }
    if !not_confirmed.is_empty() {
        notes.push(format!(
            "values not read from your environment variables: {}: import at a terminal and confirm each variable, or enter the value",
            not_confirmed.join(", ")
        ));
    }
    notes
}

/// Returns the environment variables that the fields of a server refer to.
pub(super) fn references(format: ClientFormat, value: &Value) -> Vec<String> {
    let fields = ["command", "args", "env", "cwd", "url", "headers"];
    let mut names = BTreeSet::new();
    for field in fields.into_iter().filter_map(|field| value.get(field)) {
        let texts: Vec<_> = match field {
            Value::Array(items) => items.iter().collect(),
            Value::Object(members) => members.values().collect(),
            text => vec![text],
        };
        let texts = texts.into_iter().filter_map(Value::as_str);
        names.extend(texts.flat_map(|text| referenced_variables(format, text)).map(str::to_owned));
    }
    names.into_iter().collect()
}

struct EntryReader<'a> {
    format: ClientFormat,
    context: &'a VariableContext,
}

type Secrets = BTreeMap<String, Option<Secret>>;

impl EntryReader<'_> {
    /// Expands variable references in a text that must not contain a recognizable secret.
    fn expand_plain(&self, field: &str, text: &str) -> Result<String, EntryError> {
        match self.expand(field, text)? {
            Expansion::Resolved(text, false) if !contains_secret(&text) => Ok(text),
            Expansion::Resolved(..) => Err(EntryError::for_field(
                field,
                "the value contains a secret, which others could see: move it to `env` or `headers`",
            )),
            Expansion::Unresolved(reason, _) => Err(EntryError::for_field(field, reason)),
            Expansion::Unconfirmed(name, _) => Err(EntryError::for_field(
                field,
                format!(
                    "the value refers to the environment variable `{name}`, which is not confirmed: import at a terminal, or replace \
                     the reference with the value"
                ),
            )),
        }
    }

    fn expand(&self, field: &str, text: &str) -> Result<Expansion, EntryError> {
        self.context.expand(self.format, text).map_err(|reason| EntryError::for_field(field, reason))
    }

    fn read_stdio(
        &self,
        form: &mut ObjectReader,
        fields: &mut Map<String, Value>,
    ) -> Result<Secrets, EntryError> {
        let command = form.string("command", MAX_TEXT_LEN)?.unwrap_or_default();
        fields.insert("command".into(), self.expand_plain("command", &command)?.into());
        let args = form.strings("args", MAX_ITEMS, MAX_TEXT_LEN)?;
        let args =
            args.iter().enumerate().map(|(index, text)| self.expand_plain(&format!("args[{index}]"), text));
        let args = args.collect::<Result<Vec<_>, _>>()?;
        if let Some(index) = find_secret_argument(&args) {
            let reason = "the argument contains a secret, and all users of the machine can see arguments: move it to a variable in `env`";
            return Err(EntryError::for_field(&format!("args[{index}]"), reason));
        }
        let (mut env, mut secrets) = (Map::new(), Secrets::new());
        for (name, text) in form.string_map("env", MAX_ITEMS, MAX_TEXT_LEN)? {
            let field = format!("env.{name}");
            match self.expand(&field, &text)? {
                Expansion::Resolved(text, by_name) if by_name || is_secret(&name, &text) => {
                    secrets.insert(name, Some(text).filter(|text| !text.is_empty()).map(Secret::new));
                }
                Expansion::Resolved(text, _) => drop(env.insert(name, text.into())),
                Expansion::Unresolved(_, by_name) if by_name || is_secret(&name, "") => {
                    drop(secrets.insert(name, None));
                }
                Expansion::Unresolved(reason, _) => return Err(EntryError::for_field(&field, reason)),
                Expansion::Unconfirmed(..) => drop(secrets.insert(name, None)),
            }
        }
        let directory = match form.string("cwd", MAX_TEXT_LEN)? {
            Some(text) => {
                let path = self.expand_plain("cwd", &text)?;
                Some(
                    self.context
                        .folder
                        .as_ref()
                        .map_or_else(|| path.clone().into(), |folder| folder.join(&path)),
                )
            }
            None => self.context.folder.clone(),
        };
        let directory = directory.map(|path| json!(path.to_string_lossy()));
        let names: Vec<_> = secrets.keys().collect();
        let lists = [("args", json!(args)), ("env", Value::Object(env)), ("secrets", json!(names))];
        let is_some = |value: &Value| *value != json!([]) && *value != json!({});
        fields.extend(
            lists
                .into_iter()
                .filter(|(_, value)| is_some(value))
                .map(|(name, value)| (name.to_owned(), value)),
        );
        fields.extend(directory.map(|path| ("directory".to_owned(), path)));
        Ok(secrets)
    }

    fn read_remote(
        &self,
        form: &mut ObjectReader,
        fields: &mut Map<String, Value>,
        notes: &mut Vec<String>,
    ) -> Result<Secrets, EntryError> {
        let url = form.string("url", MAX_TEXT_LEN)?.unwrap_or_default();
        fields.insert("url".into(), self.expand_plain("url", &url)?.into());
        let (mut headers, mut found) = (Map::new(), Vec::new());
        for (name, text) in form.string_map("headers", MAX_ITEMS, MAX_TEXT_LEN)? {
            let field = format!("headers.{name}");
            let (text, is_open) = match self.expand(&field, &text)? {
                Expansion::Resolved(text, by_name) if by_name || is_secret(&name, &text) => (text, false),
                Expansion::Resolved(text, _) => {
                    headers.insert(name, text.into());
                    continue;
                }
                Expansion::Unresolved(_, by_name) | Expansion::Unconfirmed(_, by_name)
                    if by_name || is_secret(&name, "") =>
                {
                    (text, true)
                }
                Expansion::Unresolved(reason, _) => return Err(EntryError::for_field(&field, reason)),
                Expansion::Unconfirmed(variable, _) => {
                    notes.push(format!(
                        "header `{name}` is not imported: you have not allowed the server to read the environment variable \
                         `{variable}`; to set it, run `linchpin server update NAME` with one `--header` option for every \
                         header of the server"
                    ));
                    continue;
                }
            };
            let (kind, text) = authentication(&name, &text).ok_or_else(|| {
                EntryError::for_field(
                    &field,
                    "only `Bearer` is supported: add the server with `linchpin server add --auth`",
                )
            })?;
            found.push((kind, Some(text).filter(|text| !is_open && !text.is_empty()).map(Secret::new)));
        }
        if found.len() > 1 {
            return Err(EntryError::for_field(
                "headers",
                "more than one header is secret, but the hub sends only one credential: remove all but one",
            ));
        }
        if !headers.is_empty() {
            fields.insert("headers".into(), Value::Object(headers));
        }
        let Some((kind, secret)) = found.pop() else { return Ok(Secrets::new()) };
        fields.insert("authentication".into(), kind);
        Ok([(CREDENTIAL.to_owned(), secret)].into())
    }
}

/// Converts a secret header of an imported server into authentication settings and the secret.
fn authentication(name: &str, text: &str) -> Option<(Value, String)> {
    if !name.eq_ignore_ascii_case("authorization") {
        return Some((json!({ "type": "api-key", "header": name }), text.to_owned()));
    }
    let (scheme, secret) = text.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| (json!({ "type": "bearer" }), secret.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::variables::Input;

    fn with(format: ClientFormat, value: Value) -> Result<ImportedServer, String> {
        let input = Input { is_password: true, default: None };
        let context = VariableContext {
            home: None,
            folder: (format == ClientFormat::VsCode).then(|| "/project".into()),
            inputs: [("key".to_owned(), input)].into(),
            ..VariableContext::default()
        };
        read(format, &context, "The Server", value).map_err(|error| error.with_path("s"))
    }

    fn secrets(imported: &ImportedServer) -> Vec<(&str, Option<&str>)> {
        imported.secrets.iter().map(|(name, secret)| (&**name, secret.as_ref().map(Secret::expose))).collect()
    }

    #[test]
    fn a_program_and_its_secrets() {
        let value = json!({
            "type": "stdio", "command": "npx", "args": ["-y", "${workspaceFolder}/x"], "cwd": "sub", "envFile": ".env",
            "env": {"NODE_ENV": "production", "GITHUB_TOKEN": "canary", "OTHER": "ghp_0123456789", "ASKED": "${input:key}", "A_KEY": ""},
        });
        let wanted = with(ClientFormat::VsCode, value).unwrap();
        let expected = json!({
            "name": "The Server", "command": "npx", "args": ["-y", "/project/x"], "env": {"NODE_ENV": "production"},
            "secrets": ["ASKED", "A_KEY", "GITHUB_TOKEN", "OTHER"], "directory": "/project/sub",
        });
        assert_eq!(Value::Object(wanted.fields.clone()), expected);
        let expected = [
            ("ASKED", None),
            ("A_KEY", None),
            ("GITHUB_TOKEN", Some("canary")),
            ("OTHER", Some("ghp_0123456789")),
        ];
        assert_eq!(secrets(&wanted), expected);
        assert_eq!(wanted.notes, ["the field `envFile` is not supported and not imported"]);
        assert!(!format!("{wanted:?}").contains("canary"));
    }

    #[test]
    fn a_place_and_its_credential() {
        let url = "https://a.example/mcp";
        let value = json!({"url": url, "headers": {"authorization": "bearer canary", "X-Team": "a"}, "disabled": true});
        let imported = with(ClientFormat::Cursor, value).unwrap();
        let expected = json!({
            "name": "The Server", "url": url, "headers": {"X-Team": "a"}, "authentication": {"type": "bearer"},
        });
        assert_eq!((Value::Object(imported.fields.clone()), imported.is_disabled), (expected, true));
        assert_eq!(secrets(&imported), [(CREDENTIAL, Some("canary"))]);
        let value = json!({"type": "sse", "url": url, "headers": {"X-Api-Key": "${input:key}"}});
        let imported = with(ClientFormat::VsCode, value).unwrap();
        assert_eq!(imported.fields["authentication"], json!({"type": "api-key", "header": "X-Api-Key"}));
        assert_eq!(
            (secrets(&imported), &imported.fields["transport"]),
            (vec![(CREDENTIAL, None)], &json!("sse"))
        );
    }

    #[test]
    fn what_cannot_be_taken_over_is_said_with_its_place() {
        let url = "https://a.example/mcp";
        for (value, expected) in [
            (json!([]), "`s`: must be an object"),
            (json!({}), "`s.command`: missing"),
            (json!({"command": "x", "url": url}), "`s.url`: must not be set together with `command`"),
            (json!({"command": 1}), "`s.command`: must be a string"),
            (json!({"command": "x", "args": "y"}), "`s.args`: must be a list"),
            (json!({"command": "x", "env": {"A": 1}}), "`s.env.A`: must be a string"),
            (json!({"command": "x", "env": []}), "`s.env`: must be an object"),
            (json!({"command": "x", "disabled": "no"}), "`s.disabled`: must be true or false"),
            (json!({"command": "x", "type": "http"}), "`s.type`: must be `stdio`"),
            (json!({"command": "x", "cwd": "here"}), "`s.cwd`: must be an absolute path"),
            (
                json!({"command": "x", "args": ["--token", "canary-12345"]}),
                "`s.args[1]`: the argument contains a secret",
            ),
            (
                json!({"command": "x", "args": ["a", "ghp_canary12345"]}),
                "`s.args[1]`: the value contains a secret",
            ),
            (
                json!({"command": "x", "args": ["${env:NOBODY_SETS_THIS}"]}),
                "`s.args[0]`: environment variable `NOBODY_SETS_THIS`",
            ),
            (
                json!({"command": "x", "env": {"A": "${env:NOBODY_SETS_THIS}"}}),
                "`s.env.A`: environment variable",
            ),
            (json!({"url": url, "type": "ws"}), "`s.type`: must be `http` or `sse`"),
            (json!({"url": "http://a.example/mcp"}), "`s.url`: plain `http`"),
            (json!({"url": format!("{url}?api_key=canary")}), "`s.url`: `api_key`"),
            (json!({"url": "https://ada:canary@a.example"}), "`s.url`: the value contains a secret"),
            (
                json!({"url": url, "headers": {"Authorization": "Basic canary"}}),
                "`s.headers.Authorization`: only `Bearer`",
            ),
            (
                json!({"url": url, "headers": {"X-Key": "canary", "X-Token": "b"}}),
                "`s.headers`: more than one",
            ),
            (json!({"url": url, "headers": {"Host": "a"}}), "`s.headers.Host`: the hub sets"),
        ] {
            let error = with(ClientFormat::Cursor, value.clone()).map(drop).unwrap_err();
            assert!(error.starts_with(expected) && !error.contains("canary"), "{value}: {error}");
        }
    }
}
