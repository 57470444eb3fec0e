//! Configuration files of other clients: their paths, and the servers that they contain.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use linchpin_hub_core::server::BASE_ENV_VARS;
use serde_json::{Map, Value};

use super::variables::{Input, ReadableVariables, VariableContext};
use super::{FoundServer, jsonc, server};
use crate::blocking_input::read_on_thread;
use crate::config::{ConfigError, env_variable};
use crate::error::{CliError, CliErrorKind};

/// Maximum size of a file to import.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// MCP client whose configuration file is imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ClientFormat {
    ClaudeDesktop,
    ClaudeCode,
    Cursor,
    #[value(name = "vscode")]
    VsCode,
}

/// Configuration file of an MCP client, from which servers are imported.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) format: Option<ClientFormat>,
}

/// Returns the named files, or the existing default files of the current user and directory.
pub(super) fn sources(files: &[PathBuf], format: Option<ClientFormat>) -> Result<Vec<Source>, CliError> {
    if !files.is_empty() {
        return Ok(files.iter().map(|path| Source { path: path.clone(), format }).collect());
    }
    let mut defaults = default_sources(home_dir().as_deref(), &std::env::current_dir()?);
    defaults.retain(|source| format.is_none_or(|format| source.format == Some(format)));
    let paths: Vec<_> = defaults.iter().map(|source| format!("  {}", source.path.display())).collect();
    defaults.retain(|source| source.path.is_file());
    if defaults.is_empty() {
        let text = format!("no file to import: name one, or create one of these:\n{}", paths.join("\n"));
        return Err(CliError::new(CliErrorKind::Other, text));
    }
    Ok(defaults)
}

fn home_dir() -> Option<PathBuf> {
    env_variable("HOME").map(PathBuf::from)
}

/// Returns the default configuration files of all MCP clients, for the user and for the current directory.
fn default_sources(home: Option<&Path>, project: &Path) -> Vec<Source> {
    let mut all: Vec<(ClientFormat, PathBuf)> = Vec::new();
    if let Some(home) = home {
        let mac = home.join("Library/Application Support");
        let config = env_variable("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        for folder in [config.unwrap_or_else(|| home.join(".config")), mac] {
            all.push((ClientFormat::ClaudeDesktop, folder.join("Claude/claude_desktop_config.json")));
            all.push((ClientFormat::VsCode, folder.join("Code/User/mcp.json")));
            all.push((ClientFormat::VsCode, folder.join("Code/User/settings.json")));
        }
        all.push((ClientFormat::ClaudeCode, home.join(".claude.json")));
        all.push((ClientFormat::Cursor, home.join(".cursor/mcp.json")));
    }
    all.push((ClientFormat::ClaudeCode, project.join(".mcp.json")));
    all.push((ClientFormat::Cursor, project.join(".cursor/mcp.json")));
    all.push((ClientFormat::VsCode, project.join(".vscode/mcp.json")));
    let mut sources: Vec<Source> = Vec::new();
    for (format, path) in all {
        let source = Source { path, format: Some(format) };
        if !sources.contains(&source) {
            sources.push(source);
        }
    }
    sources
}

/// Reads and parses a file to import.
pub(super) async fn read(source: &Source) -> Result<Value, ConfigError> {
    let path = &source.path;
    let failed = |error: std::io::Error| ConfigError::new(path, format!("the file cannot be read: {error}"));
    let file = path.clone();
    let read = read_on_thread(move || {
        let mut text = String::new();
        fs::File::open(file)?.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map(|_| text)
    });
    let text = read.await.map_err(failed)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(ConfigError::new(
            path,
            format!("the file is larger than {} MB: check that it is the right file", MAX_FILE_BYTES >> 20),
        ));
    }
    jsonc::read(path, &text)
}

/// Returns all servers that the configuration file of an MCP client with this content contains. `index` is the index of
/// the file.
pub(super) fn read_servers(
    source: &Source,
    index: usize,
    value: Value,
    confirmed: &Confirmations,
) -> Result<Vec<FoundServer>, ConfigError> {
    servers_with_home(source, index, value, home_dir(), confirmed)
}

fn servers_with_home(
    source: &Source,
    index: usize,
    value: Value,
    home: Option<PathBuf>,
    confirmed: &Confirmations,
) -> Result<Vec<FoundServer>, ConfigError> {
    let path = &source.path;
    let Value::Object(mut all) = value else {
        return Err(ConfigError::new(path, "must be an object"));
    };
    let format = source.format.or_else(|| detect_format(path, &all)).ok_or_else(|| {
        ConfigError::new(path, "unknown client: name the client of this file with --format")
    })?;
    let folder = project_folder(path, home.as_deref());
    let mut context = VariableContext { home, folder, ..VariableContext::default() };
    let (mut found, file) = (Vec::new(), SourceFile { path, index, format, confirmed });
    if format == ClientFormat::VsCode {
        let (prefix, mut all) = match all.remove("mcp") {
            Some(mcp) if !all.contains_key("servers") => ("mcp.", require_object(path, "mcp", mcp)?),
            _ => ("", all),
        };
        context.inputs = parse_inputs(path, &format!("{prefix}inputs"), all.remove("inputs"))?;
        file.collect_servers(&context, &format!("{prefix}servers"), all.remove("servers"), &mut found)?;
        return Ok(found);
    }
    file.collect_servers(&context, "mcpServers", all.remove("mcpServers"), &mut found)?;
    let projects = all.remove("projects").filter(|_| format == ClientFormat::ClaudeCode);
    for (folder, project) in
        projects.map(|all| require_object(path, "projects", all)).transpose()?.unwrap_or_default()
    {
        let at = format!("projects.{folder}");
        let servers = require_object(path, &at, project)?.remove("mcpServers");
        context.folder = Some(folder.into());
        file.collect_servers(&context, &format!("{at}.mcpServers"), servers, &mut found)?;
    }
    Ok(found)
}

/// Detects the client app of a file to import from its name and content.
fn detect_format(path: &Path, all: &Map<String, Value>) -> Option<ClientFormat> {
    let name = path.file_name()?.to_str()?;
    let folder = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    let has_key = |key: &str| all.contains_key(key);
    match name {
        "claude_desktop_config.json" => Some(ClientFormat::ClaudeDesktop),
        ".mcp.json" | ".claude.json" => Some(ClientFormat::ClaudeCode),
        _ if has_key("servers") || has_key("mcp") || folder == Some(".vscode") => Some(ClientFormat::VsCode),
        _ if folder == Some(".cursor") => Some(ClientFormat::Cursor),
        _ if has_key("projects") => Some(ClientFormat::ClaudeCode),
        _ => None,
    }
}

/// Returns the project folder that a client's configuration file belongs to; `None` for files of a user.
fn project_folder(path: &Path, home: Option<&Path>) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    let parent = path.parent()?;
    let folder = match (path.file_name()?.to_str()?, parent.file_name().and_then(|name| name.to_str())) {
        (".mcp.json", _) => parent,
        (_, Some(".cursor" | ".vscode")) => parent.parent()?,
        _ => return None,
    };
    (Some(folder) != home).then(|| folder.to_owned())
}

fn require_object(path: &Path, at: &str, value: Value) -> Result<Map<String, Value>, ConfigError> {
    match value {
        Value::Object(members) => Ok(members),
        _ => Err(ConfigError::new(path, "must be an object").with_field(at)),
    }
}

fn parse_inputs(path: &Path, at: &str, value: Option<Value>) -> Result<BTreeMap<String, Input>, ConfigError> {
    let invalid = || ConfigError::new(path, "must be a list of objects with an `id`").with_field(at);
    let Some(value) = value else { return Ok(BTreeMap::new()) };
    let read = |input: &Value| {
        let id = input.get("id")?.as_str()?.to_owned();
        let is_password = input.get("password") == Some(&Value::Bool(true));
        let default = input.get("default").and_then(Value::as_str).map(str::to_owned);
        Some((id, Input { is_password, default }))
    };
    value.as_array().and_then(|list| list.iter().map(read).collect()).ok_or_else(invalid)
}

/// Position of an imported server: index of its file, and its index in that file.
pub(super) type Position = (usize, usize);

/// Environment variables that a user allows an imported server to receive.
pub(super) struct Confirmation {
    /// Environment variables that the user allows the server to receive.
    pub(super) names: BTreeSet<String>,
    /// URL or command of the server that receives the variables.
    pub(super) target: Option<String>,
}

/// Environment variables that the user allows each server of an import to receive, by the server's position. The variables of a server that is not
/// listed are read only to compare it with the existing server.
pub(super) type Confirmations = BTreeMap<Position, Confirmation>;

fn readable_variables(confirmed: &Confirmations, position: Position, is_program: bool) -> ReadableVariables {
    let Some(Confirmation { names, .. }) = confirmed.get(&position) else { return ReadableVariables::All };
    // Every stdio server receives these variables anyway.
    let needed = BASE_ENV_VARS.into_iter().filter(|_| is_program).map(str::to_owned);
    ReadableVariables::Only(names.iter().cloned().chain(needed).collect())
}

/// Configuration file of an MCP client while its servers are read.
struct SourceFile<'a> {
    path: &'a Path,
    index: usize,
    format: ClientFormat,
    confirmed: &'a Confirmations,
}

impl SourceFile<'_> {
    /// Adds the servers at the position `at` of a file to import to `found`. An invalid server does not affect the
    /// others.
    fn collect_servers(
        &self,
        context: &VariableContext,
        at: &str,
        servers: Option<Value>,
        found: &mut Vec<FoundServer>,
    ) -> Result<(), ConfigError> {
        let SourceFile { path, index, format, confirmed } = self;
        let servers =
            servers.filter(|servers| !servers.is_null()).map(|servers| require_object(path, at, servers));
        for (name, value) in servers.transpose()?.unwrap_or_default() {
            let is_program = value.get("command").is_some_and(|command| !command.is_null());
            let (at, position) = (format!("{at}.{name}"), (*index, found.len()));
            let location = format!("{}: {at}", path.display());
            let mut references = server::references(*format, &value);
            references.retain(|name| {
                env_variable(name).is_some() && !(is_program && BASE_ENV_VARS.contains(&name.as_str()))
            });
            let context = VariableContext {
                readable: readable_variables(confirmed, position, is_program),
                ..context.clone()
            };
            let imported =
                server::read(*format, &context, &name, value).map_err(|error| error.with_path(&at));
            found.push(FoundServer { name, location, position, references, imported });
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

    fn read(path: &str, value: Value) -> Result<Vec<FoundServer>, String> {
        servers_with_home(&source(path), 0, value, Some("/home/ada".into()), &Confirmations::new())
            .map_err(|problem| problem.to_string())
    }

    /// Confirms all variables for the server at this position.
    fn confirmed(position: Position) -> Confirmations {
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
        let found = servers_with_home(&source("/p/.mcp.json"), 0, value, None, &confirmed).unwrap();
        assert_eq!(found[0].location, found[1].location);
        let positions: Vec<_> = found.iter().map(|found| found.position).collect();
        assert_eq!(positions, [(0, 0), (0, 1)]);
        let url = found[1].imported.as_ref().unwrap().fields["url"].as_str();
        assert_eq!(url, Some("https://two.example/none"), "the variable is not read");
    }

    #[test]
    fn a_url_server_gets_no_variable_that_only_programs_get() {
        let value = json!({"mcpServers": {"a": {"command": null, "url": "https://a.example/${HOME:-none}"}}});
        let nothing = Confirmation { names: BTreeSet::new(), target: None };
        let confirmed = [((0, 0), nothing)].into();
        let found = servers_with_home(&source("/p/.mcp.json"), 0, value, None, &confirmed).unwrap();
        assert_eq!(found[0].references, ["HOME"]);
        let url = found[0].imported.as_ref().unwrap().fields["url"].as_str();
        assert_eq!(url, Some("https://a.example/none"));
    }

    #[test]
    fn a_client_is_known_by_its_file() {
        let program = json!({"x": {"command": "y"}});
        for (path, key, format) in [
            ("/c/claude_desktop_config.json", "mcpServers", Some(ClientFormat::ClaudeDesktop)),
            ("/project/.mcp.json", "mcpServers", Some(ClientFormat::ClaudeCode)),
            ("/project/.cursor/mcp.json", "mcpServers", Some(ClientFormat::Cursor)),
            ("/project/.vscode/mcp.json", "servers", Some(ClientFormat::VsCode)),
            ("/c/Code/User/settings.json", "mcp", Some(ClientFormat::VsCode)),
            ("/project/other.json", "mcpServers", None),
        ] {
            let all = json!({ key: program });
            assert_eq!(detect_format(Path::new(path), all.as_object().unwrap()), format, "{path}");
        }
        assert!(read("/project/other.json", json!({"mcpServers": {}})).unwrap_err().contains("--format"));
    }

    #[test]
    fn servers_are_found_at_every_place() {
        let program = json!({"command": "y"});
        let names =
            |found: Vec<FoundServer>| found.into_iter().map(|found| found.location).collect::<Vec<_>>();
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
        let error = read("/w/.vscode/mcp.json", json!({"inputs": [{}], "servers": {}})).unwrap_err();
        assert!(error.contains("`inputs`: must be a list of objects"), "{error}");
    }

    #[test]
    fn folders_of_files() {
        let folder_of = |path: &str| project_folder(Path::new(path), Some(Path::new("/home/ada")));
        assert_eq!(folder_of("/project/.mcp.json"), Some("/project".into()));
        assert_eq!(folder_of("/project/.vscode/mcp.json"), Some("/project".into()));
        assert_eq!(folder_of("/home/ada/.cursor/mcp.json"), None);
        assert_eq!(folder_of("/home/ada/.claude.json"), None);
    }

    #[test]
    fn the_usual_places() {
        let defaults = default_sources(Some(Path::new("/home/ada")), Path::new("/home/ada"));
        let count_of = |path: &str| defaults.iter().filter(|source| source.path == Path::new(path)).count();
        assert_eq!(count_of("/home/ada/.cursor/mcp.json"), 1, "once");
        assert_eq!(count_of("/home/ada/Library/Application Support/Claude/claude_desktop_config.json"), 1);
    }
}
