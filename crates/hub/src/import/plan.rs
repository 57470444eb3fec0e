//! Import plan: compares each server of the files with the existing servers.

use std::collections::{BTreeSet, HashMap};

use linchpin::auth::Secret;
use linchpin_hub_core::secrets::scan::{in_arguments, is_secret};
use linchpin_hub_core::server::{Draft, Launch, Operated, Settings, Transport};
use linchpin_hub_core::tool::names::Slug;
use serde_json::{Map, Value, json};

use super::Found;
use super::formats::Position;
use super::server::{CREDENTIAL, Wanted};
use crate::api_client::Api;
use crate::error::Failure;
use crate::serve::configured_servers::DEMO;

/// Planned action for a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Added,
    Changed,
    Unchanged,
    LeftOut,
}

/// Changed field: name, old value, new value.
pub(super) type Change = (String, String, String);

/// Server of a file and its planned action.
pub(super) struct Row {
    pub(super) name: String,
    /// File and path of the server in it.
    pub(super) place: String,
    pub(super) position: Position,
    pub(super) slug: Option<Slug>,
    pub(super) step: Step,
    /// Environment variables that it refers to.
    pub(super) references: Vec<String>,
    pub(super) wanted: Option<Wanted>,
    pub(super) changes: Vec<Change>,
    /// Names of the secrets that the import stores in the vault.
    pub(super) enter: Vec<String>,
    /// Names of the secrets that a user must enter.
    pub(super) missing: Vec<String>,
    /// Whether a user has approved the server at the terminal.
    pub(super) is_confirmed: bool,
    /// Reason why it is not imported, or not completely.
    pub(super) reason: Option<String>,
}

impl Row {
    pub(super) fn left_out(name: String, place: String, reason: String) -> Self {
        Row {
            name,
            place,
            position: Position::default(),
            slug: None,
            step: Step::LeftOut,
            references: Vec::new(),
            wanted: None,
            changes: Vec::new(),
            enter: Vec::new(),
            missing: Vec::new(),
            is_confirmed: false,
            reason: Some(reason),
        }
    }

    /// Whether the import changes this server.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.step, Step::Added | Step::Changed)
    }

    /// Whether it is new, or a field other than a secret changes: it then stays disabled until a user approves it.
    pub(super) fn needs_enabling(&self) -> bool {
        let counts = |(field, ..): &Change| !field.starts_with("secret ");
        self.step == Step::Added || self.step == Step::Changed && self.changes.iter().any(counts)
    }
}

/// Existing servers.
pub(super) struct Known<'a> {
    /// Configured servers; `None` if the configuration file is on another machine.
    pub(super) file: Option<Vec<Operated>>,
    /// Servers of the hub; `None` if no hub runs.
    pub(super) hub: Option<Vec<Value>>,
    pub(super) api: Option<&'a Api>,
}

/// Existing server.
struct There {
    name: String,
    is_program: bool,
    is_from_file: bool,
    fields: Map<String, Value>,
    /// Whether it uses authentication; a file without authentication leaves it unchanged.
    is_unsaid: bool,
}

/// Plans the action for each server.
pub(super) async fn plan(found: Vec<Found>, known: &Known<'_>) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    // Slugs used by this import: whether the server is a stdio server, and its fields.
    let mut claimed: HashMap<Slug, (bool, Map<String, Value>)> = HashMap::new();
    for Found { name, place, position, references, wanted } in found {
        let wanted = match wanted {
            Ok(wanted) if wanted.is_program && known.file.is_none() => {
                Err("stdio servers can be imported only on the machine of the hub: run the import there, without --hub"
                    .to_owned())
            }
            Ok(wanted) if !wanted.is_program && known.hub.is_none() => {
                Err("a remote server requires a running hub: start it with `linchpin`, then import again".to_owned())
            }
            other => other,
        };
        let mut wanted = match wanted {
            Ok(wanted) => wanted,
            Err(reason) => {
                rows.push(Row::left_out(name, place, reason));
                continue;
            }
        };
        let fields = wanted.normal()?;
        let mut row = Row {
            step: Step::Unchanged,
            reason: None,
            position,
            references,
            ..Row::left_out(name, place, String::new())
        };
        for slug in slugs(&row.name) {
            if let Some((is_program, other)) = claimed.get(&slug) {
                if (*is_program, other) == (wanted.is_program, &fields) {
                    row.slug = Some(slug);
                    break;
                }
                continue;
            }
            match known.find(&slug) {
                None => row.step = Step::Added,
                Some(there) if there.is_program == wanted.is_program => {
                    let kept = wanted.clone().keeping(&there);
                    let changes = differences(&there.fields, &kept.normal()?);
                    // A server with the same fields is the same server, even under another name.
                    if there.name != row.name && !changes.is_empty() {
                        continue;
                    }
                    (wanted, row.changes) = (kept, changes);
                    if !row.changes.is_empty() {
                        row.step = Step::Changed;
                        if there.is_from_file && !wanted.is_program {
                            row.step = Step::LeftOut;
                            row.reason = Some(
                                "it is configured with other fields: change it in the configuration file"
                                    .into(),
                            );
                        }
                    }
                }
                Some(_) => continue,
            }
            claimed.insert(slug.clone(), (wanted.is_program, fields));
            row.slug = Some(slug);
            known.secrets(&mut row, &wanted).await?;
            if known.api.is_none() && row.missing.iter().any(|name| wanted.given(name).is_some()) {
                wanted
                    .notes
                    .push("no hub runs to store its secrets: start the hub, then import again".into());
            }
            break;
        }
        row.wanted = Some(wanted);
        rows.push(row);
    }
    Ok(rows)
}

/// Returns the possible slugs for a server of this name, in order of preference.
fn slugs(name: &str) -> impl Iterator<Item = Slug> + use<> {
    let first = Slug::from_name(name).or_else(|| Slug::from_name("server"));
    first.into_iter().flat_map(|first| {
        let numbered = first.clone();
        std::iter::once(first).chain((2..10_000).map(move |number| numbered.numbered(number)))
    })
}

impl Wanted {
    /// Adopts from the existing server what the file does not contain: the authentication, and secrets that are empty
    /// in the file because the vault has them.
    fn keeping(mut self, there: &There) -> Self {
        if there.is_unsaid && !self.is_program {
            let known = there.fields.get("authentication").cloned();
            self.fields.entry("authentication").or_insert(known.unwrap_or_default());
        }
        let known = there.fields.get("secrets").and_then(Value::as_array).into_iter().flatten();
        let env = self.fields.get_mut("env").and_then(Value::as_object_mut);
        let Some(env) = env.filter(|_| self.is_program) else { return self };
        for name in known.filter_map(Value::as_str) {
            if env.get(name).is_some_and(|value| value == "") {
                env.remove(name);
                self.secrets.insert(name.to_owned(), None);
            }
        }
        self.fields.insert("secrets".into(), json!(self.secrets.keys().collect::<Vec<_>>()));
        self
    }

    /// Returns the fields in normal form, for comparison.
    fn normal(&self) -> Result<Map<String, Value>, Failure> {
        let fields = Value::Object(self.fields.clone());
        if self.is_program {
            let Operated { settings, transport, .. } = Operated::read("x", fields)?;
            return Ok(normal(&settings, &transport));
        }
        let Draft { settings, transport, .. } = Draft::read(fields)?;
        Ok(normal(&settings, &transport))
    }

    fn given(&self, name: &str) -> Option<&Secret> {
        self.secrets.get(name)?.as_ref()
    }
}

fn normal(settings: &Settings, transport: &Transport) -> Map<String, Value> {
    let fields = match transport {
        Transport::Stdio(Launch { command, args, env, secrets, directory, .. }) => json!({
            "command": command, "args": args, "env": env, "secrets": secrets, "directory": directory,
        }),
        Transport::Http(remote) | Transport::Sse(remote) => json!({
            "url": remote.url, "transport": transport.name(), "headers": remote.headers,
            "authentication": settings.authentication,
        }),
    };
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

impl Known<'_> {
    fn view(&self, slug: &Slug) -> Option<&Value> {
        self.hub.iter().flatten().find(|server| server["slug"] == slug.as_str())
    }

    /// Finds the server with this slug.
    fn find(&self, slug: &Slug) -> Option<There> {
        if let Some(Operated { settings, transport, .. }) =
            self.file.iter().flatten().find(|server| server.slug == *slug)
        {
            let is_program = matches!(transport, Transport::Stdio(_));
            let fields = normal(settings, transport);
            let is_unsaid = is_unsaid(&json!(settings.authentication));
            let name = settings.name.clone();
            return Some(There { name, is_program, is_from_file: true, fields, is_unsaid });
        }
        let nobody = |fields| There {
            name: String::new(),
            is_program: true,
            is_from_file: true,
            fields,
            is_unsaid: false,
        };
        let Some(view) = self.view(slug) else { return (slug.as_str() == DEMO).then(|| nobody(Map::new())) };
        if view["transport"] == "stdio" {
            if view["has_left_file"] == true {
                return None; // adding it to the file restores it
            }
            // The built-in demo server.
            let words = view["command"].as_array().and_then(|words| words.split_first());
            let fields = words.map(|(command, args)| {
                json!({ "command": command, "args": args, "env": {}, "secrets": [], "directory": null })
            });
            return Some(nobody(fields.and_then(|fields| fields.as_object().cloned()).unwrap_or_default()));
        }
        let fields = ["url", "transport", "headers", "authentication"];
        Some(There {
            name: view["name"].as_str().unwrap_or_default().to_owned(),
            is_program: false,
            is_from_file: view["is_from_file"] == true,
            fields: fields.into_iter().map(|name| (name.to_owned(), view[name].clone())).collect(),
            is_unsaid: is_unsaid(&view["authentication"]),
        })
    }

    /// Determines which secrets of a server are stored in the vault and which are missing.
    async fn secrets(&self, row: &mut Row, wanted: &Wanted) -> Result<(), Failure> {
        let Some(slug) = row.slug.as_ref().filter(|_| row.step != Step::LeftOut) else { return Ok(()) };
        let has_other = |fields: &[&str]| row.changes.iter().any(|(name, ..)| fields.contains(&&**name));
        let lacks_all =
            row.step == Step::Added || has_other(&["command", "args", "directory", "url", "authentication"]);
        let mut lacking: Vec<_> = wanted.secrets.keys().cloned().collect();
        if !lacks_all {
            let view = self.view(slug);
            let has = |list: &str, name: &str| {
                view.and_then(|view| view[list].as_array())
                    .is_some_and(|list| list.iter().any(|item| item == name))
            };
            lacking.retain(|name| match (wanted.is_program, view) {
                (true, Some(_)) => has("missing_secrets", name) || !has("secrets", name),
                (is_program, _) => !is_program,
            });
            if !wanted.is_program && !lacking.is_empty() && self.has_credential(slug).await? {
                lacking.clear();
            }
        }
        let can_enter = |name: &String| self.api.is_some() && wanted.given(name).is_some();
        (row.enter, row.missing) = lacking.into_iter().partition(can_enter);
        if row.step == Step::Unchanged && !row.enter.is_empty() {
            row.step = Step::Changed;
            let change =
                |name: &String| (format!("secret {name}"), "missing".to_owned(), "in the vault".to_owned());
            row.changes.extend(row.enter.iter().map(change));
        }
        Ok(())
    }

    async fn has_credential(&self, slug: &Slug) -> Result<bool, Failure> {
        let Some(api) = self.api else { return Ok(true) };
        match api.get(&format!("/servers/{}/{CREDENTIAL}", slug.as_str())).await {
            Err(failure) if failure.status() == Some(404) => Ok(false),
            other => other.map(|_| true),
        }
    }
}

/// Whether a server uses authentication, which a file without authentication leaves unchanged.
fn is_unsaid(authentication: &Value) -> bool {
    authentication["type"] != "none"
}

/// Compares two servers field by field. Values that look secret are redacted.
fn differences(before: &Map<String, Value>, after: &Map<String, Value>) -> Vec<Change> {
    let mut changes = Vec::new();
    for (name, new) in after {
        let old = before.get(name).unwrap_or(&Value::Null);
        match (old, new) {
            _ if old == new => {}
            (Value::Object(old), Value::Object(new)) if name != "authentication" => {
                let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
                for key in keys.into_iter().filter(|key| old.get(*key) != new.get(*key)) {
                    changes.push((
                        format!("{name}.{key}"),
                        shown(key, old.get(key)),
                        shown(key, new.get(key)),
                    ));
                }
            }
            _ => changes.push((name.clone(), shown("", Some(old)), shown("", Some(new)))),
        }
    }
    changes
}

fn shown(name: &str, value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "nothing".to_owned(),
        Some(value) if is_secret(name, &value.to_string()) || has_secret_argument(value) => "***".to_owned(),
        Some(value) => value.to_string(),
    }
}

/// Whether an argument looks like a secret: a command written by hand may contain one.
fn has_secret_argument(value: &Value) -> bool {
    let list = value.as_array().into_iter().flatten().filter_map(Value::as_str);
    in_arguments(&list.map(str::to_owned).collect::<Vec<_>>()).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::formats::Format;
    use crate::import::server;
    use crate::import::variables::Around;

    fn fields(value: &Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn differences_are_shown_field_by_field_without_secrets() {
        let before = fields(
            &json!({"command": "a", "args": ["x"], "env": {"A": "1", "API_KEY": "canary"}, "directory": null}),
        );
        let after =
            fields(&json!({"command": "a", "args": ["y"], "env": {"A": "2", "B": "3"}, "directory": "/w"}));
        let expected = [
            ("args", "[\"x\"]", "[\"y\"]"),
            ("env.A", "\"1\"", "\"2\""),
            ("env.API_KEY", "***", "nothing"),
            ("env.B", "nothing", "\"3\""),
            ("directory", "nothing", "\"/w\""),
        ];
        let mut changes = differences(&before, &after);
        let mut expected = expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned())).to_vec();
        changes.sort();
        expected.sort();
        assert_eq!(changes, expected);
        assert!(differences(&after, &after).is_empty());
        let by_hand = fields(&json!({"args": ["--token", "canary-12345"]}));
        let changes = differences(&by_hand, &fields(&json!({"args": ["x"]})));
        assert_eq!(changes, [("args".to_owned(), "***".to_owned(), "[\"x\"]".to_owned())]);
    }

    #[test]
    fn slugs_are_numbered() {
        let slugs: Vec<_> = slugs("Git Hub").take(3).map(|slug| slug.as_str().to_owned()).collect();
        assert_eq!(slugs, ["git-hub", "git-hub-2", "git-hub-3"]);
        assert_eq!(super::slugs("日本").next().unwrap().as_str(), "server");
    }

    fn found(name: &str, value: &Value) -> Found {
        let wanted = server::read(Format::ClaudeDesktop, &Around::default(), name, value.clone());
        Found {
            name: name.into(),
            position: Position::default(),
            place: "f".into(),
            references: Vec::new(),
            wanted: wanted.map_err(|wrong| wrong.below("x")),
        }
    }

    async fn planned(file: &[(&str, Value)], found: Vec<Found>) -> Vec<(String, Step)> {
        let file = file.iter().map(|(slug, value)| Operated::read(slug, value.clone()).unwrap()).collect();
        let known = Known { file: Some(file), hub: Some(Vec::new()), api: None };
        let rows = plan(found, &known).await.unwrap();
        rows.into_iter().map(|row| (row.slug.unwrap().as_str().to_owned(), row.step)).collect()
    }

    #[tokio::test]
    async fn a_slug_that_is_taken_by_something_else_is_numbered() {
        let program = json!({"command": "x"});
        assert_eq!(planned(&[], vec![found("Demo", &program)]).await, [("demo-2".to_owned(), Step::Added)]);
        let remote = json!({"name": "A", "url": "https://a.example/mcp"});
        let there = [("a", remote.clone()), ("a-2", json!({"name": "A", "command": "x"}))];
        assert_eq!(planned(&there, vec![found("A", &program)]).await, [("a-2".to_owned(), Step::Unchanged)]);
        let other = json!({"url": "https://b.example/mcp"});
        assert_eq!(planned(&there, vec![found("A", &other)]).await, [("a".to_owned(), Step::LeftOut)]);
    }

    #[tokio::test]
    async fn one_name_in_two_files_is_two_servers_unless_they_are_the_same() {
        let (one, other) = (json!({"command": "x"}), json!({"command": "y"}));
        let all = || vec![found("A", &one), found("A", &other), found("A", &one)];
        let first = [("a", Step::Added), ("a-2", Step::Added), ("a", Step::Unchanged)];
        let expected = |steps: [(&str, Step); 3]| steps.map(|(slug, step)| (slug.to_owned(), step)).to_vec();
        assert_eq!(planned(&[], all()).await, expected(first));
        let there =
            [("a", json!({"name": "A", "command": "x"})), ("a-2", json!({"name": "A", "command": "y"}))];
        assert_eq!(planned(&there, all()).await, expected(first.map(|(slug, _)| (slug, Step::Unchanged))));
    }

    #[tokio::test]
    async fn what_is_started_is_shown_on_one_line() {
        let value = json!({"command": "sh", "args": ["-c", "a\nAllow the hub\u{1b}[2J"], "env": {"LD_PRELOAD": "x y"}});
        let known = Known { file: Some(Vec::new()), hub: None, api: None };
        let rows = plan(vec![found("A", &value)], &known).await.unwrap();
        let shown = crate::import::render::command(&rows[0]).unwrap();
        assert_eq!(shown, "LD_PRELOAD='x y' sh -c 'a\\nAllow the hub\u{FFFD}[2J'");
    }
}
