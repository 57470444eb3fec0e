//! Server entries for the configuration files of other MCP clients, so that these use the servers without the hub: the
//! counterpart of an import. Secrets are left out; the client takes them from its environment.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::Hub;
use super::servers::left_file;
use crate::actor::Scope;
use crate::error::{Error, Result};
use crate::secrets::redact::looks_secret;
use crate::secrets::scan::{has_secret, in_arguments, is_secret};
use crate::server::{Authentication, CredentialMode, Launch, NEEDED, Remote, Server, Transport};

/// MCP client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    /// Claude Desktop.
    ClaudeDesktop,
    /// Claude Code.
    ClaudeCode,
    /// Cursor.
    Cursor,
    /// VS Code.
    VsCode,
}

/// Configuration for a client.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Snippet {
    /// Content of the configuration file.
    pub file: Value,
    /// Notes about servers, including skipped ones.
    pub notes: Vec<String>,
}

impl FromStr for Client {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "claude-desktop" => Ok(Client::ClaudeDesktop),
            "claude-code" => Ok(Client::ClaudeCode),
            "cursor" => Ok(Client::Cursor),
            "vscode" => Ok(Client::VsCode),
            _ => Err(Error::not_one_of("client", text, "claude-desktop, claude-code, cursor or vscode")),
        }
    }
}

impl Client {
    fn name(self) -> &'static str {
        match self {
            Client::ClaudeDesktop => "Claude Desktop",
            Client::ClaudeCode => "Claude Code",
            Client::Cursor => "Cursor",
            Client::VsCode => "VS Code",
        }
    }

    /// Returns a reference to an environment variable, empty if the client does not support one.
    fn reference(self, variable: &str) -> String {
        match self {
            Client::ClaudeDesktop => String::new(),
            Client::ClaudeCode => format!("${{{variable}}}"),
            Client::Cursor | Client::VsCode => format!("${{env:{variable}}}"),
        }
    }
}

impl Hub {
    /// Returns the configuration for a client with these servers. Default: all enabled servers.
    pub async fn snippet(&self, scope: Scope, client: Client, names: &[String]) -> Result<Snippet> {
        scope.person()?;
        let mut servers = Vec::new();
        for name in names {
            let server = self.find_server(scope.tenant(), name).await?;
            left_file(&server)?;
            servers.push(server);
        }
        if names.is_empty() {
            servers = self.every_server(scope.tenant()).await?;
            servers.retain(|server| server.settings.enabled);
            servers.sort_unstable_by(|one, other| one.slug.as_str().cmp(other.slug.as_str()));
        }
        let (mut entries, mut notes) = (Map::new(), Vec::new());
        for server in &servers {
            let slug = server.slug.as_str();
            let mut writing = Writing { client, slug, notes: Vec::new() };
            match writing.entry(server) {
                Ok(entry) => drop(entries.insert(slug.to_owned(), entry)),
                Err(why) => writing.notes.push(format!("skipped: {why}")),
            }
            notes.extend(writing.notes.into_iter().map(|note| format!("`{slug}`: {note}")));
        }
        let key = if client == Client::VsCode { "servers" } else { "mcpServers" };
        Ok(Snippet { file: json!({ key: entries }), notes })
    }
}

/// Writer of one server entry.
struct Writing<'a> {
    client: Client,
    slug: &'a str,
    notes: Vec<String>,
}

impl Writing<'_> {
    fn entry(&mut self, server: &Server) -> Result<Value, String> {
        match &server.transport {
            Transport::Stdio(launch) => self.program(launch),
            Transport::Http(remote) | Transport::Sse(remote) => self.remote(server, remote),
        }
    }

    /// Returns a text that the client takes literally. Fails if it contains a secret or a placeholder.
    fn plain(&self, what: &str, text: &str) -> Result<Value, String> {
        if has_secret(text) {
            return Err(format!("{what} contains a secret"));
        }
        if self.client != Client::ClaudeDesktop && text.contains("${") {
            return Err(format!("{what} contains `${{`, which {} would expand", self.client.name()));
        }
        Ok(text.into())
    }

    /// Adds a note for the user and returns the placeholder of a secret.
    fn secret(&mut self, variable: &str) -> String {
        let client = self.client.name();
        self.notes.push(if self.client == Client::ClaudeDesktop {
            format!(
                "enter the value of `{variable}` into the file: {client} does not read environment variables"
            )
        } else {
            format!("set `{variable}` in the environment of {client}")
        });
        self.client.reference(variable)
    }

    fn program(&mut self, launch: &Launch) -> Result<Value, String> {
        if in_arguments(&launch.args).is_some() {
            return Err("its arguments contain a secret".to_owned());
        }
        let args = launch.args.iter().map(|text| self.plain("an argument", text));
        let (args, mut env) = (args.collect::<Result<Vec<_>, _>>()?, Map::new());
        for (name, value) in launch.env.iter().filter(|(name, _)| !launch.inherited.contains(*name)) {
            let value = if is_secret(name, value) {
                self.secret(&of_secret(name)).into()
            } else {
                self.plain(&format!("`{name}`"), value)?
            };
            env.insert(name.clone(), value);
        }
        for name in &launch.secrets {
            env.insert(name.clone(), self.secret(&of_secret(name)).into());
        }
        let client = self.client.name();
        let others = launch.inherited.iter().filter(|name| !NEEDED.contains(&&***name));
        self.notes.extend(
            others.map(|name| format!("it needs the environment variable `{name}`: set it for {client}")),
        );
        let mut entry = json!({ "command": self.plain("its command", &launch.command)? });
        if matches!(self.client, Client::ClaudeCode | Client::VsCode) {
            entry["type"] = "stdio".into();
        }
        if !args.is_empty() {
            entry["args"] = args.into();
        }
        if !env.is_empty() {
            entry["env"] = env.into();
        }
        if let Some(directory) = &launch.directory {
            entry["cwd"] = self.plain("its directory", directory)?;
        }
        Ok(entry)
    }

    fn remote(&mut self, server: &Server, Remote { url, headers }: &Remote) -> Result<Value, String> {
        if self.client == Client::ClaudeDesktop {
            return Err(
                "Claude Desktop supports only stdio servers in its file: add the URL as a connector".into()
            );
        }
        let mut entry = json!({ "type": server.transport.name(), "url": self.plain("its URL", url)? });
        let mut sent = Map::new();
        for (name, value) in headers {
            sent.insert(name.clone(), self.plain(&format!("the header `{name}`"), value)?);
        }
        let variable = format!("{}_TOKEN", self.slug.to_ascii_uppercase().replace('-', "_"));
        match (&server.settings.authentication, server.settings.credentials) {
            (Authentication::None, _) => {}
            (Authentication::OAuth { .. }, _) => {
                self.notes.push(format!("{} signs in to it on its own", self.client.name()));
            }
            (_, CredentialMode::PerAgent) => {
                self.notes.push("each agent has its own credential: the file contains none".to_owned());
            }
            (Authentication::Basic { .. }, _) => {
                self.notes.push("its user name and password are not in the file".to_owned());
            }
            (Authentication::Bearer, _) => {
                sent.insert("Authorization".into(), format!("Bearer {}", self.secret(&variable)).into());
            }
            (Authentication::ApiKey { header }, _) => {
                sent.insert(header.clone(), self.secret(&variable).into());
            }
        }
        if !sent.is_empty() {
            entry["headers"] = sent.into();
        }
        Ok(entry)
    }
}

/// Returns the environment variable of the client for a secret; its name shows that the value is secret.
fn of_secret(name: &str) -> String {
    if looks_secret(name) { name.to_owned() } else { format!("{name}_SECRET") }
}
