//! Import plan: compares each server of the files with the existing servers.

use std::collections::{BTreeSet, HashMap};

use linchpin::auth::Secret;
use linchpin_hub_core::secrets::scan::{find_secret_argument, is_secret};
use linchpin_hub_core::server::{ConfiguredServer, ProgramSpec, ServerDraft, ServerSettings, Transport};
use linchpin_hub_core::tool::names::Slug;
use serde_json::{Map, Value, json};

use super::FoundServer;
use super::formats::Position;
use super::server::{CREDENTIAL, ImportedServer};
use crate::api_client::ApiClient;
use crate::error::CliError;
use crate::serve::configured_servers::DEMO;

/// What the import does with a server: adds, updates or skips it, or leaves it unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlanAction {
    Add,
    Update,
    Unchanged,
    Skip,
}

/// Field of a server that an import changes: name, old value, new value.
pub(super) type Change = (String, String, String);

/// Server of a client's file, with the planned action and the changes that it makes.
pub(super) struct PlanEntry {
    pub(super) name: String,
    /// File that contains the server, and its path in this file.
    pub(super) location: String,
    pub(super) position: Position,
    pub(super) slug: Option<Slug>,
    pub(super) action: PlanAction,
    /// Environment variables that the server refers to.
    pub(super) references: Vec<String>,
    pub(super) imported: Option<ImportedServer>,
    pub(super) changes: Vec<Change>,
    /// Names of the secrets that the import stores in the vault.
    pub(super) secrets_to_store: Vec<String>,
    /// Names of the secrets that a user must enter.
    pub(super) missing_secrets: Vec<String>,
    /// Whether a user has approved the server at the terminal.
    pub(super) is_confirmed: bool,
    /// Reason why the server is not imported, or imported only in part.
    pub(super) reason: Option<String>,
}

impl PlanEntry {
    pub(super) fn skipped(name: String, location: String, reason: String) -> Self {
        PlanEntry {
            name,
            location,
            position: Position::default(),
            slug: None,
            action: PlanAction::Skip,
            references: Vec::new(),
            imported: None,
            changes: Vec::new(),
            secrets_to_store: Vec::new(),
            missing_secrets: Vec::new(),
            is_confirmed: false,
            reason: Some(reason),
        }
    }

    /// Returns whether the import changes this server.
    pub(super) fn has_changes(&self) -> bool {
        matches!(self.action, PlanAction::Add | PlanAction::Update)
    }

    /// Returns whether the server is new, or a field other than a secret changes: it then stays disabled until a user
    /// approves it.
    pub(super) fn needs_approval(&self) -> bool {
        let counts = |(field, ..): &Change| !field.starts_with("secret ");
        self.action == PlanAction::Add || self.action == PlanAction::Update && self.changes.iter().any(counts)
    }
}

/// Servers that the import finds in the configuration file and in the hub.
pub(super) struct ExistingServers<'a> {
    /// Configured servers; `None` if the configuration file is on another machine.
    pub(super) file: Option<Vec<ConfiguredServer>>,
    /// Servers that the running hub manages; `None` if no hub runs.
    pub(super) hub: Option<Vec<Value>>,
    pub(super) api: Option<&'a ApiClient>,
}

/// Server of the hub or of its configuration file, with which an imported one is compared.
struct ExistingServer {
    name: String,
    is_stdio: bool,
    is_configured: bool,
    fields: Map<String, Value>,
    /// Whether the server uses authentication; a file without authentication leaves it unchanged.
    has_authentication: bool,
}

/// Plans the action for each server to import.
pub(super) async fn plan(
    found: Vec<FoundServer>,
    existing_servers: &ExistingServers<'_>,
) -> Result<Vec<PlanEntry>, CliError> {
    let mut rows = Vec::new();
    // Slugs used by this import: whether the server is a stdio server, and its fields.
    let mut claimed: HashMap<Slug, (bool, Map<String, Value>)> = HashMap::new();
    for FoundServer { name, location, position, references, imported } in found {
        let imported = match imported {
            Ok(imported) if imported.is_stdio && existing_servers.file.is_none() => {
                Err("stdio servers can be imported only on the machine of the hub: run the import there, without --hub"
                    .to_owned())
            }
            Ok(imported) if !imported.is_stdio && existing_servers.hub.is_none() => {
                Err("a remote server requires a running hub: start it with `linchpin`, then import again".to_owned())
            }
            other => other,
        };
        let mut imported = match imported {
            Ok(imported) => imported,
            Err(reason) => {
                rows.push(PlanEntry::skipped(name, location, reason));
                continue;
            }
        };
        let fields = imported.normalized()?;
        let mut row = PlanEntry {
            action: PlanAction::Unchanged,
            reason: None,
            position,
            references,
            ..PlanEntry::skipped(name, location, String::new())
        };
        for slug in slugs(&row.name) {
            if let Some((is_program, other)) = claimed.get(&slug) {
                if (*is_program, other) == (imported.is_stdio, &fields) {
                    row.slug = Some(slug);
                    break;
                }
                continue;
            }
            match existing_servers.find(&slug) {
                None => row.action = PlanAction::Add,
                Some(existing) if existing.is_stdio == imported.is_stdio => {
                    let merged = imported.clone().merge_existing(&existing);
                    let changes = differences(&existing.fields, &merged.normalized()?);
                    // A server with the same fields is the same server, even under another name.
                    if existing.name != row.name && !changes.is_empty() {
                        continue;
                    }
                    (imported, row.changes) = (merged, changes);
                    if !row.changes.is_empty() {
                        row.action = PlanAction::Update;
                        if existing.is_configured && !imported.is_stdio {
                            row.action = PlanAction::Skip;
                            row.reason = Some(
                                "the configuration file already has this server with other fields: change it there"
                                    .into(),
                            );
                        }
                    }
                }
                Some(_) => continue,
            }
            claimed.insert(slug.clone(), (imported.is_stdio, fields));
            row.slug = Some(slug);
            existing_servers.plan_secrets(&mut row, &imported).await?;
            if existing_servers.api.is_none()
                && row.missing_secrets.iter().any(|name| imported.secret_value(name).is_some())
            {
                imported
                    .notes
                    .push("no hub runs to store its secrets: start the hub, then import again".into());
            }
            break;
        }
        row.imported = Some(imported);
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

impl ImportedServer {
    /// Adopts from the existing server what the file does not contain: the authentication, and secrets that are empty
    /// in the file because the vault has them.
    fn merge_existing(mut self, existing: &ExistingServer) -> Self {
        if existing.has_authentication && !self.is_stdio {
            let authentication = existing.fields.get("authentication").cloned();
            self.fields.entry("authentication").or_insert(authentication.unwrap_or_default());
        }
        let secrets = existing.fields.get("secrets").and_then(Value::as_array).into_iter().flatten();
        let env = self.fields.get_mut("env").and_then(Value::as_object_mut);
        let Some(env) = env.filter(|_| self.is_stdio) else { return self };
        for name in secrets.filter_map(Value::as_str) {
            if env.get(name).is_some_and(|value| value == "") {
                env.remove(name);
                self.secrets.insert(name.to_owned(), None);
            }
        }
        self.fields.insert("secrets".into(), json!(self.secrets.keys().collect::<Vec<_>>()));
        self
    }

    /// Returns the imported fields in normal form, for comparison with an existing server.
    fn normalized(&self) -> Result<Map<String, Value>, CliError> {
        let fields = Value::Object(self.fields.clone());
        if self.is_stdio {
            let ConfiguredServer { settings, transport, .. } = ConfiguredServer::read("x", fields)?;
            return Ok(comparable_fields(&settings, &transport));
        }
        let ServerDraft { settings, transport, .. } = ServerDraft::read(fields)?;
        Ok(comparable_fields(&settings, &transport))
    }

    fn secret_value(&self, name: &str) -> Option<&Secret> {
        self.secrets.get(name)?.as_ref()
    }
}

fn comparable_fields(settings: &ServerSettings, transport: &Transport) -> Map<String, Value> {
    let fields = match transport {
        Transport::Stdio(ProgramSpec { command, args, env, secrets, directory, .. }) => json!({
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

impl ExistingServers<'_> {
    fn view(&self, slug: &Slug) -> Option<&Value> {
        self.hub.iter().flatten().find(|server| server["slug"] == slug.as_str())
    }

    /// Finds the existing server with this slug, in the configuration file or the hub.
    fn find(&self, slug: &Slug) -> Option<ExistingServer> {
        if let Some(ConfiguredServer { settings, transport, .. }) =
            self.file.iter().flatten().find(|server| server.slug == *slug)
        {
            let is_program = matches!(transport, Transport::Stdio(_));
            let fields = comparable_fields(settings, transport);
            let has_authentication = uses_authentication(&json!(settings.authentication));
            let name = settings.name.clone();
            return Some(ExistingServer {
                name,
                is_stdio: is_program,
                is_configured: true,
                fields,
                has_authentication,
            });
        }
        let built_in = |fields| ExistingServer {
            name: String::new(),
            is_stdio: true,
            is_configured: true,
            fields,
            has_authentication: false,
        };
        let Some(view) = self.view(slug) else {
            return (slug.as_str() == DEMO).then(|| built_in(Map::new()));
        };
        if view["transport"] == "stdio" {
            if view["is_undeclared"] == true {
                return None; // adding it to the file restores it
            }
            // The built-in demo server.
            let words = view["command"].as_array().and_then(|words| words.split_first());
            let fields = words.map(|(command, args)| {
                json!({ "command": command, "args": args, "env": {}, "secrets": [], "directory": null })
            });
            return Some(built_in(fields.and_then(|fields| fields.as_object().cloned()).unwrap_or_default()));
        }
        let fields = ["url", "transport", "headers", "authentication"];
        Some(ExistingServer {
            name: view["name"].as_str().unwrap_or_default().to_owned(),
            is_stdio: false,
            is_configured: view["is_configured"] == true,
            fields: fields.into_iter().map(|name| (name.to_owned(), view[name].clone())).collect(),
            has_authentication: uses_authentication(&view["authentication"]),
        })
    }

    /// Determines which secrets of a server are stored in the vault and which are missing.
    async fn plan_secrets(&self, row: &mut PlanEntry, imported: &ImportedServer) -> Result<(), CliError> {
        let Some(slug) = row.slug.as_ref().filter(|_| row.action != PlanAction::Skip) else { return Ok(()) };
        let has_other_changes =
            |fields: &[&str]| row.changes.iter().any(|(name, ..)| fields.contains(&&**name));
        let lacks_all = row.action == PlanAction::Add
            || has_other_changes(&["command", "args", "directory", "url", "authentication"]);
        let mut missing_names: Vec<_> = imported.secrets.keys().cloned().collect();
        if !lacks_all {
            let view = self.view(slug);
            let contains_name = |list: &str, name: &str| {
                view.and_then(|view| view[list].as_array())
                    .is_some_and(|list| list.iter().any(|item| item == name))
            };
            missing_names.retain(|name| match (imported.is_stdio, view) {
                (true, Some(_)) => contains_name("missing_secrets", name) || !contains_name("secrets", name),
                (is_program, _) => !is_program,
            });
            if !imported.is_stdio && !missing_names.is_empty() && self.has_credential(slug).await? {
                missing_names.clear();
            }
        }
        let can_enter = |name: &String| self.api.is_some() && imported.secret_value(name).is_some();
        (row.secrets_to_store, row.missing_secrets) = missing_names.into_iter().partition(can_enter);
        if row.action == PlanAction::Unchanged && !row.secrets_to_store.is_empty() {
            row.action = PlanAction::Update;
            let change = |name: &String| {
                (format!("secret {name}"), "missing".to_owned(), "stored in the vault".to_owned())
            };
            row.changes.extend(row.secrets_to_store.iter().map(change));
        }
        Ok(())
    }

    async fn has_credential(&self, slug: &Slug) -> Result<bool, CliError> {
        let Some(api) = self.api else { return Ok(true) };
        match api.get(&format!("/servers/{}/{CREDENTIAL}", slug.as_str())).await {
            Err(failure) if failure.status() == Some(404) => Ok(false),
            other => other.map(|_| true),
        }
    }
}

/// Returns whether a server uses authentication, which a file without authentication leaves unchanged.
fn uses_authentication(authentication: &Value) -> bool {
    authentication["type"] != "none"
}

/// Compares the fields of two server configurations and lists the changes. Values that look secret are redacted.
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
                        format_value(key, old.get(key)),
                        format_value(key, new.get(key)),
                    ));
                }
            }
            _ => changes.push((name.clone(), format_value("", Some(old)), format_value("", Some(new)))),
        }
    }
    changes
}

fn format_value(name: &str, value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "nothing".to_owned(),
        Some(value) if is_secret(name, &value.to_string()) || has_secret_argument(value) => "***".to_owned(),
        Some(value) => value.to_string(),
    }
}

/// Returns whether an argument looks like a secret: a command written by hand may contain one.
fn has_secret_argument(value: &Value) -> bool {
    let list = value.as_array().into_iter().flatten().filter_map(Value::as_str);
    find_secret_argument(&list.map(str::to_owned).collect::<Vec<_>>()).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::formats::ClientFormat;
    use crate::import::server;
    use crate::import::variables::VariableContext;

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

    fn found(name: &str, value: &Value) -> FoundServer {
        let imported =
            server::read(ClientFormat::ClaudeDesktop, &VariableContext::default(), name, value.clone());
        FoundServer {
            name: name.into(),
            position: Position::default(),
            location: "f".into(),
            references: Vec::new(),
            imported: imported.map_err(|error| error.with_path("x")),
        }
    }

    async fn planned(file: &[(&str, Value)], found: Vec<FoundServer>) -> Vec<(String, PlanAction)> {
        let file =
            file.iter().map(|(slug, value)| ConfiguredServer::read(slug, value.clone()).unwrap()).collect();
        let existing_servers = ExistingServers { file: Some(file), hub: Some(Vec::new()), api: None };
        let rows = plan(found, &existing_servers).await.unwrap();
        rows.into_iter().map(|row| (row.slug.unwrap().as_str().to_owned(), row.action)).collect()
    }

    #[tokio::test]
    async fn a_slug_that_is_taken_by_something_else_is_numbered() {
        let program = json!({"command": "x"});
        assert_eq!(
            planned(&[], vec![found("Demo", &program)]).await,
            [("demo-2".to_owned(), PlanAction::Add)]
        );
        let remote = json!({"name": "A", "url": "https://a.example/mcp"});
        let existing = [("a", remote.clone()), ("a-2", json!({"name": "A", "command": "x"}))];
        assert_eq!(
            planned(&existing, vec![found("A", &program)]).await,
            [("a-2".to_owned(), PlanAction::Unchanged)]
        );
        let other = json!({"url": "https://b.example/mcp"});
        assert_eq!(planned(&existing, vec![found("A", &other)]).await, [("a".to_owned(), PlanAction::Skip)]);
    }

    #[tokio::test]
    async fn one_name_in_two_files_is_two_servers_unless_they_are_the_same() {
        let (one, other) = (json!({"command": "x"}), json!({"command": "y"}));
        let all = || vec![found("A", &one), found("A", &other), found("A", &one)];
        let first = [("a", PlanAction::Add), ("a-2", PlanAction::Add), ("a", PlanAction::Unchanged)];
        let expected =
            |steps: [(&str, PlanAction); 3]| steps.map(|(slug, step)| (slug.to_owned(), step)).to_vec();
        assert_eq!(planned(&[], all()).await, expected(first));
        let existing =
            [("a", json!({"name": "A", "command": "x"})), ("a-2", json!({"name": "A", "command": "y"}))];
        assert_eq!(
            planned(&existing, all()).await,
            expected(first.map(|(slug, _)| (slug, PlanAction::Unchanged)))
        );
    }

    #[tokio::test]
    async fn what_is_started_is_shown_on_one_line() {
        let value = json!({"command": "sh", "args": ["-c", "a\nAllow the hub\u{1b}[2J"], "env": {"LD_PRELOAD": "x y"}});
        let existing_servers = ExistingServers { file: Some(Vec::new()), hub: None, api: None };
        let rows = plan(vec![found("A", &value)], &existing_servers).await.unwrap();
        let shown = crate::import::render::command_line(&rows[0]).unwrap();
        assert_eq!(shown, "LD_PRELOAD='x y' sh -c 'a\\nAllow the hub\u{FFFD}[2J'");
    }
}
