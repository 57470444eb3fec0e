//! Configuration files of other clients: their paths, and the servers that they contain.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use linchpin_hub_core::server::NEEDED;
use serde_json::{Map, Value};

use super::variables::{Around, Input, Readable};
use super::{Found, jsonc, server};
use crate::blocking_input::apart;
use crate::config::{Problem, variable};
use crate::error::{Failure, Kind};

/// Maximum size of a file.
const LARGEST: u64 = 64 << 20;

/// Client that a file belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    ClaudeDesktop,
    ClaudeCode,
    Cursor,
    #[value(name = "vscode")]
    VsCode,
}

/// File to import.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) format: Option<Format>,
}

/// Returns the named files, or the existing default files of the current user and directory.
pub(super) fn sources(files: &[PathBuf], format: Option<Format>) -> Result<Vec<Source>, Failure> {
    if !files.is_empty() {
        return Ok(files.iter().map(|path| Source { path: path.clone(), format }).collect());
    }
    let mut usual = usual(home().as_deref(), &std::env::current_dir()?);
    usual.retain(|source| format.is_none_or(|format| source.format == Some(format)));
    let looked: Vec<_> = usual.iter().map(|source| format!("  {}", source.path.display())).collect();
    usual.retain(|source| source.path.is_file());
    if usual.is_empty() {
        let text = format!("no file to import: name one, or create one of these:\n{}", looked.join("\n"));
        return Err(Failure::new(Kind::Other, text));
    }
    Ok(usual)
}

fn home() -> Option<PathBuf> {
    variable("HOME").map(PathBuf::from)
}

/// Returns the default paths of all clients, for the user and for the current directory.
fn usual(home: Option<&Path>, here: &Path) -> Vec<Source> {
    let mut all: Vec<(Format, PathBuf)> = Vec::new();
    if let Some(home) = home {
        let mac = home.join("Library/Application Support");
        let config = variable("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        for folder in [config.unwrap_or_else(|| home.join(".config")), mac] {
            all.push((Format::ClaudeDesktop, folder.join("Claude/claude_desktop_config.json")));
            all.push((Format::VsCode, folder.join("Code/User/mcp.json")));
            all.push((Format::VsCode, folder.join("Code/User/settings.json")));
        }
        all.push((Format::ClaudeCode, home.join(".claude.json")));
        all.push((Format::Cursor, home.join(".cursor/mcp.json")));
    }
    all.push((Format::ClaudeCode, here.join(".mcp.json")));
    all.push((Format::Cursor, here.join(".cursor/mcp.json")));
    all.push((Format::VsCode, here.join(".vscode/mcp.json")));
    let mut sources: Vec<Source> = Vec::new();
    for (format, path) in all {
        let source = Source { path, format: Some(format) };
        if !sources.contains(&source) {
            sources.push(source);
        }
    }
    sources
}

/// Reads and parses a file.
pub(super) async fn read(source: &Source) -> Result<Value, Problem> {
    let path = &source.path;
    let failed = |error: std::io::Error| Problem::new(path, format!("cannot be read: {error}"));
    let file = path.clone();
    let read = apart(move || {
        let mut text = String::new();
        fs::File::open(file)?.take(LARGEST + 1).read_to_string(&mut text).map(|_| text)
    });
    let text = read.await.map_err(failed)?;
    if text.len() as u64 > LARGEST {
        return Err(Problem::new(
            path,
            format!("larger than {} MB: check that it is the right file", LARGEST >> 20),
        ));
    }
    jsonc::read(path, &text)
}

/// Returns all servers of a file with this content. `index` is the index of the file.
pub(super) fn found(
    source: &Source,
    index: usize,
    value: Value,
    confirmed: &Confirmed,
) -> Result<Vec<Found>, Problem> {
    servers(source, index, value, home(), confirmed)
}

fn servers(
    source: &Source,
    index: usize,
    value: Value,
    home: Option<PathBuf>,
    confirmed: &Confirmed,
) -> Result<Vec<Found>, Problem> {
    let path = &source.path;
    let Value::Object(mut all) = value else {
        return Err(Problem::new(path, "must be an object"));
    };
    let format = source
        .format
        .or_else(|| known(path, &all))
        .ok_or_else(|| Problem::new(path, "unknown client: name the client of this file with --format"))?;
    let folder = folder(path, home.as_deref());
    let mut around = Around { home, folder, ..Around::default() };
    let (mut found, file) = (Vec::new(), File { path, index, format, confirmed });
    if format == Format::VsCode {
        let (above, mut all) = match all.remove("mcp") {
            Some(mcp) if !all.contains_key("servers") => ("mcp.", object(path, "mcp", mcp)?),
            _ => ("", all),
        };
        around.inputs = inputs(path, &format!("{above}inputs"), all.remove("inputs"))?;
        file.take(&around, &format!("{above}servers"), all.remove("servers"), &mut found)?;
        return Ok(found);
    }
    file.take(&around, "mcpServers", all.remove("mcpServers"), &mut found)?;
    let projects = all.remove("projects").filter(|_| format == Format::ClaudeCode);
    for (folder, project) in
        projects.map(|all| object(path, "projects", all)).transpose()?.unwrap_or_default()
    {
        let at = format!("projects.{folder}");
        let servers = object(path, &at, project)?.remove("mcpServers");
        around.folder = Some(folder.into());
        file.take(&around, &format!("{at}.mcpServers"), servers, &mut found)?;
    }
    Ok(found)
}

/// Detects the client of a file from its name and content.
fn known(path: &Path, all: &Map<String, Value>) -> Option<Format> {
    let name = path.file_name()?.to_str()?;
    let above = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    let has = |key: &str| all.contains_key(key);
    match name {
        "claude_desktop_config.json" => Some(Format::ClaudeDesktop),
        ".mcp.json" | ".claude.json" => Some(Format::ClaudeCode),
        _ if has("servers") || has("mcp") || above == Some(".vscode") => Some(Format::VsCode),
        _ if above == Some(".cursor") => Some(Format::Cursor),
        _ if has("projects") => Some(Format::ClaudeCode),
        _ => None,
    }
}

/// Returns the project folder of a file; `None` for files that apply to all folders of a user.
fn folder(path: &Path, home: Option<&Path>) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    let above = path.parent()?;
    let folder = match (path.file_name()?.to_str()?, above.file_name().and_then(|name| name.to_str())) {
        (".mcp.json", _) => above,
        (_, Some(".cursor" | ".vscode")) => above.parent()?,
        _ => return None,
    };
    (Some(folder) != home).then(|| folder.to_owned())
}

fn object(path: &Path, at: &str, value: Value) -> Result<Map<String, Value>, Problem> {
    match value {
        Value::Object(members) => Ok(members),
        _ => Err(Problem::new(path, "must be an object").field(at)),
    }
}

fn inputs(path: &Path, at: &str, value: Option<Value>) -> Result<BTreeMap<String, Input>, Problem> {
    let wrong = || Problem::new(path, "must be a list of objects with an `id`").field(at);
    let Some(value) = value else { return Ok(BTreeMap::new()) };
    let read = |input: &Value| {
        let id = input.get("id")?.as_str()?.to_owned();
        let is_password = input.get("password") == Some(&Value::Bool(true));
        let default = input.get("default").and_then(Value::as_str).map(str::to_owned);
        Some((id, Input { is_password, default }))
    };
    value.as_array().and_then(|list| list.iter().map(read).collect()).ok_or_else(wrong)
}

/// Index of a file, and index of a server in it.
pub(super) type Position = (usize, usize);

/// Confirmation of a user for one server.
pub(super) struct Confirmation {
    /// Environment variables that the server may receive.
    pub(super) names: BTreeSet<String>,
    /// URL or command that receives them.
    pub(super) target: Option<String>,
}

/// Confirmations of all servers. The variables of a server that is not listed are read only to compare it with the
/// existing server.
pub(super) type Confirmed = BTreeMap<Position, Confirmation>;

fn readable(confirmed: &Confirmed, position: Position, is_program: bool) -> Readable {
    let Some(Confirmation { names, .. }) = confirmed.get(&position) else { return Readable::All };
    // Every stdio server receives these variables anyway.
    let needed = NEEDED.into_iter().filter(|_| is_program).map(str::to_owned);
    Readable::Only(names.iter().cloned().chain(needed).collect())
}

/// File whose servers are read.
struct File<'a> {
    path: &'a Path,
    index: usize,
    format: Format,
    confirmed: &'a Confirmed,
}

impl File<'_> {
    /// Adds the servers below `at`. An invalid server does not affect the others.
    fn take(
        &self,
        around: &Around,
        at: &str,
        servers: Option<Value>,
        found: &mut Vec<Found>,
    ) -> Result<(), Problem> {
        let File { path, index, format, confirmed } = self;
        let servers = servers.filter(|servers| !servers.is_null()).map(|servers| object(path, at, servers));
        for (name, value) in servers.transpose()?.unwrap_or_default() {
            let is_program = value.get("command").is_some_and(|command| !command.is_null());
            let (at, position) = (format!("{at}.{name}"), (*index, found.len()));
            let place = format!("{}: {at}", path.display());
            let mut references = server::references(*format, &value);
            references
                .retain(|name| variable(name).is_some() && !(is_program && NEEDED.contains(&name.as_str())));
            let around = Around { readable: readable(confirmed, position, is_program), ..around.clone() };
            let wanted = server::read(*format, &around, &name, value).map_err(|wrong| wrong.below(&at));
            found.push(Found { name, place, position, references, wanted });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn source(path: &str) -> Source {
        Source { path: path.into(), format: None }
    }

    fn read(path: &str, value: Value) -> Result<Vec<Found>, String> {
        servers(&source(path), 0, value, Some("/home/ada".into()), &Confirmed::new())
            .map_err(|problem| problem.to_string())
    }

    /// Confirms all variables for the server at this position.
    fn confirmed(position: Position) -> Confirmed {
        let names = ["PATH", "HOME"].map(str::to_owned).into();
        [(position, Confirmation { names, target: None })].into()
    }

    #[test]
    fn a_confirmation_is_for_one_server_whatever_its_name() {
        let server = |host: &str| json!({"url": format!("https://{host}.example/${{PATH:-none}}")});
        let value = json!({"projects": {
            "a": {"mcpServers": {"b.mcpServers.c": server("one")}},
            "a.mcpServers.b": {"mcpServers": {"c": server("two")}},
        }});
        let mut confirmed = confirmed((0, 0));
        confirmed.insert((0, 1), Confirmation { names: BTreeSet::new(), target: None });
        let found = servers(&source("/p/.mcp.json"), 0, value, None, &confirmed).unwrap();
        assert_eq!(found[0].place, found[1].place);
        let positions: Vec<_> = found.iter().map(|found| found.position).collect();
        assert_eq!(positions, [(0, 0), (0, 1)]);
        let url = found[1].wanted.as_ref().unwrap().fields["url"].as_str();
        assert_eq!(url, Some("https://two.example/none"), "the variable is not read");
    }

    #[test]
    fn a_url_server_gets_no_variable_that_only_programs_get() {
        let value = json!({"mcpServers": {"a": {"command": null, "url": "https://a.example/${HOME:-none}"}}});
        let nothing = Confirmation { names: BTreeSet::new(), target: None };
        let confirmed = [((0, 0), nothing)].into();
        let found = servers(&source("/p/.mcp.json"), 0, value, None, &confirmed).unwrap();
        assert_eq!(found[0].references, ["HOME"]);
        let url = found[0].wanted.as_ref().unwrap().fields["url"].as_str();
        assert_eq!(url, Some("https://a.example/none"));
    }

    #[test]
    fn a_client_is_known_by_its_file() {
        let program = json!({"x": {"command": "y"}});
        for (path, key, format) in [
            ("/c/claude_desktop_config.json", "mcpServers", Some(Format::ClaudeDesktop)),
            ("/project/.mcp.json", "mcpServers", Some(Format::ClaudeCode)),
            ("/project/.cursor/mcp.json", "mcpServers", Some(Format::Cursor)),
            ("/project/.vscode/mcp.json", "servers", Some(Format::VsCode)),
            ("/c/Code/User/settings.json", "mcp", Some(Format::VsCode)),
            ("/project/other.json", "mcpServers", None),
        ] {
            let all = json!({ key: program });
            assert_eq!(known(Path::new(path), all.as_object().unwrap()), format, "{path}");
        }
        assert!(read("/project/other.json", json!({"mcpServers": {}})).unwrap_err().contains("--format"));
    }

    #[test]
    fn servers_are_found_at_every_place() {
        let program = json!({"command": "y"});
        let names = |found: Vec<Found>| found.into_iter().map(|found| found.place).collect::<Vec<_>>();
        let code = json!({"mcpServers": {"a": program}, "projects": {"/p": {"mcpServers": {"b": program}}, "/q": {}}});
        assert_eq!(
            names(read("/h/.claude.json", code).unwrap()),
            ["/h/.claude.json: mcpServers.a", "/h/.claude.json: projects./p.mcpServers.b"]
        );
        let settings = json!({"mcp": {"servers": {"a": program}, "inputs": []}, "editor.tabSize": 2});
        assert_eq!(names(read("/c/settings.json", settings).unwrap()), ["/c/settings.json: mcp.servers.a"]);
        assert!(read("/project/.mcp.json", json!({})).unwrap().is_empty());
    }

    #[test]
    fn wrong_types_are_named() {
        for (value, expected) in [
            (json!([]), "`/w/.mcp.json`: must be an object"),
            (json!({"mcpServers": []}), "`/w/.mcp.json`: `mcpServers`: must be an object"),
            (json!({"projects": {"/p": 1}}), "`/w/.mcp.json`: `projects./p`: must be an object"),
        ] {
            assert_eq!(read("/w/.mcp.json", value).unwrap_err(), expected);
        }
        let wrong = read("/w/.vscode/mcp.json", json!({"inputs": [{}], "servers": {}})).unwrap_err();
        assert!(wrong.contains("`inputs`: must be a list of objects"), "{wrong}");
    }

    #[test]
    fn folders_of_files() {
        let of = |path: &str| folder(Path::new(path), Some(Path::new("/home/ada")));
        assert_eq!(of("/project/.mcp.json"), Some("/project".into()));
        assert_eq!(of("/project/.vscode/mcp.json"), Some("/project".into()));
        assert_eq!(of("/home/ada/.cursor/mcp.json"), None);
        assert_eq!(of("/home/ada/.claude.json"), None);
    }

    #[test]
    fn the_usual_places() {
        let usual = usual(Some(Path::new("/home/ada")), Path::new("/home/ada"));
        let has = |path: &str| usual.iter().filter(|source| source.path == Path::new(path)).count();
        assert_eq!(has("/home/ada/.cursor/mcp.json"), 1, "once");
        assert_eq!(has("/home/ada/Library/Application Support/Claude/claude_desktop_config.json"), 1);
    }
}
