//! Edits of the configuration file by CLI commands. Comments and formatting are preserved.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use linchpin_hub_core::platform::SystemPlatform;
use linchpin_hub_core::private_file;
use serde_json::{Map, Value};
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike};

use super::{Config, ConfigError, comments, file};

/// Maximum number of attempts to edit the configuration file if another process writes it at the same time.
const MAX_ATTEMPTS: usize = 10;
/// Maximum length of a chain of symbolic links, as on Linux.
const MAX_SYMLINKS: usize = 40;

/// Adds a server with these fields to the configuration file.
pub(crate) fn add(path: &Path, slug: &str, fields: &Map<String, Value>) -> Result<(), ConfigError> {
    edit(path, |document| {
        let servers = document.entry("servers").or_insert_with(|| {
            let mut table = Table::new();
            table.set_implicit(true);
            Item::Table(table)
        });
        let servers = servers
            .as_table_like_mut()
            .ok_or("`servers` must be a table: write `[servers.NAME]` for each server")?;
        if servers.contains_key(slug) {
            return Err(format!("server `{slug}` already exists: remove it first, or choose another --slug"));
        }
        let fields =
            fields.iter().filter_map(|(name, field)| Some((name.as_str(), Item::Value(to_toml(field)?))));
        servers.insert(slug, Item::Table(fields.collect()));
        Ok(())
    })
    .map(drop)
}

/// Converts a value to TOML; `None` if TOML cannot represent it.
fn to_toml(value: &Value) -> Option<toml_edit::Value> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(flag) => (*flag).into(),
        Value::Number(number) => number.as_i64()?.into(),
        Value::String(text) => text.as_str().into(),
        Value::Array(list) => list.iter().filter_map(to_toml).collect::<Array>().into(),
        Value::Object(members) => {
            let members = members.iter().filter_map(|(name, value)| Some((name.as_str(), to_toml(value)?)));
            members.collect::<InlineTable>().into()
        }
    })
}

/// Removes a server, and the comments directly above it, from the configuration file.
pub(crate) fn remove(path: &Path, slug: &str) -> Result<(), ConfigError> {
    edit(path, |document| comments::remove(document, slug).ok_or_else(|| unknown_server(slug))).map(drop)
}

/// Enables or disables a server in the configuration file.
pub(crate) fn set_enabled(path: &Path, slug: &str, is_enabled: bool) -> Result<(), ConfigError> {
    let changes = Map::from_iter([("enabled".to_owned(), is_enabled.into())]);
    update(path, slug, &changes).map(drop)
}

/// Changes fields of a server; null removes a field. Returns whether the configuration changed.
pub(crate) fn update(path: &Path, slug: &str, changes: &Map<String, Value>) -> Result<bool, ConfigError> {
    edit(path, |document| {
        let server = servers(document, slug)?.get_mut(slug).and_then(Item::as_table_like_mut);
        let server = server.ok_or_else(|| unknown_server(slug))?;
        for (name, field) in changes {
            match to_toml(field) {
                Some(field) => set_value(server, name, field),
                None => drop(server.remove(name)),
            }
        }
        Ok(())
    })
}

/// Enables or disables the demo server in the configuration file.
pub(crate) fn set_demo_enabled(path: &Path, is_enabled: bool) -> Result<(), ConfigError> {
    edit(path, |document| {
        set_value(document.as_table_mut(), "demo", is_enabled.into());
        Ok(())
    })
    .map(drop)
}

/// Sets a value in the configuration file and preserves the whitespace and comments around it.
fn set_value(table: &mut dyn TableLike, key: &str, new: toml_edit::Value) {
    match table.get_mut(key).and_then(Item::as_value_mut) {
        Some(old) => {
            let decor = old.decor().clone();
            *old = new;
            *old.decor_mut() = decor;
        }
        None => drop(table.insert(key, Item::Value(new))),
    }
}

fn servers<'a>(document: &'a mut DocumentMut, slug: &str) -> Result<&'a mut dyn TableLike, String> {
    document.get_mut("servers").and_then(Item::as_table_like_mut).ok_or_else(|| unknown_server(slug))
}

fn unknown_server(slug: &str) -> String {
    format!("the file contains no server `{slug}`")
}

/// Resolves a symbolic link whose target does not exist yet.
fn resolve_link(path: &Path) -> PathBuf {
    let mut target = path.to_owned();
    for _ in 0..MAX_SYMLINKS {
        let Ok(next) = std::fs::read_link(&target) else { break };
        target = target.parent().unwrap_or(Path::new("")).join(next);
    }
    target
}

/// Changes the text of the file under a lock. A change that would make the file invalid is not written. Returns whether
/// the configuration changed.
fn edit(path: &Path, change: impl Fn(&mut DocumentMut) -> Result<(), String>) -> Result<bool, ConfigError> {
    let failed = |error: io::Error| ConfigError::new(path, format!("the file cannot be changed: {error}"));
    // Write to the target, so that a symbolic link is not replaced by a file.
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| resolve_link(path));
    private_file::create_private_folder(target.parent().unwrap_or(Path::new("."))).map_err(failed)?;
    let mut lock = target.clone().into_os_string();
    lock.push(".lock");
    let lock =
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(lock).map_err(failed)?;
    lock.lock().map_err(failed)?; // until it is dropped
    for _ in 0..MAX_ATTEMPTS {
        let before = file::stamp(&target);
        let text = file::read_text(&target)?.unwrap_or_default();
        let config = Config::parse(path, &text)?;
        let mut document: DocumentMut =
            text.parse().map_err(|error: toml_edit::TomlError| ConfigError::new(path, error.message()))?;
        change(&mut document).map_err(|text| ConfigError::new(path, text))?;
        let text = document.to_string();
        let has_changed = Config::parse(path, &text)? != config;
        // An editor does not take the lock, so check for a concurrent change.
        if file::stamp(&target) == before {
            private_file::write(&target, text.as_bytes(), &SystemPlatform).map_err(failed)?;
            return Ok(has_changed);
        }
    }
    Err(ConfigError::new(path, "the file was changed several times by another process: try again later"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::thread;

    use serde_json::json;
    use tempfile::TempDir;

    use super::*;

    const TEXT: &str = r#"# Ours.
listen = "127.0.0.1:0" # here

# The files.
[servers.files]
command = "x" # as it is
enabled = true # for now

# Elsewhere.
[servers.far]
url = "https://a.example/mcp"
"#;

    fn folder(text: &str) -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("linchpin.toml");
        private_file::write(&path, text.as_bytes(), &SystemPlatform).unwrap();
        (folder, path)
    }

    fn program(path: &Path, slug: &str) -> Result<(), String> {
        add_server(path, slug, &json!({ "command": "npx" }))
    }

    fn add_server(path: &Path, slug: &str, fields: &Value) -> Result<(), String> {
        add(path, slug, fields.as_object().unwrap()).map_err(|problem| problem.to_string())
    }

    #[test]
    fn a_program_is_added_and_everything_else_stays() {
        let (_folder, path) = folder(TEXT);
        let fields = json!({
            "name": "Every \"thing\"", "description": null, "command": "npx", "args": ["-y", "server\\everything"],
            "env": {"KEY": "a=b"}, "timeout_ms": 5_000, "enabled": false,
        });
        add_server(&path, "every", &fields).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with(TEXT), "{text}");
        let expected = "\n[servers.every]\nname = 'Every \"thing\"'\ncommand = \"npx\"\nargs = [\"-y\", 'server\\everything']\n\
                        env = { KEY = \"a=b\" }\ntimeout_ms = 5000\nenabled = false\n";
        assert_eq!(&text[TEXT.len()..], expected);
        assert_eq!(Config::parse(&path, &text).unwrap().servers.len(), 3);
        let again = program(&path, "every").unwrap_err();
        assert!(again.contains("server `every` already exists"), "{again}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }

    #[test]
    fn the_first_program_makes_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep").join("linchpin.toml");
        program(&path, "one").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "[servers.one]\ncommand = \"npx\"\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn servers_are_switched_and_removed() {
        let (_folder, path) = folder(TEXT);
        set_enabled(&path, "files", false).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), TEXT.replace("enabled = true", "enabled = false"));
        set_enabled(&path, "files", true).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), TEXT);
        set_demo_enabled(&path, false).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, TEXT.replace("# here\n", "# here\ndemo = false\n"));
        assert!(!Config::parse(&path, &text).unwrap().demo);
        fs::write(&path, TEXT).unwrap();
        set_enabled(&path, "far", false).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{TEXT}enabled = false\n"));
        remove(&path, "far").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), TEXT.split("\n# Elsewhere").next().unwrap());
        for error in [remove(&path, "far"), set_enabled(&path, "far", true)] {
            let error = error.unwrap_err().to_string();
            assert!(error.ends_with("contains no server `far`"), "{error}");
        }
    }

    #[test]
    fn fields_are_changed_and_taken_away_and_everything_else_stays() {
        let (_folder, path) = folder(TEXT);
        let changed = |slug: &str, changes: Value| {
            let done = update(&path, slug, changes.as_object().unwrap());
            done.map_err(|problem| problem.to_string())
        };
        assert_eq!(changed("files", json!({ "enabled": false, "timeout_ms": 5_000 })), Ok(true));
        let expected =
            TEXT.replace("enabled = true # for now\n", "enabled = false # for now\ntimeout_ms = 5000\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
        assert_eq!(changed("files", json!({ "enabled": false })), Ok(false));
        assert_eq!(
            changed("files", json!({ "enabled": true, "timeout_ms": null, "description": null })),
            Ok(true)
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), TEXT);
        let error = changed("files", json!({ "url": "https://a.example" })).unwrap_err();
        assert!(error.contains("`servers.files.url`: must not be set together with `command`"), "{error}");
        assert!(changed("nothing", json!({})).unwrap_err().ends_with("contains no server `nothing`"));
        assert_eq!(fs::read_to_string(&path).unwrap(), TEXT);
        let folded = format!("{TEXT}[servers.far.headers]\nx-old = \"1\"\n");
        private_file::write(&path, folded.as_bytes(), &SystemPlatform).unwrap();
        assert_eq!(changed("far", json!({ "headers": { "x-new": "2" } })), Ok(true));
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{TEXT}headers = {{ x-new = \"2\" }}\n"));
    }

    #[test]
    fn nothing_wrong_is_written_and_what_is_wrong_is_not_touched() {
        for (text, slug, fields, expected) in [
            (
                TEXT,
                "Not One",
                json!({"command": "x"}),
                "`servers.Not One`: must be 1 to 32 lowercase letters",
            ),
            (TEXT, "a", json!({"command": ""}), "`servers.a.command`"),
            ("a = ", "a", json!({"command": "x"}), "line 1, column 5"),
            ("servers = 1", "a", json!({"command": "x"}), "`servers`"),
        ] {
            let (_folder, path) = folder(text);
            let error = add_server(&path, slug, &fields).unwrap_err();
            assert!(error.contains(expected), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        let (_folder, path) = folder("servers = { a = { command = \"x\" } }\n");
        program(&path, "b").unwrap();
        set_enabled(&path, "a", false).unwrap();
        let config = Config::parse(&path, &fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(
            config.servers.iter().map(|server| server.settings.enabled).collect::<Vec<_>>(),
            [false, true]
        );
    }

    #[test]
    fn a_link_stays_one() {
        let (folder, path) = folder("");
        let link = folder.path().join("link.toml");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        program(&link, "a").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(fs::read_to_string(&path).unwrap().contains("[servers.a]"));
    }

    #[test]
    fn a_link_to_what_is_not_there_yet_stays_one() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::os::unix::fs::symlink("second.toml", at("first.toml")).unwrap();
        std::os::unix::fs::symlink(at("deep/linchpin.toml"), at("second.toml")).unwrap();
        program(&at("first.toml"), "a").unwrap();
        assert!(fs::symlink_metadata(at("first.toml")).unwrap().is_symlink());
        assert!(fs::read_to_string(at("deep/linchpin.toml")).unwrap().contains("[servers.a]"));
        std::os::unix::fs::symlink(at("round.toml"), at("round.toml")).unwrap();
        program(&at("round.toml"), "a").unwrap_err();
        assert!(fs::symlink_metadata(at("round.toml")).unwrap().is_symlink());
    }

    #[test]
    fn of_many_at_once_none_is_lost() {
        let (folder, path) = folder(TEXT);
        thread::scope(|scope| {
            for number in 0..16 {
                let path = &path;
                scope.spawn(move || program(path, &format!("s-{number}")).unwrap());
            }
        });
        let config = Config::parse(&path, &fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(config.servers.len(), 18);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "the file and its lock");
    }
}
