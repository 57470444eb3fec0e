//! A server that the hub connects to, and what may stand in its fields.
//!
//! A [`Draft`] is what people send by REST or write in a form. It has no command: those come from the operator's file
//! alone, as a [`Launch`].

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use linchpin::egress::Target;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::id::ServerId;
use crate::names::Slug;
use crate::text::shortened;

const LONGEST_NAME: usize = 100;
const LONGEST_DESCRIPTION: usize = 2_000;
const LONGEST_URL: usize = 2_048;
const MOST_HEADERS: usize = 32;
const LONGEST_HEADER: usize = 4_096;
/// Milliseconds.
const TIMEOUTS: std::ops::RangeInclusive<u64> = 1_000..=300_000;
const DEFAULT_TIMEOUT: u64 = 30_000;
const MOST_RETRIES: u64 = 5;
const DEFAULT_RETRIES: u8 = 3;

/// A server as the hub knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Its id.
    pub id: ServerId,
    /// Its short name, which never changes.
    pub slug: Slug,
    /// What can be changed.
    pub settings: Settings,
    /// How it is reached.
    pub transport: Transport,
    /// Whether the operator's file says that it is there: then only that file changes it.
    pub is_from_file: bool,
    /// Counts the changes.
    pub version: u64,
    /// When it last answered.
    pub last_connected: Option<Timestamp>,
    /// When it was added.
    pub created: Timestamp,
    /// When it was last changed.
    pub updated: Timestamp,
}

/// What can be said of any server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// What people call it.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// How requests say who asks.
    pub authentication: Authentication,
    /// Whose credentials are used.
    pub credentials: CredentialMode,
    /// How long an answer may take.
    #[serde(rename = "timeout_ms", serialize_with = "millis")]
    pub timeout: Duration,
    /// How often connecting, listing and reading is tried again; calls never are.
    pub retry_attempts: u8,
    /// Whether it is used at all.
    pub enabled: bool,
    /// Whether arguments and results of its calls are kept.
    pub keep_history: bool,
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// A program on this machine.
    Stdio(Launch),
    /// Streamable HTTP.
    Http(Remote),
    /// HTTP+SSE.
    Sse(Remote),
}

/// A place on the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// Where it is.
    pub url: String,
    /// What is sent with every request. Nothing here is secret.
    pub headers: BTreeMap<String, String>,
}

/// A program to start. Nothing that comes over the network is ever made into one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its environment, beside what every program needs.
    pub env: BTreeMap<String, String>,
    /// Where it runs.
    pub directory: Option<String>,
}

/// How requests say who asks. The secret itself is in the vault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Authentication {
    /// They do not.
    None,
    /// A bearer token.
    Bearer,
    /// A key in a header.
    ApiKey {
        /// The header.
        header: String,
    },
    /// A user name and a password.
    Basic {
        /// The user name.
        username: String,
    },
}

/// Whose credentials are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CredentialMode {
    /// The same for everybody.
    Shared,
    /// Each agent has its own.
    PerAgent,
}

/// A server that somebody wants, by a name and a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// The short name that was asked for.
    pub slug: Option<Slug>,
    /// What can be changed.
    pub settings: Settings,
    /// How it is reached: over the network.
    pub transport: Transport,
}

fn millis<S: serde::Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

impl Settings {
    /// What a server has of which only the name is known.
    pub fn named(name: impl Into<String>) -> Self {
        Settings {
            name: name.into(),
            description: None,
            authentication: Authentication::None,
            credentials: CredentialMode::Shared,
            timeout: Duration::from_millis(DEFAULT_TIMEOUT),
            retry_attempts: DEFAULT_RETRIES,
            enabled: true,
            keep_history: true,
        }
    }

    fn read(form: &mut Form) -> Result<Self> {
        let name =
            form.text("name", LONGEST_NAME)?.ok_or_else(|| Error::invalid("name", "a server has a name"))?;
        if name.trim().is_empty() {
            return Err(Error::invalid("name", format!("1 to {LONGEST_NAME} characters are a name")));
        }
        let usual = Settings::named(name);
        let timeout = form.number("timeout_ms", TIMEOUTS)?.unwrap_or(DEFAULT_TIMEOUT);
        let retries = form.number("retry_attempts", 0..=MOST_RETRIES)?;
        Ok(Settings {
            description: form.text("description", LONGEST_DESCRIPTION)?,
            authentication: authentication(form)?,
            credentials: match form.text("credentials", 20)?.as_deref() {
                None | Some("shared") => CredentialMode::Shared,
                Some("per-agent") => CredentialMode::PerAgent,
                Some(_) => return Err(Error::invalid("credentials", "it is `shared` or `per-agent`")),
            },
            timeout: Duration::from_millis(timeout),
            retry_attempts: retries.and_then(|count| u8::try_from(count).ok()).unwrap_or(DEFAULT_RETRIES),
            enabled: form.flag("enabled")?.unwrap_or(true),
            keep_history: form.flag("keep_history")?.unwrap_or(true),
            ..usual
        })
    }
}

fn authentication(form: &mut Form) -> Result<Authentication> {
    let Some(mut inner) = form.object("authentication")? else { return Ok(Authentication::None) };
    let kind = inner.text("type", 20)?.unwrap_or_default();
    let read = match &*kind {
        "none" => Authentication::None,
        "bearer" => Authentication::Bearer,
        "api-key" => {
            let header = inner.text("header", 64)?.unwrap_or_else(|| "x-api-key".to_owned());
            check_header_name(&header).map_err(|text| Error::invalid("authentication.header", text))?;
            Authentication::ApiKey { header }
        }
        "basic" => {
            let missing =
                || Error::invalid("authentication.username", "a user name is needed beside the password");
            Authentication::Basic { username: inner.text("username", 256)?.ok_or_else(missing)? }
        }
        _ => {
            let text = "it is `none`, `bearer`, `api-key` or `basic`";
            return Err(Error::invalid("authentication.type", text));
        }
    };
    inner.end()?;
    Ok(read)
}

impl Draft {
    /// Reads what somebody sent. What does not belong there is an error, which says where it belongs.
    pub fn read(value: Value) -> Result<Self> {
        let mut form = Form::new(value)?;
        for field in ["command", "args", "env", "directory", "cwd"] {
            if form.members.contains_key(field) {
                let text = "programs are started from the operator's file alone: run `linchpin server add NAME -- \
                            command arguments` on the machine of the hub";
                return Err(Error::invalid(field, text));
            }
        }
        let slug = form.text("slug", 64)?.map(|slug| Slug::new(&slug)).transpose()?;
        let settings = Settings::read(&mut form)?;
        let kind = form.text("transport", 20)?;
        let remote = Remote::read(&mut form)?;
        let transport = match kind.as_deref() {
            None | Some("http") => Transport::Http(remote),
            Some("sse") => Transport::Sse(remote),
            Some(_) => {
                let text = "it is `http` or `sse`; programs come from the operator's file";
                return Err(Error::invalid("transport", text));
            }
        };
        form.end()?;
        Ok(Draft { slug, settings, transport })
    }
}

impl Remote {
    fn read(form: &mut Form) -> Result<Self> {
        let missing = || Error::invalid("url", "a server on the network has a URL");
        let url = form.text("url", LONGEST_URL)?.ok_or_else(missing)?;
        let target = Target::typed(&url).map_err(|error| Error::invalid("url", error.to_string()))?;
        if !target.is_secure() {
            let text = "plain `http` can be read on the way and is for this machine alone: use `https`";
            return Err(Error::invalid("url", text));
        }
        let mut headers = BTreeMap::new();
        for (name, value) in form.object("headers")?.map(|inner| inner.members).unwrap_or_default() {
            let field = format!("headers.{name}");
            check_header_name(&name).map_err(|text| Error::invalid(&*field, text))?;
            let fits = |text: &&str| {
                text.len() <= LONGEST_HEADER && text.bytes().all(|byte| matches!(byte, b'\t' | 0x20..=0x7e))
            };
            let text = value.as_str().filter(fits).ok_or_else(|| {
                Error::invalid(
                    &*field,
                    format!("printable ASCII of at most {LONGEST_HEADER} characters is a value"),
                )
            })?;
            headers.insert(name.to_ascii_lowercase(), text.to_owned());
        }
        if headers.len() > MOST_HEADERS {
            return Err(Error::invalid("headers", format!("at most {MOST_HEADERS} can be sent")));
        }
        Ok(Remote { url, headers })
    }
}

/// Headers that say who asks are secret and belong to `authentication`; others are ours to write.
fn check_header_name(name: &str) -> Result<(), String> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || name.len() > 64 || !name.bytes().all(is_token) {
        return Err("it is no name of a header: letters, digits and `-` are".to_owned());
    }
    let lower = name.to_ascii_lowercase();
    match &*lower {
        "authorization" | "cookie" | "proxy-authorization" => {
            Err("what says who asks is kept with the credentials: use `authentication`".to_owned())
        }
        "host" | "connection" | "content-length" | "content-type" | "transfer-encoding" | "accept" | "te"
        | "upgrade" => Err("the hub writes this header itself".to_owned()),
        _ if lower.starts_with("mcp-") => Err("the protocol writes this header itself".to_owned()),
        _ => Ok(()),
    }
}

/// The members of an object, each taken once, by those who know what it means.
struct Form {
    /// Where it stands in the request: empty, or a name and a dot.
    path: String,
    members: Map<String, Value>,
}

impl Form {
    fn new(value: Value) -> Result<Self> {
        match value {
            Value::Object(members) => Ok(Form { path: String::new(), members }),
            _ => Err(Error::invalid("body", "an object is expected")),
        }
    }

    fn error(&self, name: &str, text: impl Into<String>) -> Error {
        Error::invalid(format!("{}{name}", self.path), text)
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        self.members.remove(name).filter(|value| !value.is_null())
    }

    fn text(&mut self, name: &str, longest: usize) -> Result<Option<String>> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) if text.chars().count() <= longest && !text.contains('\0') => {
                Ok(Some(text))
            }
            Some(Value::String(_)) => Err(self.error(name, format!("it has at most {longest} characters"))),
            Some(_) => Err(self.error(name, "it is a text")),
        }
    }

    fn number(&mut self, name: &str, range: std::ops::RangeInclusive<u64>) -> Result<Option<u64>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let fits = value.as_u64().filter(|number| range.contains(number));
        let text = || format!("it is a whole number from {} to {}", range.start(), range.end());
        fits.map(Some).ok_or_else(|| self.error(name, text()))
    }

    fn flag(&mut self, name: &str) -> Result<Option<bool>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.error(name, "it is `true` or `false`"))
    }

    fn object(&mut self, name: &str) -> Result<Option<Form>> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Object(members)) => Ok(Some(Form { path: format!("{}{name}.", self.path), members })),
            Some(_) => Err(self.error(name, "it is an object")),
        }
    }

    /// Nothing may be left.
    fn end(self) -> Result<()> {
        match self.members.keys().next() {
            None => Ok(()),
            Some(name) => Err(self.error(&shortened(name), "there is no such field")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with(name: &str, value: Value) -> Value {
        let mut draft = json!({"name": "Files", "url": "https://files.example/mcp"});
        draft[name] = value;
        draft
    }

    #[test]
    fn the_least_that_can_be_said() {
        let draft = Draft::read(with("description", Value::Null)).unwrap();
        assert_eq!(draft.settings, Settings::named("Files"));
        let expected = json!({
            "name": "Files", "description": null, "authentication": {"type": "none"}, "credentials": "shared",
            "timeout_ms": 30_000, "retry_attempts": 3, "enabled": true, "keep_history": true,
        });
        assert_eq!(serde_json::to_value(&draft.settings).unwrap(), expected);
        let Transport::Http(remote) = draft.transport else { panic!("{:?}", draft.transport) };
        assert_eq!((&*remote.url, remote.headers.len()), ("https://files.example/mcp", 0));
    }

    #[test]
    fn everything_at_the_edge_of_its_range() {
        let long = "n".repeat(100);
        let cases = [
            ("name", json!(long)),
            ("name", json!("日".repeat(100))),
            ("slug", json!("files-2")),
            ("timeout_ms", json!(1_000)),
            ("timeout_ms", json!(300_000)),
            ("retry_attempts", json!(0)),
            ("retry_attempts", json!(5)),
            ("transport", json!("sse")),
            ("url", json!("http://127.0.0.1:8080/mcp")),
            ("credentials", json!("per-agent")),
            ("enabled", json!(false)),
            ("authentication", json!({"type": "api-key"})),
            ("authentication", json!({"type": "basic", "username": "ada"})),
            ("headers", json!({"X-Team": "a b"})),
        ];
        for (name, value) in cases {
            Draft::read(with(name, value.clone())).unwrap_or_else(|error| panic!("{name} {value}: {error}"));
        }
        let draft = Draft::read(with("authentication", json!({"type": "api-key"}))).unwrap();
        assert_eq!(draft.settings.authentication, Authentication::ApiKey { header: "x-api-key".into() });
    }

    #[test]
    fn everything_out_of_range_names_its_field() {
        let cases = [
            ("name", json!(""), "name"),
            ("name", json!("  "), "name"),
            ("name", json!("n".repeat(101)), "name"),
            ("name", json!(1), "name"),
            ("name", Value::Null, "name"),
            ("description", json!("d".repeat(2_001)), "description"),
            ("slug", json!("Files"), "slug"),
            ("timeout_ms", json!(999), "timeout_ms"),
            ("timeout_ms", json!(300_001), "timeout_ms"),
            ("timeout_ms", json!(1_000.5), "timeout_ms"),
            ("timeout_ms", json!("1000"), "timeout_ms"),
            ("retry_attempts", json!(6), "retry_attempts"),
            ("retry_attempts", json!(-1), "retry_attempts"),
            ("enabled", json!("yes"), "enabled"),
            ("transport", json!("stdio"), "transport"),
            ("transport", json!("pigeon"), "transport"),
            ("url", Value::Null, "url"),
            ("url", json!("ftp://files.example"), "url"),
            ("url", json!("http://files.example/mcp"), "url"),
            ("url", json!("https://"), "url"),
            ("command", json!("rm"), "command"),
            ("args", json!([]), "args"),
            ("env", json!({}), "env"),
            ("credentials", json!("mine"), "credentials"),
            ("authentication", json!("bearer"), "authentication"),
            ("authentication", json!({"type": "magic"}), "authentication.type"),
            ("authentication", json!({"type": "basic"}), "authentication.username"),
            ("authentication", json!({"type": "api-key", "header": "a b"}), "authentication.header"),
            ("authentication", json!({"type": "bearer", "header": "x"}), "authentication.header"),
            ("headers", json!([]), "headers"),
            ("headers", json!({"a b": "x"}), "headers.a b"),
            ("headers", json!({"Authorization": "Bearer x"}), "headers.Authorization"),
            ("headers", json!({"mcp-session-id": "x"}), "headers.mcp-session-id"),
            ("headers", json!({"x": "a\r\nb"}), "headers.x"),
            ("headers", json!({"x": 1}), "headers.x"),
            ("colour", json!("red"), "colour"),
        ];
        for (name, value, field) in cases {
            let error = Draft::read(with(name, value.clone())).unwrap_err();
            assert_eq!(
                (error.kind(), error.field()),
                (crate::Kind::Invalid, Some(field)),
                "{name} {value}: {error}"
            );
        }
        assert_eq!(Draft::read(json!([])).unwrap_err().field(), Some("body"));
    }
}
